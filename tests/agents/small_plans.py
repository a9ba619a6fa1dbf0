"""Plans small enough to look at all of their schedules."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

OBJECTIVES = (
    Objective(makespan=1.0),
    Objective(weighted_tardiness=1.0),
    Objective(flow_time=1.0, per_job=True),
    Objective(makespan=1.0, weighted_tardiness=1.0, machine_tardiness=1.0),
    Objective(weighted_completion=0.5, setup_time=2.0, machine_tardiness=0.1),
)


def small_plan(seed: int, jobs: int = 4, machines: int = 2, whole: bool = False) -> Instance:
    """Random set-ups, releases, due times, weights, initial occupation and eligibility.

    Args:
        whole: all numbers are integers.
    """
    rng = np.random.default_rng(seed)

    def times(high: float, *shape: int) -> np.ndarray:
        drawn = rng.uniform(0.1, high, shape)
        return np.ceil(drawn) if whole else drawn

    eligible = rng.random((jobs, machines)) < 0.8
    eligible[np.arange(jobs), rng.integers(machines, size=jobs)] = True
    return Instance.from_matrix(
        times(10, jobs, machines),
        eligible,
        release_times=times(8, jobs) * (rng.random(jobs) < 0.5),
        due_times=np.where(rng.random(jobs) < 0.8, times(15, jobs), np.inf),
        weights=times(5, jobs),
        machine_available=times(5, machines),
        machine_due_times=times(15, machines),
        machine_weights=times(3, machines),
        setup_times=times(3, jobs + 1, jobs, machines) if seed % 2 else None,
    )


def rebuilt(instance: Instance, sequences: list[list[int]]) -> Schedule | None:
    """Every job as early as its machine's sequence allows; None where one is not eligible there."""
    jobs = instance.num_jobs
    modes = np.zeros(jobs, np.int64)
    starts, ends, setups = np.zeros(jobs), np.zeros(jobs), np.zeros(jobs)
    for machine, sequence in enumerate(sequences):
        free, last = instance.machine_available[machine], jobs
        for job in sequence:
            mine = (instance.mode_jobs == job) & (instance.mode_machines == machine)
            if not mine.any():
                return None
            modes[job] = int(mine.nonzero()[0][0])
            if instance.setup_times is not None:
                setups[job] = instance.setup_times[last, job, machine]
            starts[job] = max(free, instance.release_times[job]) + setups[job]
            free = ends[job] = starts[job] + instance.processing_times[modes[job]]
            last = job
    return Schedule(modes=modes, starts=starts, ends=ends, setups=setups)


def all_schedules(instance: Instance) -> Iterator[Schedule]:
    """Every sequence of the jobs on every machine: all semi-active schedules."""
    jobs, machines = instance.num_jobs, instance.num_machines
    for order in itertools.permutations(range(jobs)):
        for cuts in itertools.combinations_with_replacement(range(jobs + 1), machines - 1):
            bounds = (0, *cuts, jobs)
            parts = [list(order[a:b]) for a, b in itertools.pairwise(bounds)]
            schedule = rebuilt(instance, parts)
            if schedule is not None:
                yield schedule
