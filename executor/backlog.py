"""The live half of a queue: which jobs are left, which run, and the state a policy decides on."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hetsched.envs.arrivals import Arrivals
from hetsched.envs.instance import Instance
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State

if TYPE_CHECKING:
    from hetsched.envs.objective import Objective
    from hetsched.executor.protocol import Outcome
    from hetsched.executor.queue import Queue


@dataclass(frozen=True)
class Choice:
    """A decision in the queue's own terms: a job's name and the index of one of its modes."""

    job: str
    mode: int


class View:
    """One moment of a queue as a one-row dispatch state, and the way back to names.

    Attributes:
        state: `State.resume` of the unfinished jobs.
    """

    def __init__(self, state: State, names: list[str], modes: np.ndarray) -> None:
        self.state = state
        self._names = names
        self._modes = modes  # (modes,) index of an instance's mode among its job's own

    def choice(self, action: int) -> Choice | None:
        """What an action of the state means; None: WAIT."""
        problem = self.state.problem
        if action == problem.num_actions - 1:
            return None
        job, slot = divmod(action, problem.num_modes)
        mode = int(problem.mode_index[0, job, slot])
        return Choice(self._names[job], int(self._modes[mode]))


class Backlog:
    """The unfinished jobs of a queue.

    A job is waiting, running, or over: done, failed for good, or never to run because a job it
    comes after failed. `not_run` holds the last kind with the reason.
    """

    def __init__(self, queue: Queue, objective: Objective) -> None:
        self.queue = queue
        self.objective = objective
        self.jobs = {job.name: job for job in queue.jobs}
        self.attempts = dict.fromkeys(self.jobs, 0)
        self.running: dict[str, tuple[int, float]] = {}  # job -> mode, start; in order of start
        self.waiting = dict.fromkeys(self.jobs)  # an ordered set
        self.not_run: dict[str, str] = {}
        self._successors: dict[str, list[str]] = {name: [] for name in self.jobs}
        for job in queue.jobs:
            for before in job.after:
                self._successors[before].append(job.name)
        self._build()

    def _build(self) -> None:
        """Arrays over all jobs, of which every view takes those that are left."""
        jobs, machines = self.queue.jobs, self.queue.machines
        self._index = {job.name: at for at, job in enumerate(jobs)}
        machine_at = {machine.name: at for at, machine in enumerate(machines)}
        modes = [mode for job in jobs for mode in job.modes]
        counts = np.array([len(job.modes) for job in jobs])
        self._first = np.concatenate([[0], np.cumsum(counts)[:-1]])  # (jobs,) a job's first mode
        self._mode_jobs = np.repeat(np.arange(len(jobs)), counts)
        self._mode_machines = np.array([machine_at[mode.machine] for mode in modes])
        self._seconds = np.array([mode.seconds for mode in modes])
        self._demand = np.array([mode.demand for mode in modes])
        self._release = np.array([job.release for job in jobs])
        self._due = np.array([job.due for job in jobs])
        self._weight = np.array([job.weight for job in jobs])
        self._capacity = np.array([machine.capacity for machine in machines])
        arcs = [
            (self._index[before], self._index[job.name]) for job in jobs for before in job.after
        ]
        self._arcs = np.array(sorted(set(arcs)), dtype=np.int64).reshape(-1, 2).T  # (2, arcs)
        everything = np.ones(len(jobs), bool), np.arange(len(modes))
        self._whole = Problem.from_instances([self._instance(*everything)])

    def next_release(self, now: float) -> float:
        """The first release of a waiting job after now; infinity if there is none."""
        times = [self.jobs[name].release for name in self.waiting]
        return min((time for time in times if time > now), default=math.inf)

    def started(self, choice: Choice, at: float) -> None:
        """Note that a waiting job runs."""
        del self.waiting[choice.job]
        self.running[choice.job] = (choice.mode, at)

    def ended(self, outcome: Outcome, retry: bool = True) -> bool:
        """Note that a running job has ended; returns whether it will be tried again."""
        name = outcome.attempt.job
        del self.running[name]
        if outcome.status == "done":
            return False
        if (
            retry
            and outcome.status != "cancelled"
            and self.attempts[name] <= self.jobs[name].retries
        ):
            # Back to its old place: equal scores go to the first job in the queue.
            self.waiting[name] = None
            self.waiting = dict.fromkeys(sorted(self.waiting, key=self._index.__getitem__))
            return True
        self._give_up_after(name)
        return False

    def _give_up_after(self, name: str) -> None:
        open_names = [name]
        while open_names:
            before = open_names.pop()
            for after in self._successors[before]:
                if after in self.waiting:
                    del self.waiting[after]
                    self.not_run[after] = f"comes after {before!r}, which was not done"
                    open_names.append(after)

    def view(self, now: float) -> View:
        """The state at a moment, in seconds on the queue's clock."""
        names = [job.name for job in self.queue.jobs if self._is_left(job.name)]
        left = np.zeros(len(self.jobs), bool)
        left[[self._index[name] for name in names]] = True
        kept = left[self._mode_jobs]
        for name, (mode, _) in self.running.items():  # it has no choice any more
            first = self._first[self._index[name]]
            kept[first : first + len(self.jobs[name].modes)] = False
            kept[first + mode] = True
        modes = np.flatnonzero(kept)
        problem = Problem.from_instances([self._instance(left, modes)])
        position = np.cumsum(left) - 1  # (jobs,) index among those left
        running = []
        for name, (_, start) in self.running.items():
            job = int(position[self._index[name]])
            slot = int(problem.mode_mask[0, job].int().argmax())  # its only one
            running.append((job, slot, start))
        past = Arrivals.of(self._whole, self._whole.job_mask.new_tensor(self._is_past(now)[None]))
        state = State.resume(problem, self.objective, now, running, past)
        return View(state, names, modes - self._first[self._mode_jobs[modes]])

    def _instance(self, left: np.ndarray, modes: np.ndarray) -> Instance:
        """Of the jobs (jobs,) bool that are left, with the modes of them that are given."""
        position = np.cumsum(left) - 1  # (jobs,) index among those left
        # A predecessor that is over is no longer a condition.
        arcs = self._arcs[:, left[self._arcs].all(axis=0)]
        return Instance(
            num_jobs=int(left.sum()),
            num_machines=len(self.queue.machines),
            mode_jobs=position[self._mode_jobs[modes]],
            mode_machines=self._mode_machines[modes],
            processing_times=self._seconds[modes],
            demand=self._demand[modes],
            release_times=self._release[left],
            due_times=self._due[left],
            weights=self._weight[left],
            capacity=self._capacity,
            precedence=position[arcs],
            job_names=tuple(job.name for job in itertools.compress(self.queue.jobs, left)),
            machine_names=tuple(machine.name for machine in self.queue.machines),
        )

    def _is_past(self, now: float) -> np.ndarray:
        """(jobs,) bool: released by now and not waiting, whatever has become of it."""
        past: np.ndarray = self._release <= now
        past[[self._index[name] for name in self.waiting]] = False
        return past

    def _is_left(self, name: str) -> bool:
        return name in self.waiting or name in self.running

    def why_waiting(self, name: str, now: float) -> str:
        """Why a waiting job does not run, for people."""
        job = self.jobs[name]
        if job.release > now:
            return f"is released only at {job.release:g} s"
        for before in job.after:
            if self._is_left(before):
                return f"comes after {before!r}, which had not ended"
        free = {machine.name: machine.capacity for machine in self.queue.machines}
        for other, (mode, _) in self.running.items():
            held = self.jobs[other].modes[mode]
            free[held.machine] -= held.demand
        if any(mode.demand <= free[mode.machine] for mode in job.modes):
            return "was kept waiting by the policy"
        best = min(job.modes, key=lambda mode: mode.seconds)
        return f"needs {best.demand} of {best.machine!r}, which had {free[best.machine]} free"
