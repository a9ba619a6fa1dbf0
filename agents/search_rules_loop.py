"""Dispatching rules compiled for plans on machines of capacity 1 without precedence.

The same decisions as ``hetsched.agents.rules`` takes on tensors, a hundred times faster, so that
a search can start from many rules; ``tests/agents/test_search_rules.py`` compares the two.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

import numba
import numpy as np

jit = numba.njit(cache=True, nogil=True)

MIN_MIN, MAX_MIN, SUFFERAGE = 0, 1, 2
ENDLESS_SLACK = 1e6  # that of rules_parts, which loads torch


@jit
def append(job, machine, begin, times, free, last, sequences, lengths):
    """Put a job behind what the machine has."""
    sequences[machine, lengths[machine]] = job
    lengths[machine] += 1
    free[machine], last[machine] = begin + times[job, machine], job


@jit
def begin_of(job, machine, release, setups, has_setups, free, last):
    """Start of processing of a job put behind what its machine has."""
    begin = max(free[machine], release[job])
    return begin + setups[last[machine], job, machine] if has_setups else begin


@jit
def list_loop(order, times, release, available, setups, has_setups, sequences, lengths):
    """Jobs in the given order, each on the machine that completes it first."""
    jobs, machines = times.shape
    free, last = available.copy(), np.full(machines, jobs)
    for job in order:
        least, chosen, when = np.inf, -1, 0.0
        for k in range(machines):
            begin = begin_of(job, k, release, setups, has_setups, free, last)
            if begin + times[job, k] < least:
                least, chosen, when = begin + times[job, k], k, begin
        append(job, chosen, when, times, free, last, sequences, lengths)


@jit
def pair_loop(kind, times, release, available, setups, has_setups, sequences, lengths):
    """min-min, max-min and sufferage: the job by its best and second best completion."""
    jobs, machines = times.shape
    free, last = available.copy(), np.full(machines, jobs)
    open_jobs = np.ones(jobs, np.bool_)
    for _ in range(jobs):
        least, chosen, on, when = np.inf, -1, -1, 0.0
        for job in range(jobs):
            if not open_jobs[job]:
                continue
            best, second, where, start = np.inf, np.inf, -1, 0.0
            for k in range(machines):
                begin = begin_of(job, k, release, setups, has_setups, free, last)
                end = begin + times[job, k]
                if end < best:
                    best, second, where, start = end, best, k, begin
                elif end < second:
                    second = end
            key = best
            if kind == MAX_MIN:
                key = -best
            elif kind == SUFFERAGE:
                key = best - second
            if chosen < 0 or key < least:
                least, chosen, on, when = key, job, where, start
        open_jobs[chosen] = False
        append(chosen, on, when, times, free, last, sequences, lengths)


@jit
def index_loop(
    ready_rule, k1, k2, k3, order, times, release, due, weight, available, setups, has_setups,
    sequences, lengths,
):  # fmt: skip
    """ATC, or with ``ready_rule`` ATCS with ready times, behind their earliest-end gate.

    Args:
        order: (machines,) int64, rank of machines that are free at the same time.
    """
    jobs, machines = times.shape
    free, last = available.copy(), np.full(machines, jobs)
    open_jobs = np.ones(jobs, np.bool_)
    fast = np.empty(jobs)
    sequential = True
    for job in range(jobs):
        fast[job] = times[job].min()
        sequential = sequential and release[job] == 0.0
    slack = 1e-9 * fast.mean()  # times closer than this are equal
    latest, place = -np.inf, -1  # last start of work, and the last machine in order with such a job
    off = np.zeros(machines, np.bool_)
    ends, gate = np.empty((jobs, machines)), np.empty(jobs)
    for count in range(jobs, 0, -1):
        if sequential:
            for k in range(machines):
                off[k] = free[k] < latest or (free[k] == latest and order[k] < place)
        total, paid, edges = 0.0, 0.0, 0
        when = np.inf
        for job in range(jobs):
            if not open_jobs[job]:
                continue
            total += fast[job]
            gate[job] = np.inf
            for k in range(machines):
                ends[job, k] = begin_of(job, k, release, setups, has_setups, free, last)
                ends[job, k] += times[job, k]
                if not off[k] and ends[job, k] < gate[job]:
                    gate[job] = ends[job, k]
                if has_setups and times[job, k] < np.inf:
                    paid += setups[last[k], job, k]
                    edges += 1
            for k in range(machines):
                if not off[k] and ends[job, k] < np.inf and ends[job, k] <= gate[job] + slack:
                    now = free[k] if ready_rule else max(free[k], release[job])
                    when = min(when, now)
        if when == np.inf:
            when = 0.0
        acting = machines
        for job in range(jobs):
            if not open_jobs[job]:
                continue
            for k in range(machines):
                if not off[k] and ends[job, k] < np.inf and ends[job, k] <= gate[job] + slack:
                    now = free[k] if ready_rule else max(free[k], release[job])
                    if now <= when + slack and order[k] < acting:
                        acting = order[k]
        mean_p, mean_s = max(total / count, 1e-300), max(paid / max(edges, 1), 1e-300)
        best, chosen, on = -np.inf, -1, -1
        soonest, first, there = np.inf, -1, -1  # where nothing is behind the gate
        for job in range(jobs):
            if not open_jobs[job]:
                continue
            for k in range(machines):
                if ends[job, k] < soonest:
                    soonest, first, there = ends[job, k], job, k
                if order[k] != acting or off[k] or not ends[job, k] <= gate[job] + slack:
                    continue
                if ends[job, k] == np.inf:
                    continue
                ready = max(free[k], release[job])
                if (free[k] if ready_rule else ready) > when + slack:
                    continue
                index = np.log(max(max(weight[job], 1e-300) / times[job, k], 1e-300))
                since = max(ready, when) if ready_rule else when
                spare = (due[job] - times[job, k] - since) / (k1 * mean_p)
                index -= min(max(spare, 0.0), ENDLESS_SLACK)
                if ready_rule:
                    index -= max(ready - when, 0.0) / (k3 * mean_p)
                    if has_setups:
                        index -= setups[last[k], job, k] / mean_s / k2
                if index > best:
                    best, chosen, on = index, job, k
        if chosen < 0:
            chosen, on = first, there
        work = max(free[on], release[chosen])  # start of the set-up or of the job
        if work > latest:
            latest, place = work, order[on]
        elif work == latest:
            place = max(place, order[on])
        open_jobs[chosen] = False
        begin = ends[chosen, on] - times[chosen, on]
        append(chosen, on, begin, times, free, last, sequences, lengths)
