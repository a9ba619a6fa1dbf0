"""Simulated annealing over machine sequences, compiled; a strong reference and a teacher.

Covers plans on machines of capacity 1 without precedence: a solution is one sequence of jobs per
machine, a job starts at max(machine free, release) + set-up.  Moves take a job to another place
(on any machine) or exchange two jobs; only the one or two machines touched are evaluated anew.
Metropolis acceptance with geometric cooling (Kirkpatrick, Gelatt & Vecchi 1983), temperatures
relative to the cost of the first solution.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hetsched.envs.instance import Instance
    from hetsched.envs.objective import Objective
    from hetsched.envs.schedule import Schedule

HOT, COLD = 0.05, 0.0002  # temperatures over the cost of the start


def can_anneal(instance: Instance) -> bool:
    """Capacity 1 everywhere, no precedence, known durations."""
    return bool(
        (instance.capacity == 1).all()
        and instance.precedence.shape[1] == 0
        and instance.actual_times is None
    )


def anneal(
    instance: Instance, objective: Objective, moves: int, seed: int, start: Schedule | None = None
) -> Schedule:
    """The best schedule met in so many moves.

    Args:
        instance: see :func:`can_anneal`.
        moves: proposals; a few thousand per job are plenty.
        seed: of the proposals.
        start: first solution; by default every job, in order of its fastest time, goes to the
            machine that completes it first.

    Raises:
        ValueError: the instance has precedence, shared machines or uncertain durations.
    """
    from hetsched.envs.schedule import Schedule

    if not can_anneal(instance):
        raise ValueError(
            "annealing needs capacity 1, no precedence and no actual_times; use another method"
        )
    times, modes = _matrix(instance)
    jobs, machines = times.shape
    sequences = np.full((machines, jobs), -1, np.int64)
    lengths = np.zeros(machines, np.int64)
    if start is None:
        _greedy(instance, times, sequences, lengths)
    else:
        machine = instance.mode_machines[start.modes]
        for job in np.argsort(start.starts, kind="stable"):
            sequences[machine[job], lengths[machine[job]]] = job
            lengths[machine[job]] += 1
    no_setups = np.zeros((1, 1, 1))
    no_setups.setflags(write=False)  # as the arrays of an instance, or numba compiles it all twice
    setups = instance.setup_times
    terms = ("makespan", "weighted_tardiness", "machine_tardiness", "weighted_completion",
             "flow_time", "setup_time")  # fmt: skip
    factors = np.array([getattr(objective, term) for term in terms], np.float64)
    _compiled()(
        times,
        instance.release_times,
        instance.due_times,
        instance.weights,
        instance.machine_available,
        instance.machine_due_times,
        instance.machine_weights,
        no_setups if setups is None else setups,
        setups is not None,
        factors,
        sequences,
        lengths,
        moves,
        seed,
        HOT,
        COLD,
    )
    return _schedule(Schedule, instance, times, modes, sequences, lengths)


def _matrix(instance: Instance) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(jobs, machines): fastest duration, infinity where not eligible, and its mode."""
    shape = (instance.num_jobs, instance.num_machines)
    times, modes = np.full(shape, np.inf), np.full(shape, -1, np.int64)
    for mode in np.argsort(-instance.processing_times, kind="stable"):  # the fastest comes last
        at = instance.mode_jobs[mode], instance.mode_machines[mode]
        times[at], modes[at] = instance.processing_times[mode], mode
    return times, modes


def _greedy(
    instance: Instance,
    times: NDArray[np.float64],
    sequences: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    """Earliest completion, jobs by increasing fastest time; fills the sequences in place."""
    free = instance.machine_available.copy()
    for job in np.argsort(times.min(axis=1), kind="stable"):
        ends = np.maximum(free, instance.release_times[job]) + times[job]
        machine = int(ends.argmin())
        free[machine] = ends[machine]
        sequences[machine, lengths[machine]] = job
        lengths[machine] += 1


def _schedule(
    make: type[Schedule],
    instance: Instance,
    times: NDArray[np.float64],
    modes: NDArray[np.int64],
    sequences: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> Schedule:
    jobs, machines = times.shape
    chosen = np.zeros(jobs, np.int64)
    starts, ends, paid = np.zeros(jobs), np.zeros(jobs), np.zeros(jobs)
    for machine in range(machines):
        free, last = instance.machine_available[machine], jobs
        for job in sequences[machine, : lengths[machine]]:
            if instance.setup_times is not None:
                paid[job] = instance.setup_times[last, job, machine]
            starts[job] = max(free, instance.release_times[job]) + paid[job]
            free = ends[job] = starts[job] + times[job, machine]
            chosen[job], last = modes[job, machine], job
    return make(modes=chosen, starts=starts, ends=ends, setups=paid)


@cache
def _compiled() -> Any:
    """The inner loop; compiled at first use and kept on disk by numba."""
    from hetsched.agents.annealing_loop import anneal_loop

    return anneal_loop
