"""Schedules for tests, built without the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.envs.schedule import Schedule
from hetsched.tests.envs.instances import random_instance

if TYPE_CHECKING:
    from hetsched.envs.instance import Instance

FEATURES = ("shared", "precedence", "lags", "releases", "noisy", "parallel")


def draw(seed: int, **fixed: bool) -> tuple[Instance, Schedule]:
    """A random instance with random features, except for those given, and a list schedule."""
    rng = np.random.default_rng(seed)
    options = {name: bool(rng.random() < 0.5) for name in FEATURES} | fixed
    options.setdefault("setups", not options["shared"] and bool(rng.random() < 0.5))
    instance = random_instance(rng, **options)
    return instance, list_schedule(instance, rng)


def make(modes: Any, starts: Any, ends: Any, **others: Any) -> Schedule:
    """A schedule from lists, which the types of its fields do not promise to take."""
    return Schedule(modes, starts, ends, **others)


def list_schedule(instance: Instance, rng: np.random.Generator) -> Schedule:
    """Jobs in a random order that precedence allows, each in a random mode, as early as it goes."""
    jobs = instance.num_jobs
    units = [
        np.full(capacity, available)
        for capacity, available in zip(instance.capacity, instance.machine_available, strict=True)
    ]
    previous = np.full(instance.num_machines, jobs)
    modes = np.full(jobs, -1)
    starts, ends, setups = np.zeros(jobs), np.zeros(jobs), np.zeros(jobs)
    left = set(range(jobs))
    while left:
        waiting = {int(after) for before, after in instance.precedence.T if int(before) in left}
        job = int(rng.choice(sorted(left - waiting)))
        mode = int(rng.choice(np.flatnonzero(instance.mode_jobs == job)))
        machine, demand = int(instance.mode_machines[mode]), int(instance.demand[mode])
        ready = instance.release_times[job]
        for (before, after), lag in zip(
            instance.precedence.T, instance.precedence_lags, strict=True
        ):
            if after == job:
                apart = instance.mode_machines[modes[before]] != machine
                ready = max(ready, ends[before] + (lag if apart else 0.0))
        order = np.argsort(units[machine], kind="stable")[:demand]
        begin = max(ready, units[machine][order].max())
        if instance.setup_times is not None:
            setups[job] = instance.setup_times[previous[machine], job, machine]
        modes[job], starts[job] = mode, begin + setups[job]
        ends[job] = starts[job] + instance.durations[mode]
        units[machine][order] = ends[job]
        previous[machine] = job
        left.remove(job)
    return Schedule(modes=modes, starts=starts, ends=ends, setups=setups)
