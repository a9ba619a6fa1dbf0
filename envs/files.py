"""Files of instances (``.npz`` or ``.json``) and benchmark sets (``.npz``), never pickles."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hetsched.envs.archives import (
    VERSION,
    check_header,
    read_json,
    read_npz,
    to_json,
    with_suffix,
    write_npz,
)
from hetsched.envs.instance import Instance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

INSTANCE_FORMAT, SET_FORMAT = "hetsched instance", "hetsched set"
HEADER = ("format", "version")
FIELDS = tuple(one.name for one in fields(Instance))
# What a set holds per instance: the fields of Instance.from_matrix.
SET_FIELDS = (
    *(name for name in FIELDS if name not in ("num_jobs", "num_machines")),
    "eligible",
)
NOT_IN_SETS = ("mode_jobs", "mode_machines")
REFERENCE = "reference_"

Built = TypeVar("Built")


@dataclass(frozen=True, eq=False)
class InstanceSet:
    """Instances to compare policies on, with costs that others reached.

    Attributes:
        instances: N of them, at least one.
        references: (N,) arrays by name, mostly costs, such as ``"optimum"``.
        name: for people.
        factors: (N,) float64 arrays by name: settings of the generator, such as ``"tau"``.

    Raises:
        ValueError: no instance, or an array of another length.
    """

    instances: tuple[Instance, ...]
    references: dict[str, NDArray[Any]] = field(default_factory=dict)
    name: str = "set"
    factors: dict[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "instances", tuple(self.instances))  # the dataclass is frozen
        if not self.instances:
            raise ValueError("the set has no instance; give at least one")
        for kind in ("references", "factors"):
            arrays = {key: np.asarray(value) for key, value in getattr(self, kind).items()}
            for key, array in arrays.items():
                if array.shape != (len(self.instances),) or array.dtype.kind not in "biuf":
                    raise ValueError(
                        f"{kind}[{key!r}] has shape {array.shape} and type {array.dtype}; "
                        f"give {len(self.instances)} numbers, one per instance"
                    )
            object.__setattr__(self, kind, arrays)

    def __len__(self) -> int:
        return len(self.instances)


def save_instance(path: str | Path, instance: Instance) -> None:
    """Write an instance as ``.npz`` or ``.json``, by the suffix; infinity becomes null in JSON.

    Raises:
        ValueError: another suffix.
        OSError: the file cannot be written.
    """
    path = with_suffix(path, ".npz", ".json")
    values = {name: getattr(instance, name) for name in FIELDS}
    values = {name: value for name, value in values.items() if value is not None}
    if path.suffix == ".npz":
        write_npz(path, INSTANCE_FORMAT, values)
        return
    header = {"format": INSTANCE_FORMAT, "version": VERSION}
    plain = {name: to_json(value) for name, value in values.items()}
    path.write_text(json.dumps({**header, **plain}, allow_nan=False) + "\n", encoding="utf-8")


def load_instance(path: str | Path) -> Instance:
    """Read what `save_instance` wrote.

    Raises:
        ValueError: no such file, another format or version, a damaged file, a pickle inside, an
            unknown or missing field, or values that `Instance` refuses.
    """
    path = with_suffix(path, ".npz", ".json")
    values = read_npz(path) if path.suffix == ".npz" else read_json(path)
    if "format" not in values and np.ndim(values.get("processing_times", 0)) == 3:
        raise ValueError(f"{path} is a set of instances; read it with load_set")
    check_header(path, values, INSTANCE_FORMAT)
    values = {name: value for name, value in values.items() if name not in HEADER}
    for name in values:
        if name not in FIELDS:
            raise ValueError(f"{path} has an unknown field {name}; use {', '.join(FIELDS)}")
    for name in FIELDS[:5]:
        if name not in values:
            raise ValueError(f"{path} lacks the field {name}; add it")
    for name in ("num_jobs", "num_machines"):
        if isinstance(values[name], np.ndarray) and values[name].shape == ():
            values[name] = values[name].item()
    return _build(str(path), Instance, values)


def save_set(path: str | Path, instances: InstanceSet) -> None:
    """Write a set of instances of one size as ``.npz``, with a leading instance axis.

    Raises:
        ValueError: another suffix, instances that differ in size, arcs or kinds of fields, or two
            modes of one job on one machine.
        OSError: the file cannot be written.
    """
    path = with_suffix(path, ".npz")
    rows = [_set_row(index, one) for index, one in enumerate(instances.instances)]
    first = {name: value.shape for name, value in rows[0].items()}
    for index, row in enumerate(rows):
        if {name: value.shape for name, value in row.items()} != first:
            raise ValueError(
                f"instance {index} differs from instance 0 in its sizes, arcs or fields; "
                "put instances of one shape in a set, or save them one by one"
            )
    arrays = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    references = {REFERENCE + name: value for name, value in instances.references.items()}
    for name in instances.factors:
        if name in arrays or name in ("name", *HEADER) or name.startswith(REFERENCE):
            raise ValueError(f"factors has the reserved name {name!r}; rename it")
    values = {"name": instances.name, **arrays, **references, **instances.factors}
    write_npz(path, SET_FORMAT, values)


def load_set(path: str | Path) -> InstanceSet:
    """Read a benchmark set: ``.npz`` arrays with a leading axis of N instances.

    ``processing_times`` is (N, jobs, machines), infinite or NaN where a job cannot run; the other
    names are those of `Instance` (``demand`` and ``actual_times`` also by jobs and machines),
    optional ``eligible`` (N, jobs, machines) bool, and ``reference_<name>`` (N,).  Other (N,)
    arrays of numbers are kept as factors.

    Raises:
        ValueError: no such file, another format or version, a damaged file, a pickle inside, an
            unknown or missing array, another leading axis, or values that `Instance` refuses.
    """
    path = with_suffix(path, ".npz")
    arrays = read_npz(path)
    if "format" in arrays:
        check_header(path, arrays, SET_FORMAT)
    name = f"{path.parent.name}/{path.stem}".lstrip("/")
    if "name" in arrays:
        name = str(arrays["name"])
    arrays = {key: value for key, value in arrays.items() if key not in ("name", *HEADER)}
    matrices = arrays.get("processing_times")
    if matrices is None or matrices.ndim != 3 or len(matrices) == 0:
        raise ValueError(
            f"{path} is no set of instances; give processing_times with three axes, instances by "
            "jobs by machines"
        )
    count = len(matrices)
    data, references, factors = {}, {}, {}
    for key, array in arrays.items():
        if array.ndim == 0 or len(array) != count:
            raise ValueError(
                f"{key} in {path} has shape {array.shape}; give it a leading axis of {count} "
                "instances, as processing_times has"
            )
        if key in SET_FIELDS and key not in NOT_IN_SETS:
            data[key] = array
        elif key.startswith(REFERENCE):
            references[key.removeprefix(REFERENCE)] = array
        elif array.ndim == 1 and array.dtype.kind in "biuf":
            factors[key] = array
        else:
            known = ", ".join(one for one in SET_FIELDS if one not in NOT_IN_SETS)
            raise ValueError(
                f"{path} has an unknown array {key}; use {known}, reference_<name>, or one number "
                "per instance"
            )
    instances = tuple(
        _build(
            f"instance {index} of {path}",
            Instance.from_matrix,
            {key: array[index] for key, array in data.items()},
        )
        for index in range(count)
    )
    return _build(
        str(path),
        InstanceSet,
        {"instances": instances, "references": references, "name": name, "factors": factors},
    )


def _set_row(index: int, instance: Instance) -> dict[str, NDArray[Any]]:
    """The arrays of one instance in a set."""
    jobs, machines = instance.mode_jobs, instance.mode_machines
    if len(np.unique(jobs * instance.num_machines + machines)) < instance.num_modes:
        raise ValueError(
            f"instance {index} has two modes of one job on one machine, which a set cannot hold; "
            "save it by itself"
        )
    row: dict[str, NDArray[Any]] = {}
    for name in FIELDS:
        value = getattr(instance, name)
        if value is None or name in ("num_jobs", "num_machines", *NOT_IN_SETS):
            continue
        row[name] = np.asarray(value)
    row["processing_times"] = instance.matrix()
    shape = row["processing_times"].shape
    for name, fill in (("demand", 1), ("actual_times", np.inf)):
        if name in row:
            matrix = np.full(shape, fill, row[name].dtype)
            matrix[jobs, machines] = row[name]
            row[name] = matrix
    return row


def _build(what: str, build: Callable[..., Built], values: Mapping[str, Any]) -> Built:
    """The result of ``build(**values)``, whose errors say what it was built from."""
    try:
        return build(**values)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
