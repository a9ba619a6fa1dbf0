"""Validation of an instance: what each field must be, and the sentence when it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.envs import checks

if TYPE_CHECKING:
    from hetsched.envs.checks import IntArray
    from hetsched.envs.instance import Instance

DUE_MEND = "give 0 if it is already overdue, infinity if there is none"
WEIGHT_MEND = "give a finite number of at least 0"


def validated(raw: Instance) -> dict[str, Any]:
    """The fields of an instance under construction: filled in, converted, copied and checked.

    Raises:
        ValueError: as `Instance` says.
    """
    jobs = checks.count("num_jobs", raw.num_jobs)
    machines = checks.count("num_machines", raw.num_machines)
    out: dict[str, Any] = {"num_jobs": jobs, "num_machines": machines}
    out |= _machines(raw, machines)
    out |= _jobs(raw, jobs)
    out |= _modes(raw, jobs, machines, out["capacity"])
    out["setup_times"] = _setups(raw, jobs, machines, out["capacity"])
    out |= _precedence(raw, jobs)
    out["job_names"] = checks.names("job_names", raw.job_names, jobs, "job")
    out["machine_names"] = checks.names("machine_names", raw.machine_names, machines, "machine")
    return out


def _jobs(raw: Instance, jobs: int) -> dict[str, Any]:
    def read(name: str, default: float) -> checks.FloatArray:
        value = getattr(raw, name)
        value = np.full(jobs, default) if value is None else value
        return checks.floats(name, value, (jobs,), "one per job")

    release, due, weights = (
        read("release_times", 0.0),
        read("due_times", np.inf),
        read("weights", 1.0),
    )
    checks.check_times("release_times", release, True, "give a finite time of at least 0")
    checks.check_times("due_times", due, False, DUE_MEND)
    checks.check_times("weights", weights, True, WEIGHT_MEND)
    return {"release_times": release, "due_times": due, "weights": weights}


def _machines(raw: Instance, machines: int) -> dict[str, Any]:
    def read(name: str, default: float) -> checks.FloatArray:
        value = getattr(raw, name)
        value = np.full(machines, default) if value is None else value
        return checks.floats(name, value, (machines,), "one per machine")

    available, due = read("machine_available", 0.0), read("machine_due_times", np.inf)
    weights = read("machine_weights", 1.0)
    checks.check_times("machine_available", available, True, "give a finite time of at least 0")
    checks.check_times("machine_due_times", due, False, DUE_MEND)
    checks.check_times("machine_weights", weights, True, WEIGHT_MEND)
    capacity = np.ones(machines, np.int64) if raw.capacity is None else raw.capacity
    capacity = checks.integers("capacity", capacity, (machines,), "one per machine")
    checks.refuse("capacity", capacity, capacity < 1, "give a machine at least 1 unit")
    return {
        "machine_available": available,
        "machine_due_times": due,
        "machine_weights": weights,
        "capacity": capacity,
    }


def _modes(raw: Instance, jobs: int, machines: int, capacity: IntArray) -> dict[str, Any]:
    modes = checks.numbers("mode_jobs", raw.mode_jobs).size
    shape, axes = (modes,), "one per mode, as mode_jobs has"
    job = checks.integers("mode_jobs", raw.mode_jobs, shape, "a list of modes")
    machine = checks.integers("mode_machines", raw.mode_machines, shape, axes)
    checks.check_indices("mode_jobs", job, jobs, "job")
    checks.check_indices("mode_machines", machine, machines, "machine")
    without = np.flatnonzero(np.bincount(job, minlength=jobs) == 0)
    if len(without):
        raise ValueError(f"job {without[0]} has no mode; give it at least one machine to run on")

    mend = "give a positive finite duration, or leave the mode out if the job cannot run there"
    expected = checks.floats("processing_times", raw.processing_times, shape, axes)
    wrong = ~(np.isfinite(expected) & (expected > 0))
    checks.refuse("processing_times", expected, wrong, mend)
    actual = raw.actual_times
    if actual is not None:
        actual = checks.floats("actual_times", actual, shape, axes)
        wrong = ~(np.isfinite(actual) & (actual > 0))
        checks.refuse("actual_times", actual, wrong, "give a positive finite duration")

    demand = np.ones(modes, np.int64) if raw.demand is None else raw.demand
    demand = checks.integers("demand", demand, shape, axes)
    checks.refuse("demand", demand, demand < 1, "give a mode at least 1 unit")
    above = np.flatnonzero(demand > capacity[machine])
    if len(above):
        mode = above[0]
        raise ValueError(
            f"demand[{mode}] is {demand[mode]}, but machine {machine[mode]} has a capacity of "
            f"{capacity[machine[mode]]}; lower the demand or leave the mode out"
        )
    order = np.argsort(job, kind="stable")
    return {
        "mode_jobs": job[order],
        "mode_machines": machine[order],
        "processing_times": expected[order],
        "actual_times": None if actual is None else actual[order],
        "demand": demand[order],
    }


def _setups(raw: Instance, jobs: int, machines: int, capacity: IntArray) -> Any:
    if raw.setup_times is None:
        return None
    axes = "jobs + 1 (the last row is the first set-up on a machine) by jobs by machines"
    shape = (jobs + 1, jobs, machines)
    setups = checks.floats("setup_times", raw.setup_times, shape, axes)
    mend = "give a finite time of at least 0 (also between a job and itself)"
    checks.check_times("setup_times", setups, True, mend)
    shared = np.flatnonzero((capacity > 1) & setups.any(axis=(0, 1)))
    if len(shared):
        raise ValueError(
            f"setup_times[:, :, {shared[0]}] are set-ups on a machine with a capacity of "
            f"{capacity[shared[0]]}; give 0 there, or several machines with a capacity of 1"
        )
    return setups


def _precedence(raw: Instance, jobs: int) -> dict[str, Any]:
    arcs = np.zeros((2, 0), np.int64) if raw.precedence is None else raw.precedence
    arcs = checks.numbers("precedence", arcs)
    arcs = arcs.reshape(2, 0) if arcs.size == 0 else arcs
    if arcs.ndim != 2 or len(arcs) != 2:
        raise ValueError(
            f"precedence has shape {arcs.shape}; give (2, arcs), the jobs before above the jobs "
            "after them"
        )
    number = arcs.shape[1]
    arcs = checks.integers("precedence", arcs, (2, number), "jobs before above jobs after them")
    if number:
        _check_arcs(arcs, jobs)
    lags = np.zeros(number) if raw.precedence_lags is None else raw.precedence_lags
    lags = checks.floats("precedence_lags", lags, (number,), "one per arc of precedence")
    mend = "give a finite time of at least 0"
    checks.check_times("precedence_lags", lags, True, mend)
    return {"precedence": arcs, "precedence_lags": lags}


def _check_arcs(arcs: IntArray, jobs: int) -> None:
    checks.check_indices("precedence", arcs, jobs, "job")
    pairs = arcs[0] * jobs + arcs[1]
    _, first, counts = np.unique(pairs, return_index=True, return_counts=True)
    if (counts > 1).any():
        before, after = arcs[:, first[counts > 1][0]]
        raise ValueError(
            f"precedence holds the arc from job {before} to job {after} more than once; "
            "give it once, with the largest lag"
        )
    cycle = checks.find_cycle(arcs, jobs)
    if cycle:
        path = " before ".join(f"job {job}" for job in cycle)
        raise ValueError(f"precedence has a cycle, {path}; remove one of its arcs")
