"""own: the user's models, machines and jobs, as they are or resampled for training."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import numpy.typing as npt

from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.scenarios.own_files import (
    Job,
    Machines,
    Speed,
    fits,
    read_jobs,
    read_machines,
    read_speeds,
)
from hetsched.envs.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OPTIONS = ("speeds", "jobs", "machines", "deciding", "objective")


@dataclass(frozen=True)
class OwnCluster:
    """What the three files say."""

    speeds: tuple[Speed, ...]
    jobs: tuple[Job, ...]
    machines: tuple[Machines, ...]

    @property
    def num_machines(self) -> int:
        return sum(group.count for group in self.machines)

    @functools.cached_property
    def modes(self) -> dict[tuple[str, int], tuple[Speed, ...]]:
        """(model, the job's gpus) -> the measured speeds that such a job can use."""
        capacity = {group.machine: group.capacity for group in self.machines}
        kinds = {(job.model, job.gpus): job for job in self.jobs}
        return {
            key: tuple(speed for speed in self.speeds if fits(job, speed, capacity))
            for key, job in kinds.items()
        }


def read_own(speeds: str | Path, jobs: str | Path, machines: str) -> OwnCluster:
    """Read the three files; ``machines`` is a file too or reads like ``v100*2+k80*4``.

    Raises:
        ValueError: one sentence naming file, line and column.
    """
    measured = read_speeds(Path(speeds))
    groups = read_machines(machines, measured)
    listed = read_jobs(Path(jobs), measured, groups)
    return OwnCluster(tuple(measured), tuple(listed), tuple(groups))


def own_instance(speeds: str | Path, jobs: str | Path, machines: str) -> Instance:
    """The jobs of the file as they are.

    Raises:
        ValueError: one sentence naming file, line and column.
    """
    own = read_own(speeds, jobs, machines)
    return _instance(own, own.jobs, own.machines)


def _instance(own: OwnCluster, jobs: Sequence[Job], groups: Sequence[Machines]) -> Instance:
    """Modes in the order of jobs, then speeds, then machines."""
    first: dict[str, range] = {}
    names: list[str] = []
    for group in groups:
        first[group.machine] = range(len(names), len(names) + group.count)
        names += [f"{group.machine}-{index}" for index in range(group.count)]
    modes = [
        (index, machine, speed.seconds(job.work), speed.gpus)
        for index, job in enumerate(jobs)
        for speed in own.modes[job.model, job.gpus]
        for machine in first.get(speed.machine, ())
    ]
    mode_jobs, mode_machines, times, demand = zip(*modes, strict=True)
    return Instance(
        num_jobs=len(jobs),
        num_machines=len(names),
        mode_jobs=np.array(mode_jobs, dtype=np.int64),
        mode_machines=np.array(mode_machines, dtype=np.int64),
        processing_times=np.array(times, dtype=np.float64),
        demand=np.array(demand, dtype=np.int64),
        capacity=np.array([g.capacity for g in groups for _ in range(g.count)], dtype=np.int64),
        release_times=np.array([job.arrival for job in jobs]),
        due_times=np.array([job.due for job in jobs]),
        weights=np.array([job.weight for job in jobs]),
        job_names=tuple(job.name for job in jobs),
        machine_names=tuple(names),
    )


def _resized(groups: Sequence[Machines], num_machines: int) -> tuple[Machines, ...]:
    """The same mix with another number of machines (largest remainders, ties to the first)."""
    counts = np.array([group.count for group in groups], dtype=np.float64)
    ideal = counts * num_machines / counts.sum()
    whole = np.floor(ideal).astype(np.int64)
    order = np.argsort(whole - ideal, kind="stable")
    whole[order[: num_machines - int(whole.sum())]] += 1
    return tuple(
        replace(group, count=count)
        for group, count in zip(groups, whole.tolist(), strict=True)
        if count
    )


def sample(own: OwnCluster, rng: np.random.Generator, num_jobs: int, num_machines: int) -> Instance:
    """Jobs drawn with replacement, arriving at the file's load, on the file's mix of machines.

    Gaps between arrivals are drawn with replacement from the file's and stretched by
    (file's machines) / ``num_machines``.  A job keeps the time from its arrival to its due time.

    Raises:
        ValueError: too few machines to hold a type that can run any of the jobs.
    """
    groups = _resized(own.machines, num_machines)
    types = {group.machine for group in groups}
    able = [
        job
        for job in own.jobs
        if any(one.machine in types for one in own.modes[job.model, job.gpus])
    ]
    if not able:
        raise ValueError(f"none of the jobs can run on {', '.join(sorted(types))}; ask for more")
    picks = rng.integers(len(able), size=num_jobs)
    arrivals: npt.NDArray[np.float64] = np.zeros(num_jobs)
    gaps = np.diff(np.sort([job.arrival for job in own.jobs]))
    if len(gaps) and num_jobs > 1:
        drawn = rng.choice(gaps, num_jobs - 1)
        arrivals[1:] = np.cumsum(drawn) * (own.num_machines / num_machines)
    jobs = [
        replace(job, name=f"{job.name} #{i}", arrival=when, due=job.due - job.arrival + when)
        for i, (job, when) in enumerate(
            zip((able[pick] for pick in picks.tolist()), arrivals.tolist(), strict=True)
        )
    ]
    return _instance(own, jobs, groups)


def build(name: str, options: Mapping[str, str]) -> Scenario:
    for option in ("speeds", "jobs", "machines"):
        if option not in options:
            raise ValueError(
                f"scenario 'own' needs option {option!r}: "
                "own:speeds=SPEEDS.csv,jobs=JOBS.csv,machines=TYPE*COUNT+TYPE*COUNT"
            )
    own = read_own(options["speeds"], options["jobs"], options["machines"])
    deciding = options.get("deciding", "dispatch")
    if deciding not in ("plan", "dispatch"):
        raise ValueError(f"option 'deciding' must be plan or dispatch, got {deciding!r}")
    promised = any(np.isfinite(job.due) for job in own.jobs)
    objective = Objective(flow_time=1.0, per_job=True)
    if promised:
        objective = Objective(makespan=1.0, weighted_tardiness=1.0)
    if "objective" in options:
        objective = Objective.parse(options["objective"])
    machines = own.num_machines
    return Scenario(
        name=name,
        description=f"{len(own.jobs)} jobs of one's own on {machines} machines, resampled",
        objective=objective,
        deciding=cast("Literal['plan', 'dispatch']", deciding),
        sampler=functools.partial(sample, own),
        default_jobs=len(own.jobs),
        default_machines=machines,
        rules=(
            ("wspt", "edd", "allox", "atc") if promised else ("allox", "ect-wait", "atc", "fifo")
        ),
        sizes=tuple((min(max(8, factor * machines), 60), machines) for factor in (2, 3, 4)),
    )
