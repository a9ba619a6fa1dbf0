"""Reads a queue from YAML; docs/dispatch.md describes the file.

Every mistake is one `QueueError` sentence that names the job and the key, found before anything
starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from hetsched.executor.machine_specs import parse_machines, read_machines
from hetsched.executor.queue import DEFAULT_OBJECTIVE, Job, Mode, Queue, QueueError
from hetsched.executor.yaml_fields import (
    as_bytes,
    as_mapping,
    as_number,
    as_seconds,
    as_text,
    as_whole,
    only_known_keys,
    read_yaml,
)

if TYPE_CHECKING:
    from hetsched.envs.scenarios.own_files import Speed
    from hetsched.executor.protocol import Machine

__all__ = ["load_jobs", "load_queue", "parse_machines", "read_job"]

QUEUE_KEYS = {"machines", "jobs", "defaults", "speeds", "objective", "grace"}
JOB_KEYS = {
    "name", "command", "durations", "model", "steps", "weight", "due", "release", "timeout",
    "gpus", "demand", "after", "retries", "moves", "priority", "memory", "gpu_memory", "env",
    "workdir",
}  # fmt: skip


Speeds: TypeAlias = "dict[str, list[Speed]]"  # model -> its rows


def load_queue(path: str | Path, machines: tuple[Machine, ...] | None = None) -> Queue:
    """The queue in a YAML file.

    Args:
        path: the file; paths inside it (speeds, workdir) are relative to its folder.
        machines: used instead of the file's own.

    Raises:
        QueueError: the file cannot be read or says something that cannot be run.
    """
    path = Path(path)
    data = as_mapping(read_yaml(path), f"queue {path.name}")
    only_known_keys(data, QUEUE_KEYS, f"queue {path.name}")
    own = read_machines(data["machines"], "machines") if "machines" in data else ()
    used = own if machines is None else machines
    if not used:
        raise QueueError(
            f"queue {path.name}: machines is missing; list them there or give --machines."
        )
    return Queue(
        _jobs(data, path, used, own),
        used,
        objective=str(data.get("objective", DEFAULT_OBJECTIVE)),
        grace=as_seconds(data.get("grace", 10.0), "queue", "grace"),
    )


def load_jobs(path: str | Path, machines: tuple[Machine, ...]) -> tuple[Job, ...]:
    """The jobs in a YAML file, to be added to a queue with these machines.

    Raises:
        QueueError: the file cannot be read or holds a job that can never run there.
    """
    path = Path(path)
    data = as_mapping(read_yaml(path), f"queue {path.name}")
    only_known_keys(data, QUEUE_KEYS, f"queue {path.name}")
    own = read_machines(data["machines"], "machines") if "machines" in data else ()
    return _jobs(data, path, machines, own)


def read_job(
    entry: Mapping[str, Any], machines: tuple[Machine, ...], speeds: str | None, folder: Path
) -> Job:
    """One job from the keys of a queue's job; `speeds`: path of a table, relative to the folder.

    Raises:
        QueueError: a key is wrong, or the job can never run on these machines.
    """
    known = {word for machine in machines for word in (machine.name, machine.type)}
    table = {} if speeds is None else _speeds(folder / speeds)
    return _job(entry, 0, {}, machines, known, table, folder)


def _jobs(
    data: Mapping[str, Any], path: Path, used: tuple[Machine, ...], own: tuple[Machine, ...]
) -> tuple[Job, ...]:
    # A name that only the file's machines have is no slip of the pen; the job cannot run there.
    known = {word for machine in (*own, *used) for word in (machine.name, machine.type)}
    speeds = _speeds(path.parent / str(data["speeds"])) if "speeds" in data else {}
    defaults = as_mapping(data.get("defaults") or {}, "defaults")
    only_known_keys(defaults, JOB_KEYS - {"name", "after"}, "defaults")
    entries = data.get("jobs")
    if not isinstance(entries, list):
        raise QueueError(f"queue {path.name}: jobs is missing; give a list of jobs.")
    return tuple(
        _job(entry, position, defaults, used, known, speeds, path.parent)
        for position, entry in enumerate(entries)
    )


def _speeds(path: Path) -> Speeds:
    """The measured rows of each model, from a CSV as of the scenario ``own``."""
    from hetsched.envs.scenarios.own_files import read_speeds  # slow: numpy

    try:
        rows = read_speeds(path)
    except ValueError as error:
        raise QueueError(f"speeds: {error}.") from None
    table: Speeds = {}
    for row in rows:
        table.setdefault(row.model, []).append(row)
    return table


def _job(
    entry: Any,
    position: int,
    defaults: Mapping[str, Any],
    machines: tuple[Machine, ...],
    known: set[str],
    speeds: Speeds,
    folder: Path,
) -> Job:
    entry = as_mapping(entry, f"jobs[{position}]")
    if "name" not in entry:
        raise QueueError(f"jobs[{position}]: name is missing; give every job a name.")
    name = as_text(entry["name"], f"jobs[{position}]", "name")
    who = f"job {name!r}"
    only_known_keys(entry, JOB_KEYS, who)
    own_env = _env(entry.get("env", {}), who)
    entry = {**defaults, **entry}
    after = entry.get("after", [])
    workdir = entry.get("workdir")
    folder = folder if workdir is None else folder / as_text(workdir, who, "workdir")
    return Job(
        name=name,
        modes=_modes(entry, who, machines, known, speeds),
        command=_command(entry, who),
        weight=as_number(entry.get("weight", 1.0), who, "weight"),
        due=as_seconds(entry.get("due", math.inf), who, "due"),
        release=as_seconds(entry.get("release", 0.0), who, "release"),
        timeout=as_seconds(entry.get("timeout", math.inf), who, "timeout"),
        after=tuple(
            as_text(one, who, "after") for one in (after if isinstance(after, list) else [after])
        ),
        retries=as_whole(entry.get("retries", 0), who, "retries"),
        moves=as_whole(entry.get("moves", 2), who, "moves"),
        priority=as_whole(entry.get("priority", 0), who, "priority"),
        memory=as_bytes(entry.get("memory", math.inf), who, "memory"),
        gpu_memory=as_bytes(entry.get("gpu_memory", 0), who, "gpu_memory"),
        env={**_env(defaults.get("env", {}), "defaults"), **own_env},
        workdir=None if workdir is None else str(folder.absolute()),
        model=as_text(entry.get("model", ""), who, "model"),
        steps=_steps(entry, who) or 0.0,
    )


def _command(entry: Mapping[str, Any], who: str) -> tuple[str, ...] | str:
    command = entry.get("command")
    if isinstance(command, str) and command.strip():
        return as_text(command, who, "command")
    if isinstance(command, list) and command:
        for word in command:
            if isinstance(word, bool | dict | list | None):
                raise QueueError(
                    f"{who}: command holds {word!r}, more than a plain word; quote it."
                )
        return tuple(as_text(word, who, "command") for word in command)
    if isinstance(command, bool):
        raise QueueError(f"{who}: command is {command!r}; write it in quotes.")
    raise QueueError(f"{who}: command is missing; give a list of words, or text for the shell.")


def _env(value: Any, who: str) -> dict[str, str]:
    env = as_mapping(value, f"{who}: env")
    for key, one in env.items():
        if isinstance(one, bool | dict | list | None):
            raise QueueError(f"{who}: env {key} is {one!r}; write it in quotes.")
        if not str(key) or "=" in str(key):
            raise QueueError(f"{who}: env {str(key)!r} is no name of a variable; rename it.")
    return {as_text(key, who, "env"): as_text(one, who, f"env {key}") for key, one in env.items()}


def _modes(
    entry: Mapping[str, Any],
    who: str,
    machines: tuple[Machine, ...],
    known: set[str],
    speeds: Speeds,
) -> tuple[Mode, ...]:
    """Where the job can run: its durations by machine or type, else its model's speeds."""
    given = as_mapping(entry.get("durations") or {}, f"{who}: durations")
    durations = {str(word): value for word, value in given.items()}
    for word in durations:
        if word not in known:
            raise QueueError(
                f"{who}: durations names {word!r}, which is no machine or machine type here; "
                f"use {', '.join(sorted(known))}."
            )
    rows, steps = _rows_and_steps(entry, who, speeds)
    if "gpus" in entry and "demand" in entry:
        raise QueueError(f"{who}: gpus and demand exclude each other; keep one.")
    gpus = as_whole(entry["gpus"], who, "gpus") if "gpus" in entry else None
    if gpus is not None and gpus < 0:
        raise QueueError(f"{who}: gpus is {gpus}; give 0 for a CPU machine, or more.")
    # The number of units that was asked for; None: whatever was measured.
    units = max(gpus, 1) if gpus is not None else None
    if "demand" in entry:
        units = as_whole(entry["demand"], who, "demand")
    need = as_bytes(entry.get("gpu_memory", 0), who, "gpu_memory")
    modes, too_small, largest = [], 0, 0.0
    for machine in machines:
        if gpus is not None and (machine.kind == "gpu") != (gpus > 0):
            continue
        value = durations.get(machine.name, durations.get(machine.type))
        if value is not None:
            seconds = as_seconds(value, who, f"durations on {machine.name!r}")
            found = [Mode(machine.name, seconds, 1 if units is None else units)]
        else:
            found = [
                Mode(machine.name, row.seconds(steps), row.gpus)
                for row in rows
                if row.machine == machine.type and units in (None, row.gpus)
            ]
        if found and machine.kind == "gpu" and machine.memory and machine.memory < need:
            largest, found = max(largest, machine.memory), []
        fitting = [mode for mode in found if mode.demand <= machine.capacity]
        if found and not fitting:
            too_small = max(too_small, machine.capacity)
        modes += fitting
    if not modes and largest and not too_small:
        raise QueueError(
            f"{who}: gpu_memory is more than the {largest / 1024**3:.0f} GiB that the largest "
            "device it may use has; lower it or add a machine."
        )
    if not modes and too_small:
        raise QueueError(
            f"{who}: needs more units of one machine than the {too_small} that the largest it can "
            "use has; lower gpus or demand, or add a machine."
        )
    if not modes:
        raise QueueError(
            f"{who}: durations give no seconds for any of the machines it may use; add one, or a "
            "model with steps whose speed there is known."
        )
    return tuple(modes)


def _rows_and_steps(
    entry: Mapping[str, Any], who: str, speeds: Speeds
) -> tuple[list[Speed], float]:
    """The measured speeds of the job's model and its work; no rows where durations say it all."""
    steps = _steps(entry, who)
    has_durations = bool(entry.get("durations"))
    if "model" not in entry:
        if steps is not None and not has_durations:
            raise QueueError(f"{who}: steps without a model say nothing; add model.")
        return [], 0.0
    if steps is None:
        if has_durations:
            return [], 0.0
        raise QueueError(f"{who}: steps is missing; give the model's steps, or durations.")
    model = str(entry["model"])
    if model not in speeds:
        raise QueueError(f"{who}: model {model!r} is not in the speeds table; add its rows.")
    return speeds[model], steps


def _steps(entry: Mapping[str, Any], who: str) -> float | None:
    """The work of a job, if it is said."""
    if "steps" not in entry:
        return None
    steps = as_number(entry["steps"], who, "steps")
    if not (steps > 0 and math.isfinite(steps)):
        raise QueueError(f"{who}: steps is {steps:g}; give a number above 0.")
    return steps
