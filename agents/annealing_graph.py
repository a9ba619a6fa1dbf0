"""Simulated annealing for plans with precedence, compiled: job shops, graphs of operators.

A solution is a list of all jobs that respects precedence, and a mode for each: decoded in its
order, every job starts as early as its predecessors and what is before it on its machine allow.
So no move can make a cycle, and every semi-active schedule has such a list.  A move takes a job
to another place of the list that precedence allows, in the same or in another mode; most moved
jobs lie on the path that makes a costly job as late as it is (the critical path, for the
makespan).  The list is decoded anew from the first place that changed, until it is clear that the
move will not be accepted.  Every so often the list is sorted by start times, which changes no
schedule and keeps neighbours in time neighbours in the list.  Metropolis acceptance with geometric
cooling (Kirkpatrick, Gelatt and Vecchi 1983).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetsched.agents.annealing import anneal
from hetsched.envs.objective import TERMS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetsched.agents.annealing_graph_loop import Data
    from hetsched.envs.instance import Instance
    from hetsched.envs.objective import Objective
    from hetsched.envs.schedule import Schedule

HOT, COLD = 1.0, 0.03  # temperatures over what delaying everything by a mean duration costs


def anneal_plan(instance: Instance, objective: Objective, moves: int, seed: int) -> Schedule:
    """The best schedule met, by the loop without precedence where there is none: it is faster.

    Raises:
        ValueError: the instance has shared machines or uncertain durations.
    """
    solve = anneal_graph if instance.precedence.shape[1] else anneal
    return solve(instance, objective, moves, seed)


def can_anneal_graph(instance: Instance) -> bool:
    """Capacity 1 everywhere and known durations."""
    return bool((instance.capacity == 1).all() and instance.actual_times is None)


def anneal_graph(
    instance: Instance, objective: Objective, moves: int, seed: int, start: Schedule | None = None
) -> Schedule:
    """The best schedule met in so many moves.

    Args:
        instance: see :func:`can_anneal_graph`.
        moves: proposals; a few thousand per job are plenty.
        seed: of the proposals.
        start: first solution; by default jobs go, by the longest path behind them or by the
            latest end that keeps all due times, each to the machine that completes it first.

    Raises:
        ValueError: the instance has shared machines or uncertain durations.
    """
    if not can_anneal_graph(instance):
        raise ValueError("annealing needs capacity 1 and no actual_times; use another method")
    from hetsched.agents.annealing_graph_loop import anneal_list, build, decode, empty_course
    from hetsched.agents.exact import timed_again

    data = _data(instance, objective)
    jobs = instance.num_jobs
    best = np.inf
    order, machine_of, time_of = np.arange(jobs), np.zeros(jobs, np.int64), np.zeros(jobs)
    if start is not None:
        order[:] = np.argsort(start.starts, kind="stable")  # durations are positive
        machine_of[:] = instance.mode_machines[start.modes]
        time_of[:] = instance.processing_times[start.modes]
    for ranked in _orders(instance, data) if start is None else ():
        machines, times = machine_of.copy(), time_of.copy()
        build(data, ranked, machines, times)
        course = empty_course(jobs, instance.num_machines)
        cost = decode(data, ranked, machines, times, 0, course)
        if cost < best:
            best, order, machine_of, time_of = cost, ranked, machines, times
    unit = _unit(instance, objective)
    rng = np.random.default_rng(seed)
    anneal_list(data, order, machine_of, time_of, moves, rng, HOT * unit, COLD * unit)
    place = np.empty(jobs, np.int64)
    place[order] = np.arange(jobs)
    return timed_again(instance, _modes(instance, machine_of, time_of), place)


def _unit(instance: Instance, objective: Objective) -> float:
    """Cost of delaying the end of the schedule and one job by the mean fastest duration."""
    weight = objective.weighted_tardiness + objective.weighted_completion
    per_time = (
        objective.makespan
        + weight * instance.weights.mean()
        + objective.flow_time
        + objective.machine_tardiness * instance.machine_weights.mean()
        + objective.setup_time
    )
    return max(float(per_time * instance.matrix().min(axis=1).mean()), 1e-300)


def _data(instance: Instance, objective: Objective) -> Data:
    from hetsched.agents.annealing_graph_loop import Data

    by_time = np.lexsort((instance.processing_times, instance.mode_jobs))
    first, after = instance.precedence
    by_job, by_successor = np.argsort(first, kind="stable"), np.argsort(after, kind="stable")
    boundaries = np.arange(instance.num_jobs + 1)
    setups = instance.setup_times
    return Data(
        mode_first=np.searchsorted(instance.mode_jobs, boundaries),
        mode_machine=instance.mode_machines[by_time],
        mode_time=instance.processing_times[by_time],
        before_first=np.searchsorted(after[by_successor], boundaries),
        before=first[by_successor],
        lag=instance.precedence_lags[by_successor],
        after_first=np.searchsorted(first[by_job], boundaries),
        after=after[by_job],
        release=instance.release_times.copy(),  # all writable: one compilation serves all
        due=instance.due_times.copy(),
        weight=instance.weights.copy(),
        available=instance.machine_available.copy(),
        machine_due=instance.machine_due_times.copy(),
        machine_weight=instance.machine_weights.copy(),
        setups=np.zeros((1, 1, 1)) if setups is None else setups.copy(),
        has_setups=setups is not None,
        factors=np.array([getattr(objective, term) for term in TERMS], np.float64),
    )


def _orders(instance: Instance, data: Data) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lists that respect precedence: by longest path behind, and by latest end."""
    jobs = instance.num_jobs
    fastest = instance.matrix().min(axis=1)
    depth, behind, latest = np.zeros(jobs, np.int64), fastest.copy(), instance.due_times.copy()
    waiting = np.diff(data.before_first)
    sequence = np.flatnonzero(waiting == 0).tolist()
    for job in sequence:  # grows while it is walked: a topological order
        for after in data.after[data.after_first[job] : data.after_first[job + 1]].tolist():
            depth[after] = max(depth[after], depth[job] + 1)
            waiting[after] -= 1
            if waiting[after] == 0:
                sequence.append(after)
    for job in reversed(sequence):
        for after in data.after[data.after_first[job] : data.after_first[job + 1]].tolist():
            behind[job] = max(behind[job], fastest[job] + behind[after])
            latest[job] = min(latest[job], latest[after] - fastest[after])
    return np.lexsort((depth, -behind)), np.lexsort((depth, latest))


def _modes(
    instance: Instance, machine_of: NDArray[np.int64], time_of: NDArray[np.float64]
) -> NDArray[np.int64]:
    """(jobs,): the first mode of each job with that machine and duration."""
    fits = (instance.mode_machines == machine_of[instance.mode_jobs]) & (
        instance.processing_times == time_of[instance.mode_jobs]
    )
    modes = np.zeros(instance.num_jobs, np.int64)
    for mode in np.flatnonzero(fits)[::-1]:
        modes[instance.mode_jobs[mode]] = mode
    return modes
