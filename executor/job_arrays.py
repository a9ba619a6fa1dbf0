"""The jobs of a live queue as arrays that grow, and which of many a policy is shown.

A queue changes by one job at a time, and an event must not cost more than a few passes over
arrays: nothing here is built anew when a job comes, starts or ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetsched.executor.queue import Job

WAITING, RUNNING, OVER = 0, 1, 2

Array = np.ndarray[Any, Any]


class Column:
    """An array that grows at its end; `values` is a view of what is there."""

    def __init__(self, kind: type, width: tuple[int, ...] = ()) -> None:
        self._store: Array = np.zeros((16, *width), kind)
        self.values: Array = self._store[:0]

    def extend(self, more: Any) -> None:
        """Append rows."""
        count = len(self.values)
        needed = count + len(more)
        if needed > len(self._store):
            bigger = np.zeros((max(needed, 2 * len(self._store)), *self._store.shape[1:]))
            bigger = bigger.astype(self._store.dtype)
            bigger[:count] = self.values
            self._store = bigger
        self._store[count:needed] = more
        self.values = self._store[:needed]

    def keep(self, rows: Array) -> None:
        """Drop all but the rows (n,) given by index."""
        self._store = self.values[rows].copy()
        self.values = self._store[: len(rows)]


class JobArrays:
    """One row per job in `job`, one row per mode in `mode`, modes in the order of their jobs.

    Columns of `job`: status, release, due, weight, priority, missing (predecessors not done), first
    (its first mode), count (of modes), shortest (seconds of its fastest mode). Columns of `mode`:
    job, machine, said (seconds, as the queue says), seconds (as is believed), demand, allowed, and
    group (modes of which one run tells the same).
    """

    def __init__(self) -> None:
        self._job = {
            "status": Column(np.int8),
            "release": Column(float),
            "due": Column(float),
            "weight": Column(float),
            "priority": Column(np.int64),
            "missing": Column(np.int64),
            "first": Column(np.int64),
            "count": Column(np.int64),
            "shortest": Column(float),
        }
        self._mode = {
            "job": Column(np.int64),
            "machine": Column(np.int64),
            "said": Column(float),
            "seconds": Column(float),
            "group": Column(np.int64),
            "demand": Column(np.int64),
            "allowed": Column(bool),
        }

    def __len__(self) -> int:
        return len(self._job["status"].values)

    def job(self, name: str) -> Array:
        """(jobs,) a column of the jobs; writing to it changes them."""
        return self._job[name].values

    def mode(self, name: str) -> Array:
        """(modes,) a column of the modes; writing to it changes them."""
        return self._mode[name].values

    def modes_of(self, job: int) -> slice:
        """Where a job's modes are."""
        first = int(self._job["first"].values[job])
        return slice(first, first + int(self._job["count"].values[job]))

    def add(self, jobs: Sequence[Job], machine_at: dict[str, int]) -> None:
        """Append waiting jobs without predecessors (the caller counts these)."""
        before, modes_before = len(self), len(self._mode["job"].values)
        modes = [mode for job in jobs for mode in job.modes]
        counts = np.array([len(job.modes) for job in jobs], np.int64)
        rows: dict[str, Any] = {
            "status": np.full(len(jobs), WAITING),
            "release": [job.release for job in jobs],
            "due": [job.due for job in jobs],
            "weight": [job.weight for job in jobs],
            "priority": [job.priority for job in jobs],
            "missing": np.zeros(len(jobs)),
            "first": modes_before + np.concatenate([[0], np.cumsum(counts)[:-1]]),
            "count": counts,
            "shortest": [min(mode.seconds for mode in job.modes) for job in jobs],
        }
        for name, row in rows.items():
            self._job[name].extend(row)
        rows = {
            "job": before + np.repeat(np.arange(len(jobs)), counts),
            "machine": [machine_at[mode.machine] for mode in modes],
            "said": [mode.seconds for mode in modes],
            "seconds": [mode.seconds for mode in modes],
            "group": np.zeros(len(modes)),
            "demand": [mode.demand for mode in modes],
            "allowed": np.ones(len(modes), bool),
        }
        for name, row in rows.items():
            self._mode[name].extend(row)

    def correct(self, factors: Array) -> None:
        """Believe in the said seconds times the factor (groups,) of their group."""
        seconds = self.mode("seconds")
        seconds[:] = self.mode("said") * factors[self.mode("group")]
        self.job("shortest")[:] = np.minimum.reduceat(seconds, self.job("first"))

    def keep(self, jobs: Array) -> None:
        """Drop all but the jobs (n,) given by ascending index."""
        position = np.full(len(self), -1)
        position[jobs] = np.arange(len(jobs))
        modes = np.flatnonzero(position[self.mode("job")] >= 0)
        for column in self._job.values():
            column.keep(jobs)
        for column in self._mode.values():
            column.keep(modes)
        self.mode("job")[:] = position[self.mode("job")]
        count = self.job("count")
        self.job("first")[:] = np.cumsum(count) - count

    def most_relevant(self, jobs: Array, modes: Array, now: float, limit: int) -> Array:
        """At most `limit` of the waiting jobs, so that what a policy may look for is among them.

        In turn: the first in the queue, the shortest, those of the highest weight for their
        length, the most urgent, and for every machine the shortest there and those it suits best
        in comparison. These are the orders by which dispatching rules rank; a rule that follows
        one of them decides as if it saw all.

        Args:
            jobs: (n,) indices of those that could start now, ascending.
            modes: (m,) indices of their modes that are open now.
            now: the clock.
            limit: number of jobs, at least 1.

        Returns:
            (limit,) indices, ascending; all of them if there are no more.
        """
        if len(jobs) <= limit:
            return jobs
        shortest, due = self.job("shortest")[jobs], self.job("due")[jobs]
        weight = self.job("weight")[jobs]
        orders = [jobs, *(jobs[_smallest(key, limit)] for key in (shortest, -weight / shortest))]
        if np.isfinite(due).any():
            orders.append(jobs[_smallest(due, limit)])
            slack = np.maximum(due - shortest - now, 0.0)
            orders.append(jobs[_smallest(slack - shortest * weight * 1e-9, limit)])
        machine, owner, seconds = (
            self.mode("machine")[modes], self.mode("job")[modes], self.mode("seconds")[modes],
        )  # fmt: skip
        relative = seconds / self.job("shortest")[owner]
        for one in np.unique(machine):
            here = np.flatnonzero(machine == one)
            orders.append(owner[here[_smallest(seconds[here], limit)]])
            orders.append(owner[here[_smallest(relative[here], limit)]])
        taken = np.zeros(len(self), bool)
        share = max(1, limit // len(orders))
        left = limit
        while left:  # every order has its share, and what others left over goes round again
            for order in orders:
                new = order[~taken[order]][: min(share, left)]
                taken[new] = True
                left -= len(set(new.tolist()))  # a job may have two modes on a machine
        return np.flatnonzero(taken)


def _smallest(key: Array, count: int) -> Array:
    """Indices of the `count` smallest values, ascending, the first of equals first."""
    if len(key) <= count:
        return np.argsort(key, kind="stable")
    edge = np.partition(key, count - 1)[count - 1]
    inside = np.flatnonzero(key <= edge)
    return inside[np.argsort(key[inside], kind="stable")][:count]
