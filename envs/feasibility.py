"""Feasibility: every rule of an instance, checked on a finished schedule, in numpy alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.envs.checks import BoolArray, FloatArray, IntArray
    from hetsched.envs.instance import Instance
    from hetsched.envs.schedule import Schedule

ROUNDING = 16  # units in the last place of the largest time


def find_violations(schedule: Schedule, instance: Instance, tolerance: float) -> list[str]:
    """One sentence per broken rule; see `Schedule.violations`."""
    if len(schedule.modes) != instance.num_jobs:
        return [
            f"the schedule has {len(schedule.modes)} jobs, but the instance {instance.num_jobs}"
        ]
    found = list(_unscheduled(schedule, instance))
    checker = _Checker(schedule, instance, tolerance)
    for rule in (
        checker.durations,
        checker.releases,
        checker.availability,
        checker.loads,
        checker.setups,
        checker.precedence,
    ):
        found += rule()
    return found


def machine_sequence(machine: int, machines: IntArray, starts: FloatArray) -> IntArray:
    """Jobs of a machine by start; jobs that start together by index.

    Args:
        machine: index of the machine.
        machines: (jobs,) int64, machine of each job, -1 where unscheduled.
        starts: (jobs,) float64, time.
    """
    jobs = np.flatnonzero(machines == machine)
    return jobs[np.argsort(starts[jobs], kind="stable")]


def required_setups(machines: IntArray, starts: FloatArray, instance: Instance) -> FloatArray:
    """(jobs,) float64, time: set-up each job needs, from the order on its machine.

    Args:
        machines: (jobs,) int64, machine of each job, -1 where unscheduled.
        starts: (jobs,) float64, time.
        instance: the problem.
    """
    setups = np.zeros(instance.num_jobs)
    if instance.setup_times is not None:
        for machine in range(instance.num_machines):
            jobs = machine_sequence(machine, machines, starts)
            before = np.append(instance.num_jobs, jobs)[: len(jobs)]
            setups[jobs] = instance.setup_times[before, jobs, machine]
    return setups


def job_label(instance: Instance, job: int) -> str:
    """``job 3``, or ``job 3 (name)`` where it has a name of its own."""
    name = instance.job_names[job]
    return name if name == f"job {job}" else f"job {job} ({name})"


def machine_label(instance: Instance, machine: int) -> str:
    """``machine 3``, or ``machine 3 (name)`` where it has a name of its own."""
    name = instance.machine_names[machine]
    return name if name == f"machine {machine}" else f"machine {machine} ({name})"


def _unscheduled(schedule: Schedule, instance: Instance) -> Iterator[str]:
    modes = schedule.modes
    for job in np.flatnonzero(~_usable(schedule, instance)).tolist():
        label, mode = job_label(instance, job), modes[job]
        if not 0 <= mode < instance.num_modes:
            yield f"{label} is not scheduled: its mode is {mode}, not 0 to {instance.num_modes - 1}"
        elif instance.mode_jobs[mode] != job:
            owner = job_label(instance, int(instance.mode_jobs[mode]))
            yield f"{label} uses mode {mode}, which belongs to {owner}"
        else:
            start, end = schedule.starts[job], schedule.ends[job]
            yield f"{label} is not scheduled: it starts at {start:g} and ends at {end:g}"


def _usable(schedule: Schedule, instance: Instance) -> BoolArray:
    """(jobs,) bool: the job has one of its own modes and finite times."""
    known = (schedule.modes >= 0) & (schedule.modes < instance.num_modes)
    owners = instance.mode_jobs[np.where(known, schedule.modes, 0)]
    own = known & (owners == np.arange(instance.num_jobs))
    usable: BoolArray = own & np.isfinite(schedule.starts) & np.isfinite(schedule.ends)
    return usable


class _Checker:
    """The rules, applied to the jobs that have one of their modes and finite times."""

    def __init__(self, schedule: Schedule, instance: Instance, tolerance: float) -> None:
        self.instance = instance
        self.usable = _usable(schedule, instance)  # (J,)
        self.modes = np.where(self.usable, schedule.modes, 0)  # (J,)
        self.machines = np.where(self.usable, instance.mode_machines[self.modes], -1)  # (J,)
        self.starts = np.where(self.usable, schedule.starts, 0.0)  # (J,)
        self.ends = np.where(self.usable, schedule.ends, 0.0)  # (J,)
        self.paid = schedule.setups
        self.needed = required_setups(self.machines, self.starts, instance)  # (J,)
        times = np.concatenate([self.starts[self.usable], self.ends[self.usable], [0.0]])
        largest = float(np.abs(times).max())
        shortest = float(min(instance.processing_times.min(), instance.durations.min()))
        self.slack = tolerance * shortest + ROUNDING * float(np.spacing(largest))

    def durations(self) -> Iterator[str]:
        lengths, durations = self.ends - self.starts, self.instance.durations[self.modes]
        wrong = self.usable & ~(np.abs(lengths - durations) <= self.slack)
        for job in np.flatnonzero(wrong).tolist():
            yield (
                f"{self._job(job)} runs for {lengths[job]:g}, but its mode {self.modes[job]} "
                f"takes {durations[job]:g}"
            )

    def releases(self) -> Iterator[str]:
        # The set-up needs the job, so it also lies after the release.
        ready = self.instance.release_times + self.needed
        for job in np.flatnonzero(self.usable & (self.starts < ready - self.slack)).tolist():
            yield (
                f"{self._job(job)} starts at {self.starts[job]:g}, but is released at "
                f"{self.instance.release_times[job]:g}{self._after_setup(job)}"
            )

    def availability(self) -> Iterator[str]:
        available = self.instance.machine_available[self.machines]  # (J,)
        for job in np.flatnonzero(self.usable & (self.starts < available - self.slack)).tolist():
            yield (
                f"{self._job(job)} starts at {self.starts[job]:g} on "
                f"{self._machine(self.machines[job])}, which is available from {available[job]:g}"
            )

    def loads(self) -> Iterator[str]:
        """Sweep over the starts and ends on each machine, counting the units in use."""
        for machine in range(self.instance.num_machines):
            jobs = machine_sequence(machine, self.machines, self.starts)
            number, demand = len(jobs), self.instance.demand[self.modes[jobs]]
            # An end frees its units a little early; no job is shorter than that.
            times = np.concatenate([self.ends[jobs] - self.slack, self.starts[jobs]])
            change = np.concatenate([-demand, demand])
            order = np.argsort(times, kind="stable")  # ends come before starts of the same moment
            used = np.empty(2 * number, np.int64)
            used[order] = np.cumsum(change[order])
            capacity = int(self.instance.capacity[machine])
            for at in np.flatnonzero(used[number:] > capacity).tolist():
                yield self._overload(machine, jobs, at, int(used[number + at]), capacity)

    def _overload(self, machine: int, jobs: IntArray, at: int, used: int, capacity: int) -> str:
        job, moment = int(jobs[at]), self.starts[jobs[at]]
        running = (self.starts[jobs] <= moment) & (self.ends[jobs] - self.slack > moment)
        others = [int(one) for one in jobs[running] if one != job]
        names = " and ".join(self._job(one) for one in others[:3])
        names += f" and {len(others) - 3} more" if len(others) > 3 else ""
        what = "" if capacity == 1 else f", which takes {used} of its {capacity} units"
        return f"{self._job(job)} overlaps {names} on {self._machine(machine)} at {moment:g}{what}"

    def setups(self) -> Iterator[str]:
        wrong = self.usable & ~(np.abs(self.paid - self.needed) <= self.slack)
        for job in np.flatnonzero(wrong).tolist():
            yield (
                f"{self._job(job)} pays a set-up of {self.paid[job]:g}, but its place on "
                f"{self._machine(self.machines[job])} needs {self.needed[job]:g}"
            )
        for machine in range(self.instance.num_machines):
            jobs = machine_sequence(machine, self.machines, self.starts)
            free = np.append(self.instance.machine_available[machine], self.ends[jobs])[:-1]
            gap = self.starts[jobs] - free
            # Where the gap is negative, another rule has spoken already.
            short = (gap < self.needed[jobs] - self.slack) & (gap >= -self.slack)
            for at in np.flatnonzero(short).tolist():
                job, since = int(jobs[at]), "the initial occupation ends"
                if at:
                    since = f"{self._job(int(jobs[at - 1]))} ends"
                yield (
                    f"{self._job(job)} starts {gap[at]:g} after {since} on "
                    f"{self._machine(machine)}, but its set-up takes {self.needed[job]:g}"
                )

    def precedence(self) -> Iterator[str]:
        before, after = self.instance.precedence  # (A,), (A,)
        apart = self.machines[before] != self.machines[after]
        lags = np.where(apart, self.instance.precedence_lags, 0.0)
        earliest = self.ends[before] + lags + self.needed[after]
        wrong = self.usable[before] & self.usable[after]
        wrong &= self.starts[after] < earliest - self.slack
        for arc in np.flatnonzero(wrong).tolist():
            first, second = int(before[arc]), int(after[arc])
            lag = f" and the lag to another machine is {lags[arc]:g}" if lags[arc] else ""
            yield (
                f"{self._job(second)} starts at {self.starts[second]:g}, but {self._job(first)} "
                f"before it ends at {self.ends[first]:g}{lag}{self._after_setup(second)}"
            )

    def _job(self, job: int) -> str:
        return job_label(self.instance, job)

    def _machine(self, machine: int) -> str:
        return machine_label(self.instance, machine)

    def _after_setup(self, job: int) -> str:
        return f" and its set-up takes {self.needed[job]:g}" if self.needed[job] else ""
