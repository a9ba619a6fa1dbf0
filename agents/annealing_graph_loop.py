"""The compiled inner loop of annealing with precedence; imported only when it is used."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

TIDY = 500  # accepted moves between two sortings of the list by start times


class Data(NamedTuple):
    """An instance in arrays; lists by job are rows ``first[job]:first[job + 1]`` of flat ones.

    Attributes:
        mode_first: (jobs + 1,), and modes of each job, fastest first: ``mode_machine``,
            ``mode_time``.
        before_first: (jobs + 1,), and predecessors ``before`` with their ``lag``.
        after_first: (jobs + 1,), and successors ``after``.
        release, due, weight: (jobs,); available, machine_due, machine_weight: (machines,).
        setups: (jobs + 1, jobs, machines), meaningless unless ``has_setups``.
        factors: (6,), of the terms of the objective in their order.
    """

    mode_first: np.ndarray
    mode_machine: np.ndarray
    mode_time: np.ndarray
    before_first: np.ndarray
    before: np.ndarray
    lag: np.ndarray
    after_first: np.ndarray
    after: np.ndarray
    release: np.ndarray
    due: np.ndarray
    weight: np.ndarray
    available: np.ndarray
    machine_due: np.ndarray
    machine_weight: np.ndarray
    setups: np.ndarray
    has_setups: bool
    factors: np.ndarray


class Course(NamedTuple):
    """The schedule of a list of jobs, and what decoding had reached before each place of it.

    Attributes:
        starts, ends: (jobs,) times; cause: (jobs,) job that the start had to wait for, or -1.
        free: (jobs + 1, machines); last: (jobs + 1, machines) int64, last job, ``jobs`` for none.
        cost: (jobs + 1,) of all terms but the makespan and the machines' tardiness; latest:
            (jobs + 1,) end so far.
    """

    starts: np.ndarray
    ends: np.ndarray
    cause: np.ndarray
    free: np.ndarray
    last: np.ndarray
    cost: np.ndarray
    latest: np.ndarray


@numba.njit(cache=True)
def empty_course(jobs, machines):
    return Course(
        np.zeros(jobs),
        np.zeros(jobs),
        np.full(jobs, -1),
        np.zeros((jobs + 1, machines)),
        np.full((jobs + 1, machines), jobs),
        np.zeros(jobs + 1),
        np.zeros(jobs + 1),
    )


@numba.njit(cache=True)
def ready_time(data, job, machine, ends, machine_of):
    """(time, cause): release or predecessors of a job that would run on a machine."""
    ready, cause = data.release[job], -1
    for arc in range(data.before_first[job], data.before_first[job + 1]):
        first = data.before[arc]
        end = ends[first]
        if machine_of[first] != machine:
            end += data.lag[arc]
        if end > ready:
            ready, cause = end, first
    return ready, cause


@numba.njit(cache=True)
def job_cost(data, job, end, setup):
    """All terms that belong to one job."""
    cost = data.factors[5] * setup
    if end > data.due[job]:
        cost += data.factors[1] * data.weight[job] * (end - data.due[job])
    return (
        cost
        + data.factors[3] * data.weight[job] * end
        + data.factors[4] * (end - data.release[job])
    )


@numba.njit(cache=True)
def machines_cost(data, free, latest):
    """Makespan and machine tardiness, once all jobs have their place."""
    cost = 0.0
    for machine in range(len(free)):
        latest = max(latest, free[machine])
        if free[machine] > data.machine_due[machine]:
            late = free[machine] - data.machine_due[machine]
            cost += data.factors[2] * data.machine_weight[machine] * late
    return cost + data.factors[0] * latest


@numba.njit(cache=True)
def decode(data, order, machine_of, time_of, place, course):
    """Time the jobs from a place of the list on, keeping what was reached; the whole cost."""
    jobs, machines = len(order), len(data.available)
    if place == 0:
        course.free[0] = data.available
    for at in range(place, jobs):
        job = order[at]
        machine = machine_of[job]
        ready, cause = ready_time(data, job, machine, course.ends, machine_of)
        free, last, setup = course.free[at, machine], course.last[at, machine], 0.0
        if free >= ready and last < jobs:
            cause = last
        if data.has_setups:
            setup = data.setups[last, job, machine]
        start = max(free, ready) + setup
        end = start + time_of[job]
        course.starts[job], course.ends[job], course.cause[job] = start, end, cause
        for other in range(machines):
            course.free[at + 1, other] = course.free[at, other]
            course.last[at + 1, other] = course.last[at, other]
        course.free[at + 1, machine], course.last[at + 1, machine] = end, job
        course.cost[at + 1] = course.cost[at] + job_cost(data, job, end, setup)
        course.latest[at + 1] = max(course.latest[at], end)
    return course.cost[jobs] + machines_cost(data, course.free[jobs], course.latest[jobs])


@numba.njit(cache=True)
def attempt(data, order, machine_of, time_of, place, course, free, last, ends, limit):
    """The cost with the list changed from a place on; infinity once it must pass the limit."""
    jobs = len(order)
    free[:] = course.free[place]
    last[:] = course.last[place]
    cost, latest = course.cost[place], course.latest[place]
    for at in range(place, jobs):
        job = order[at]
        machine = machine_of[job]
        ready, _ = ready_time(data, job, machine, ends, machine_of)
        setup = 0.0
        if data.has_setups:
            setup = data.setups[last[machine], job, machine]
        end = max(free[machine], ready) + setup + time_of[job]
        ends[job], free[machine], last[machine] = end, end, job
        cost += job_cost(data, job, end, setup)
        latest = max(latest, end)
        if cost + data.factors[0] * latest > limit:
            return np.inf
    return cost + machines_cost(data, free, latest)


@numba.njit(cache=True)
def build(data, order, machine_of, time_of):
    """Give every job of the list, in turn, the mode that completes it first."""
    jobs = len(order)
    free, last, ends = data.available.copy(), np.full(len(data.available), jobs), np.zeros(jobs)
    for job in order:
        best = np.inf
        for mode in range(data.mode_first[job], data.mode_first[job + 1]):
            machine = data.mode_machine[mode]
            ready, _ = ready_time(data, job, machine, ends, machine_of)
            end = max(free[machine], ready) + data.mode_time[mode]
            if data.has_setups:
                end += data.setups[last[machine], job, machine]
            if end < best:
                best, machine_of[job], time_of[job] = end, machine, data.mode_time[mode]
        free[machine_of[job]], last[machine_of[job]], ends[job] = best, job, best


@numba.njit(cache=True)
def culprit(data, course, jobs, rng):
    """A job on the path that makes some costly job as late as it is, evenly along that path."""
    costly = int(rng.random() * jobs)
    if data.factors[0] > 0.0:
        for job in range(jobs):
            if course.ends[job] > course.ends[costly]:
                costly = job
    else:
        for _ in range(8):  # a tardy one, where there are some
            if course.ends[costly] > data.due[costly]:
                break
            costly = int(rng.random() * jobs)
    chosen, job, length = costly, costly, 1
    while course.cause[job] >= 0:
        job = course.cause[job]
        length += 1
        if rng.random() * length < 1.0:
            chosen = job
    return chosen


@numba.njit(cache=True)
def new_place(data, job, at, position, jobs, rng):
    """Another place of the list that precedence allows for the job; often one close by."""
    low, high = 0, jobs - 1
    for arc in range(data.before_first[job], data.before_first[job + 1]):
        low = max(low, position[data.before[arc]] + 1)
    for arc in range(data.after_first[job], data.after_first[job + 1]):
        high = min(high, position[data.after[arc]] - 1)
    draw = rng.random()
    if rng.random() < 0.5:
        draw = draw * draw * draw
    if rng.random() < 0.5:
        return at - int(draw * (at - low + 1))
    return at + int(draw * (high - at + 1))


@numba.njit(cache=True)
def shift(order, position, at, to):
    """Take the job at one place of the list to another; those between move up."""
    job, step = order[at], 1 if to > at else -1
    while at != to:
        order[at] = order[at + step]
        position[order[at]] = at
        at += step
    order[to] = job
    position[job] = to


@numba.njit(cache=True, nogil=True)
def anneal_list(data, order, machine_of, time_of, moves, rng, hot, cold):
    """Improve ``order``, ``machine_of`` and ``time_of`` (jobs,) in place; returns the cost.

    The list must respect precedence.  ``rng`` is a numpy Generator; ``hot`` and ``cold`` are the
    first and the last temperature.
    """
    jobs, machines = len(order), len(data.available)
    position = np.empty(jobs, np.int64)
    for at in range(jobs):
        position[order[at]] = at
    course = empty_course(jobs, machines)
    current = decode(data, order, machine_of, time_of, 0, course)
    free, last, ends = np.zeros(machines), np.zeros(machines, np.int64), course.ends.copy()
    best = current
    best_order, best_machine, best_time = order.copy(), machine_of.copy(), time_of.copy()
    cooling = (cold / hot) ** (1.0 / max(moves, 1))
    temperature, accepted = hot, 0
    for _ in range(moves):
        temperature *= cooling
        job = int(rng.random() * jobs)
        if rng.random() < 0.7:
            job = culprit(data, course, jobs, rng)
        at, old_machine, old_time = position[job], machine_of[job], time_of[job]
        first, count = data.mode_first[job], data.mode_first[job + 1] - data.mode_first[job]
        if count > 1 and rng.random() < 0.5:
            draw = rng.random()
            mode = first + int(draw * draw * count)  # fast ones more often
            machine_of[job], time_of[job] = data.mode_machine[mode], data.mode_time[mode]
        to = new_place(data, job, at, position, jobs, rng)
        same = machine_of[job] == old_machine and time_of[job] == old_time
        # Passing jobs of other machines only changes the list and no schedule: now and then is
        # enough, as it may allow what precedence in the list forbade.
        if same and rng.random() < 0.9:
            crossed = False
            for place in range(min(at, to), max(at, to) + 1):
                other = order[place]
                crossed |= other != job and machine_of[other] == old_machine
            if not crossed:
                continue
        shift(order, position, at, to)
        place = min(at, to)
        limit = current - temperature * np.log(1.0 - rng.random())
        cost = attempt(
            data, order, machine_of, time_of, place, course, free, last, ends, limit * (1 + 1e-12)
        )
        if cost > limit:
            shift(order, position, to, at)
            machine_of[job], time_of[job] = old_machine, old_time
            for behind in range(place, jobs):
                ends[order[behind]] = course.ends[order[behind]]
            continue
        current = decode(data, order, machine_of, time_of, place, course)
        accepted += 1
        if accepted % TIDY == 0:
            order[:] = order[np.argsort(course.starts[order], kind="mergesort")]
            for index in range(jobs):
                position[order[index]] = index
            current = decode(data, order, machine_of, time_of, 0, course)
        ends[:] = course.ends
        if current < best * (1.0 - 1e-12):  # rounding is no improvement
            best = current
            best_order[:], best_machine[:], best_time[:] = order, machine_of, time_of
    order[:], machine_of[:], time_of[:] = best_order, best_machine, best_time
    return best
