"""The live half of a queue: which jobs are left, which run, and the state a policy decides on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hetsched.envs.arrivals import Arrivals
from hetsched.envs.instance import Instance
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.executor.job_arrays import OVER, RUNNING, WAITING, Array, Column, JobArrays
from hetsched.executor.view import Choice, View
from hetsched.executor.waiting import Held, why_waiting

if TYPE_CHECKING:
    from hetsched.envs.objective import Objective
    from hetsched.executor.protocol import Machine
    from hetsched.executor.queue import Job

WINDOW = 4096
"""Modes that a policy is shown at most: what a network scores in some 20 ms on one core."""
COMPACT_ABOVE = 4096  # jobs that are over are dropped when there are more, and more than others


class Backlog:
    """The unfinished jobs of a queue.

    A job is waiting, running, or over.

    Args:
        machines: in the order in which a policy sees them.
        objective: what policies are told to minimise.
        window: modes that a policy is shown at most, of all waiting jobs together. Where there are
            more, see `JobArrays.most_relevant`.

    Attributes:
        jobs: those not over, by name, in the order of the queue.
        running: name -> mode, start; in order of start.
        closed: machines that are given nothing now.
    """

    def __init__(
        self, machines: Sequence[Machine], objective: Objective, window: int = WINDOW
    ) -> None:
        self.machines = tuple(machines)
        self.objective = objective
        self.window = window
        self.jobs: dict[str, Job] = {}
        self.running: dict[str, tuple[int, float]] = {}
        self.closed: frozenset[str] = frozenset()
        self._machine_at = {machine.name: at for at, machine in enumerate(machines)}
        self._capacity = np.array([machine.capacity for machine in machines])
        self._arrays = JobArrays()
        self._index: dict[str, int] = {}
        self._names: list[str] = []
        self._before: dict[int, list[int]] = {}  # job -> its predecessors that are not over
        self._after: dict[str, list[str]] = {}  # job -> those that come after it
        self._groups: dict[tuple[str, str, int], int] = {}  # model, machine type, units
        self._arrivals = Column(float, (2 + 3 * len(self.machines),))  # rows as Arrivals sums them
        self._gone: tuple[Array, float, float] | None = None  # the same of jobs dropped since

    @property
    def waiting(self) -> list[str]:
        """The names of the waiting jobs, in the order of the queue."""
        at = np.flatnonzero(self._arrays.job("status") == WAITING)
        return [self._names[one] for one in at.tolist()]

    @property
    def num_waiting(self) -> int:
        """How many jobs wait."""
        return int((self._arrays.job("status") == WAITING).sum())

    def is_waiting(self, name: str) -> bool:
        """Whether a job waits."""
        return name in self._index and name in self.jobs and name not in self.running

    def add(self, jobs: Iterable[Job], is_done: Callable[[str], bool] = lambda name: False) -> None:
        """Append waiting jobs to the queue.

        Args:
            jobs: with new names, for these machines.
            is_done: of a predecessor that is not here.

        Raises:
            ValueError: a predecessor is neither here nor done.
        """
        jobs = tuple(jobs)
        if not jobs:
            return
        start = len(self._arrays)
        self._arrays.add(jobs, self._machine_at)
        for at, job in enumerate(jobs, start):
            self.jobs[job.name] = job
            self._index[job.name] = at
            self._names.append(job.name)
        types = {machine.name: machine.type for machine in self.machines}
        first = self._arrays.modes_of(start).start
        self._arrays.mode("group")[first:] = [
            self._groups.setdefault((job.model, types[one.machine], one.demand), len(self._groups))
            for job in jobs
            for one in job.modes
        ]
        missing = self._arrays.job("missing")
        for at, job in enumerate(jobs, start):
            for before in set(job.after):
                if before in self.jobs:
                    self._after.setdefault(before, []).append(job.name)
                    self._before.setdefault(at, []).append(self._index[before])
                    missing[at] += 1
                elif not is_done(before):
                    raise ValueError(f"job {job.name!r} comes after {before!r}, which is not here")
        everything = np.arange(start, len(self._arrays))
        modes = np.arange(first, len(self._arrays.mode("job")))
        whole = Problem.from_instances([self._instance(everything, modes)])
        self._arrivals.extend(whole.statics.arrival[0].numpy())
        self._compact()

    def next_release(self, now: float) -> float:
        """The first release of a waiting job after now; infinity if there is none."""
        release = self._arrays.job("release")
        ahead = release[(self._arrays.job("status") == WAITING) & (release > now)]
        return float(ahead.min()) if len(ahead) else math.inf

    # ---- what happens to jobs ------------------------------------------------------------------

    def started(self, choice: Choice, at: float) -> None:
        """Note that a waiting job runs."""
        self._arrays.job("status")[self._index[choice.job]] = RUNNING
        self.running[choice.job] = (choice.mode, at)

    def again(self, name: str) -> None:
        """Note that a running job has ended and waits again, at its old place."""
        del self.running[name]
        self._arrays.job("status")[self._index[name]] = WAITING

    def over(self, name: str, done: bool) -> list[str]:
        """Note that a job is over; returns the waiting jobs that can never run because of it."""
        self.running.pop(name, None)
        self._arrays.job("status")[self._index[name]] = OVER
        del self.jobs[name]
        followers = [one for one in self._after.pop(name, []) if one in self.jobs]
        if not done:
            return followers
        for one in followers:
            self._arrays.job("missing")[self._index[one]] -= 1
            self._before[self._index[one]].remove(self._index[name])
        return []

    def change(self, job: Job) -> None:
        """Replace a job by one that differs in weight, priority, memory or demands."""
        at = self._index[job.name]
        self.jobs[job.name] = job
        self._arrays.job("weight")[at] = job.weight
        self._arrays.job("priority")[at] = job.priority
        self._arrays.mode("demand")[self._arrays.modes_of(at)] = [one.demand for one in job.modes]

    def correct(self, factor: Callable[[str, str, int], float]) -> None:
        """Expect other durations: what was said times factor(model, machine type, units).

        Jobs without a model are one of a kind, and share the factor of a model nobody has seen.
        """
        if len(self._arrays):
            self._arrays.correct(np.array([factor(*group) for group in self._groups]))

    def expected(self, choice: Choice) -> float:
        """How long a job is believed to take in a mode."""
        modes = self._arrays.modes_of(self._index[choice.job])
        return float(self._arrays.mode("seconds")[modes.start + choice.mode])

    def allow(self, name: str, modes: Sequence[bool]) -> None:
        """Say in which of its modes, in their order, a job may run from now on."""
        self._arrays.mode("allowed")[self._arrays.modes_of(self._index[name])] = modes

    def allowed(self, name: str) -> list[bool]:
        """In which of its modes a job may run."""
        where = self._arrays.modes_of(self._index[name])
        allowed: list[bool] = self._arrays.mode("allowed")[where].tolist()
        return allowed

    # ---- what a policy sees --------------------------------------------------------------------

    def view(self, now: float) -> View | None:
        """The state at a moment, in seconds on the queue's clock; None: nothing to decide on."""
        arrays = self._arrays
        waits = arrays.job("status") == WAITING
        open_modes = np.flatnonzero(self._open_modes(waits, now))
        shown = np.zeros(len(arrays), bool)
        shown[arrays.mode("job")[open_modes]] = True
        limit = max(1, self.window // max(1, len(self.machines)))
        if int(shown.sum()) > limit:
            ready = shown & (arrays.job("release") <= now) & (arrays.job("missing") == 0)
            modes = open_modes[ready[arrays.mode("job")[open_modes]]]
            jobs = arrays.most_relevant(np.flatnonzero(ready), modes, now, limit)
            shown = np.zeros(len(arrays), bool)
            shown[jobs] = True
        elif int(shown.sum()) < int(waits.sum()):
            self._hide_followers(shown)
        if not shown.any():
            return None
        kept = np.zeros(len(arrays.mode("job")), bool)
        kept[open_modes[shown[arrays.mode("job")[open_modes]]]] = True
        runs = [(self._index[name], mode, start) for name, (mode, start) in self.running.items()]
        for job, mode, _ in runs:  # it has no choice any more
            kept[arrays.modes_of(job).start + mode] = True
        left = shown.copy()
        left[[job for job, _, _ in runs]] = True
        jobs, modes = np.flatnonzero(left), np.flatnonzero(kept)
        problem = Problem.from_instances([self._instance(jobs, modes)])
        position = np.cumsum(left) - 1  # (jobs,) index among those left
        running = []
        for job, _, start in runs:
            slot = int(problem.mode_mask[0, position[job]].int().argmax())  # its only one
            running.append((int(position[job]), slot, start))
        past = self._past(problem, (arrays.job("release") <= now) & ~shown)
        state = State.resume(problem, self.objective, now, running, past)
        own = modes - arrays.job("first")[arrays.mode("job")[modes]]
        return View(state, [self._names[job] for job in jobs], own, int(shown.sum()))

    def _hide_followers(self, shown: Array) -> None:
        """What comes after a job that is out of sight must be out of sight too."""
        runs = [self._index[name] for name in self.running]
        hidden = True
        while hidden:
            hidden = False
            for job, before in self._before.items():
                if shown[job] and any(not shown[one] and one not in runs for one in before):
                    shown[job] = False
                    hidden = True

    def _open_modes(self, waits: Array, now: float) -> Array:
        """(modes,) bool: of waiting jobs, allowed, and not kept free for a higher priority."""
        arrays = self._arrays
        job, machine = arrays.mode("job"), arrays.mode("machine")
        is_open = waits[job] & arrays.mode("allowed")
        if self.closed:
            closed = np.array([one.name in self.closed for one in self.machines])
            is_open &= ~closed[machine]
        priority = arrays.job("priority")
        waiting = priority[waits]
        if len(waiting) and waiting.min() != waiting.max():
            ready = (arrays.job("release") <= now) & (arrays.job("missing") == 0)
            claims = is_open & ready[job]
            highest = np.full(len(self.machines), waiting.min())
            np.maximum.at(highest, machine[claims], priority[job[claims]])
            is_open &= priority[job] >= highest[machine]
        return is_open

    def _instance(self, jobs: Array, modes: Array) -> Instance:
        """Of jobs (n,) and their modes (m,) by ascending index."""
        arrays = self._arrays
        position = np.full(len(arrays), -1)
        position[jobs] = np.arange(len(jobs))
        arcs = []
        if self._before:  # a predecessor that is over, or out of sight, is no arc
            for job in jobs.tolist():
                arcs += [(before, job) for before in self._before.get(job, ())]
        pairs = position[np.array(sorted(arcs), dtype=np.int64).reshape(-1, 2).T]  # (2, arcs)
        return Instance(
            num_jobs=len(jobs),
            num_machines=len(self.machines),
            mode_jobs=position[arrays.mode("job")[modes]],
            mode_machines=arrays.mode("machine")[modes],
            processing_times=arrays.mode("seconds")[modes],
            demand=arrays.mode("demand")[modes],
            release_times=arrays.job("release")[jobs],
            due_times=np.maximum(arrays.job("due")[jobs], 0.0),  # overdue from the start: as at 0
            weights=arrays.job("weight")[jobs],
            capacity=self._capacity,
            precedence=pairs[:, (pairs >= 0).all(axis=0)],
            job_names=tuple(self._names[job] for job in jobs.tolist()),
            machine_names=tuple(self._machine_at),
        )

    def _past(self, problem: Problem, arrived: Array) -> Arrivals:
        """Of the jobs (jobs,) bool, and of those that were dropped."""
        release = self._arrays.job("release")[arrived]
        sums = arrived.astype(float) @ self._arrivals.values
        first = float(release.min()) if len(release) else math.inf
        last = float(release.max()) if len(release) else -math.inf
        if self._gone is not None:
            sums, first, last = (
                sums + self._gone[0], min(first, self._gone[1]), max(last, self._gone[2])
            )  # fmt: skip
        tensor = problem.weights.new_tensor
        return Arrivals(tensor(sums[None]), tensor([[first]]), tensor([[last]]))

    def _compact(self) -> None:
        """Forget jobs that are over when they are many, so that memory stays bounded."""
        over = self._arrays.job("status") == OVER
        if not (over.sum() > COMPACT_ABOVE and 2 * over.sum() > len(over)):
            return
        past = over.astype(float) @ self._arrivals.values
        release = self._arrays.job("release")[over]
        gone = self._gone or (np.zeros_like(past), math.inf, -math.inf)
        first, last = min(gone[1], float(release.min())), max(gone[2], float(release.max()))
        self._gone = (gone[0] + past, first, last)
        keep = np.flatnonzero(~over)
        position = dict(zip(keep.tolist(), range(len(keep)), strict=True))
        self._arrays.keep(keep)
        self._arrivals.keep(keep)
        self._names = [self._names[one] for one in keep.tolist()]
        self._index = {name: at for at, name in enumerate(self._names)}
        self._before = {
            position[job]: [position[one] for one in before if one in position]
            for job, before in self._before.items()
            if job in position
        }

    def why_waiting(self, now: float) -> dict[str, str]:
        """Of every waiting job, why it does not run, for people."""
        held = []
        for name, (mode, start) in self.running.items():
            there = self.jobs[name].modes[mode]
            until = start + self.expected(Choice(name, mode))
            held.append(Held(name, there.machine, there.demand, until))
        closed = dict.fromkeys(self.closed, "is away or drained")
        return {
            name: why_waiting(
                self.jobs[name], self.machines, held, now, closed=closed, unfinished=self.jobs
            )
            for name in self.waiting
        }
