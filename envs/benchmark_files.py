"""What ``--file`` may name: a set, one instance, or a folder of instances with their references."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.envs.archives import read_npz
from hetsched.envs.files import REFERENCE, InstanceSet, load_instance, load_set
from hetsched.envs.fjs import load_fjs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetsched.envs.instance import Instance

SUFFIXES = (".fjs", ".json", ".npz")


def load_benchmark(path: str | Path) -> InstanceSet:
    """Instances of a ``.npz`` set, of one ``.fjs``, ``.json`` or ``.npz`` file, or of a folder.

    A folder holds instances, sorted by name, and may hold ``reference_NAME.csv`` files of costs:
    one line an instance in the same order, the cost being what stands before the first comma;
    lines that begin with ``#`` are comments.

    Raises:
        ValueError: nothing readable there, or references of another number than instances.
    """
    path = Path(path)
    if path.is_dir():
        return _load_folder(path)
    if path.suffix == ".npz" and np.ndim(read_npz(path).get("processing_times", 0)) != 1:
        return load_set(path)
    return InstanceSet((_load_one(path),), name=path.stem)


def _load_one(path: Path) -> Instance:
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path} has no suffix that is known here; use {', '.join(SUFFIXES)}")
    return load_fjs(path) if path.suffix == ".fjs" else load_instance(path)


def _load_folder(folder: Path) -> InstanceSet:
    files = sorted(one for one in folder.iterdir() if one.suffix in SUFFIXES)
    if not files:
        raise ValueError(
            f"{folder} holds no instances; give a folder of {', '.join(SUFFIXES)} files"
        )
    instances = tuple(_load_one(one) for one in files)
    references = {
        one.stem.removeprefix(REFERENCE): _load_costs(one, len(instances))
        for one in sorted(folder.glob(f"{REFERENCE}*.csv"))
    }
    return InstanceSet(instances, references, name=f"{folder.parent.name}/{folder.name}")


def _load_costs(path: Path, count: int) -> NDArray[Any]:
    costs: list[float] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            costs.append(float(line.split(",")[0]))
        except ValueError:
            raise ValueError(
                f"line {number} of {path} does not begin with a cost; write a number, or # before "
                "a comment"
            ) from None
    if len(costs) != count:
        raise ValueError(
            f"{path} has {len(costs)} costs for the {count} instances beside it; give one a line"
        )
    return np.array(costs)
