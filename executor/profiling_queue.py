"""What there is to measure in a queue: each model once on each type of machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.executor.machine_specs import parse_machines
from hetsched.executor.profiling import Subject
from hetsched.executor.queue import Job, QueueError
from hetsched.executor.queue_file import read_job
from hetsched.executor.yaml_fields import as_mapping, as_number, read_yaml

if TYPE_CHECKING:
    from hetsched.executor.protocol import Machine


def read_subjects(
    path: str | Path,
    machines: Sequence[Machine] | None = None,
    only: Collection[str] = (),
    types: Collection[str] = (),
    gpus: Sequence[int] = (),
) -> list[Subject]:
    """The subjects of a queue's file, whose jobs need neither durations nor measured speeds.

    A job without durations is measured on every machine that it may use; one with durations where
    they name a machine. Of the jobs of a model the first stands for all.

    Args:
        path: the file; workdirs in it are relative to its folder.
        machines: used instead of the file's own.
        only: names of jobs or models; empty: all.
        types: machine types; empty: all.
        gpus: numbers of units to measure where a job says none; empty: 1.

    Raises:
        QueueError: naming the job and the key, or the name that is not there.
    """
    path = Path(path)
    data = as_mapping(read_yaml(path), f"queue {path.name}")
    if machines is None:
        machines = parse_machines(str(path)) if "machines" in data else ()
    if not machines:
        raise QueueError(
            f"queue {path.name}: machines is missing; list them there or give --machines."
        )
    _check_names("--on", types, {machine.type for machine in machines})
    machines = tuple(one for one in machines if not types or one.type in types)
    entries = data.get("jobs")
    if not isinstance(entries, list) or not entries:
        raise QueueError(f"queue {path.name}: jobs is missing; give a list of jobs.")
    defaults = as_mapping(data.get("defaults") or {}, "defaults")
    found: dict[tuple[str, str, int], Subject] = {}
    names: set[str] = set()
    for at, own in enumerate(entries):
        entry = {**defaults, **as_mapping(own, f"jobs[{at}]")}
        if "env" in entry and "env" in defaults:
            entry["env"] = {**defaults["env"], **as_mapping(entry["env"], f"jobs[{at}]: env")}
        model = str(entry.get("model", entry.get("name", "")))
        called = {model, str(entry.get("name", ""))}
        names |= called
        if only and not called & set(only):
            continue
        for subject in _subjects(entry, model, machines, gpus or (1,), path.parent):
            found.setdefault((model, subject.machine.type, subject.gpus), subject)
    _check_names("--jobs", only, names)
    return list(found.values())


def _subjects(
    entry: Mapping[str, Any],
    model: str,
    machines: Sequence[Machine],
    gpus: Sequence[int],
    folder: Path,
) -> list[Subject]:
    """Those of one job; every machine type once, in the order of the machines."""
    who = f"job {entry.get('name')!r}"
    named = entry.get("durations")
    if named is not None and "model" not in entry:
        allowed = {str(word) for word in as_mapping(named, f"{who}: durations")}
        machines = [one for one in machines if allowed & {one.name, one.type}]
    if not machines:
        return []
    steps = as_number(entry["steps"], who, "steps") if "steps" in entry else 0.0
    # Any duration will do: it says where the job can run.
    plain = {key: value for key, value in entry.items() if key not in ("model", "steps")}
    plain["durations"] = {machine.name: 1.0 for machine in machines}
    demands = [{}] if {"gpus", "demand"} & set(entry) else [{"demand": units} for units in gpus]
    by_name = {machine.name: machine for machine in machines}
    subjects: dict[tuple[str, int], Subject] = {}
    for demand in demands:
        job: Job = read_job({**plain, **demand}, tuple(machines), None, folder)
        for at, mode in enumerate(job.modes):
            machine = by_name[mode.machine]
            subject = Subject(model, job, at, machine, steps)
            subjects.setdefault((machine.type, mode.demand), subject)
    return list(subjects.values())


def _check_names(option: str, given: Collection[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            raise QueueError(
                f"{option}: there is no {name!r} in this queue; use {', '.join(sorted(known))}."
            )
