"""Sequences: a solution as the order of jobs on each machine, the form that compiled code works on.

For plans on machines of capacity 1 without precedence: a job starts at
max(machine free, release) + set-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.envs.schedule import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetsched.envs.instance import Instance


@dataclass(frozen=True, eq=False)
class Sequences:
    """Jobs in order on every machine; of several modes on one machine the fastest counts.

    Attributes:
        instance: the problem.
        times: (jobs, machines) float64, duration of the fastest mode, infinity without one.
        modes: (jobs, machines) int64, that mode, or -1.
        order: (machines, jobs) int64, jobs of each machine; only the first ``lengths`` count.
        lengths: (machines,) int64.
    """

    instance: Instance
    times: NDArray[np.float64]
    modes: NDArray[np.int64]
    order: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def empty(cls, instance: Instance) -> Sequences:
        """No job on any machine yet."""
        shape = (instance.num_jobs, instance.num_machines)
        times, modes = np.full(shape, np.inf), np.full(shape, -1, np.int64)
        slowest = np.argsort(-instance.processing_times, kind="stable")  # written first
        at = instance.mode_jobs[slowest], instance.mode_machines[slowest]
        times[at], modes[at] = instance.processing_times[slowest], slowest
        order = np.full(shape[::-1], -1, np.int64)
        return cls(instance, times, modes, order, np.zeros(shape[1], np.int64))

    def setups(self) -> tuple[NDArray[np.float64], bool]:
        """(jobs + 1, jobs, machines) set-ups and true; without any, a stand-in and false."""
        setups = self.instance.setup_times
        if setups is not None:
            return setups, True
        setups = np.zeros((1, 1, 1))
        setups.setflags(write=False)  # as the arrays of an instance, or numba compiles twice
        return setups, False

    def fill(self, schedule: Schedule | None = None) -> None:
        """Take over a schedule; without one, earliest completions, short jobs first."""
        self.lengths[:] = 0
        if schedule is not None:
            machines = self.instance.mode_machines[schedule.modes]
            for job in np.argsort(schedule.starts, kind="stable").tolist():
                self._append(int(machines[job]), job)
            return
        free = self.instance.machine_available.copy()
        for job in np.argsort(self.times.min(axis=1), kind="stable").tolist():
            ends = np.maximum(free, self.instance.release_times[job]) + self.times[job]
            machine = int(ends.argmin())
            free[machine] = ends[machine]
            self._append(machine, job)

    def schedule(self) -> Schedule:
        """Every job as early as its machine's sequence allows."""
        instance, jobs = self.instance, self.instance.num_jobs
        modes = np.zeros(jobs, np.int64)
        starts, ends, paid = np.zeros(jobs), np.zeros(jobs), np.zeros(jobs)
        for machine in range(instance.num_machines):
            free, last = instance.machine_available[machine], jobs
            for job in self.order[machine, : self.lengths[machine]].tolist():
                if instance.setup_times is not None:
                    paid[job] = instance.setup_times[last, job, machine]
                starts[job] = max(free, instance.release_times[job]) + paid[job]
                free = ends[job] = starts[job] + self.times[job, machine]
                modes[job], last = self.modes[job, machine], job
        return Schedule(modes=modes, starts=starts, ends=ends, setups=paid)

    def copy(self) -> Sequences:
        """Another order on the same problem."""
        fields: dict[str, Any] = dict(self.__dict__)
        fields["order"], fields["lengths"] = self.order.copy(), self.lengths.copy()
        return Sequences(**fields)

    def _append(self, machine: int, job: int) -> None:
        self.order[machine, self.lengths[machine]] = job
        self.lengths[machine] += 1
