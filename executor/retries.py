"""What becomes of a job whose attempt has ended: done, once more (and where), or over.

A job's own failures use up its `retries`, its machine's failures its `moves`. After a failure of
the machine it goes elsewhere where it can. Want of memory shows that the job needs more than it
had: what it needs is remembered, and it is tried where there is more for as long as there is such
a place. A preemption uses up nothing.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hetsched.executor.protocol import PREEMPTED_EXIT

if TYPE_CHECKING:
    from hetsched.executor.backlog import Backlog
    from hetsched.executor.causes import Cause
    from hetsched.executor.protocol import Machine, Outcome

MEMORY_DOUBLINGS = 3  # of a limit, where nobody knows how much memory the machine has


@dataclass
class _Record:
    failures: int = 0
    moves: int = 0
    doublings: int = 0
    barred: set[int] = field(default_factory=set)  # modes without enough memory
    avoided: set[str] = field(default_factory=set)  # machines, while there are others
    left: str = ""  # the machine it was made to leave, until its next start


@dataclass(frozen=True)
class Verdict:
    """Whether a job waits again, and a few words of why, if there is something to say."""

    again: bool
    why: str = ""


class Retries:
    """The memory of failures, for the unfinished jobs of a backlog that failed at all."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._machines = {machine.name: machine for machine in backlog.machines}
        self._records: dict[str, _Record] = {}

    def judge(self, outcome: Outcome, cause: Cause) -> Verdict:
        """Decide on a job that has ended just now, and where it may run next."""
        name = outcome.attempt.job
        job = self._backlog.jobs[name]
        if outcome.status in ("done", "cancelled"):
            return Verdict(False)
        record = self._records.setdefault(name, _Record())
        verdict = Verdict(True)
        if outcome.status == "preempted":
            record.left = outcome.attempt.machine
        elif cause == "memory":
            verdict = self._more_memory(record, outcome)
        elif cause == "machine":
            record.moves += 1
            record.avoided.add(outcome.attempt.machine)
            verdict = Verdict(record.moves <= job.moves)
        else:
            record.failures += 1
            verdict = Verdict(record.failures <= job.retries)
        if verdict.again:
            self._allow(name)
        return verdict

    def started(self, name: str) -> None:
        """A job has started again: the machine it was made to leave is as good as any now."""
        record = self._records.get(name)
        if record is not None and record.left:
            record.left = ""
            self._allow(name)

    def forget(self, name: str) -> None:
        """A job is over."""
        self._records.pop(name, None)

    def machines_changed(self) -> None:
        """Other machines are closed now: what jobs should avoid may be all there is."""
        for name, record in self._records.items():
            if record.avoided or record.left:
                self._allow(name)

    def _more_memory(self, record: _Record, outcome: Outcome) -> Verdict:
        attempt = outcome.attempt
        job = self._backlog.jobs[attempt.job]
        here = self._machines[attempt.machine]
        if math.isfinite(attempt.memory) and outcome.exit_code in (
            -signal.SIGKILL,
            -signal.SIGTERM,
            None,
        ):
            # Its own limit ended it: a higher one, where the machine has that much.
            record.doublings += 1
            raised = replace(job, memory=2 * attempt.memory)
            if record.doublings > MEMORY_DOUBLINGS:
                return Verdict(False, "its limit was doubled three times")
            self._backlog.change(raised)
            for at, mode in enumerate(job.modes):
                room = self._machines[mode.machine].memory
                host = self._machines[mode.machine].kind == "cpu"
                if host and room is not None and room < raised.memory:
                    record.barred.add(at)
            return self._if_any(record, attempt.job, "no machine has more memory")
        if len(here.devices) == 1 and attempt.demand < here.capacity:
            # It shares the device: a larger part of it, so that fewer others are there.
            part = min(here.capacity, 2 * attempt.demand)
            modes = tuple(
                replace(mode, demand=max(mode.demand, part)) if at == attempt.mode else mode
                for at, mode in enumerate(job.modes)
            )
            self._backlog.change(replace(job, modes=modes))
            return Verdict(True, f"needs {part} of {here.capacity} shares of {here.name}")
        for at, mode in enumerate(job.modes):
            if not _has_more(self._machines[mode.machine], here, mode.demand, attempt.demand):
                record.barred.add(at)
        return self._if_any(record, attempt.job, "no machine it may use has more memory")

    def _if_any(self, record: _Record, name: str, otherwise: str) -> Verdict:
        modes = self._backlog.jobs[name].modes
        return Verdict(True) if len(record.barred) < len(modes) else Verdict(False, otherwise)

    def _allow(self, name: str) -> None:
        """Where the job may run: not where memory is short, and rather not where it failed."""
        record, modes = self._records[name], self._backlog.jobs[name].modes
        allowed = [at for at in range(len(modes)) if at not in record.barred]
        for unwanted in (record.avoided, {record.left}):
            others = [at for at in allowed if modes[at].machine not in unwanted]
            if any(modes[at].machine not in self._backlog.closed for at in others):
                allowed = others
        self._backlog.allow(name, _as_mask(allowed, len(modes)))


def _as_mask(indices: Sequence[int], length: int) -> list[bool]:
    return [at in indices for at in range(length)]


def _has_more(machine: Machine, here: Machine, demand: int, demand_here: int) -> bool:
    """Whether a mode there can be expected to have more GPU memory than the one here had."""
    if machine.name == here.name:
        return len(machine.devices) > 1 and demand > demand_here  # more devices to spread over
    if machine.memory is not None and here.memory is not None:
        return machine.memory > here.memory or (machine.kind == "gpu" and demand > demand_here)
    return machine.type != here.type


def is_shutdown(outcome: Outcome) -> bool:
    """Whether an attempt ended as one does that was told to, by somebody else than us."""
    told = (PREEMPTED_EXIT, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
    return outcome.status in ("failed", "lost") and outcome.exit_code in told
