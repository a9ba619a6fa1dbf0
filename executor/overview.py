"""What people are shown of a queue at one moment; `hetsched.executor.store_client` reads it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched.executor.protocol import Machine
    from hetsched.executor.queue import Job

FINAL = ("done", "failed", "timeout", "memory", "lost", "cancelled", "not run")


@dataclass(frozen=True)
class JobStatus:
    """A job as people see it.

    Attributes:
        status: waiting, running, or one of FINAL; reason: for it, or of the last failure.
        machine, started, ended: of the latest attempt; None: there was none, or not yet.
        expected: seconds the running attempt should take.
        progress: the share of its work that a running one says it has done; None: it does not say.
        attempts: how many there were; log: path of the latest output.
    """

    job: Job
    status: str
    reason: str
    asked: str
    attempts: int = 0
    machine: str | None = None
    demand: int = 0
    started: float | None = None
    ended: float | None = None
    expected: float | None = None
    log: str | None = None
    progress: float | None = None


@dataclass(frozen=True)
class MachineStatus:
    """A machine as people see it.

    Attributes:
        used: units that running jobs have.
        drained: why it gets no work, empty if it does; until: when it is tried again.
        away: since when the executor cannot reach it; None: it can, or nobody tries.
    """

    machine: Machine
    used: int
    drained: str
    until: float
    away: float | None = None

    @property
    def closed(self) -> str:
        """Why it gets no work, to go after its name; empty: it gets some."""
        if self.away is not None:
            return "is away"
        return f"is drained: {self.drained}" if self.drained else ""


@dataclass(frozen=True)
class Overview:
    """A queue at a moment of its clock.

    Attributes:
        now: seconds; began: wall-clock time at which it showed 0.
        counts: jobs by status; jobs: those that were asked for.
        scheduler: whether one runs.
        notes: (time, text) of what people should know, the latest last.
    """

    now: float
    began: float
    counts: dict[str, int]
    jobs: tuple[JobStatus, ...]
    machines: tuple[MachineStatus, ...]
    scheduler: bool
    decisions: int
    mean_decision: float
    notes: tuple[tuple[float, str], ...]


def clock_time(wall: float) -> str:
    """A time of day for people, with the date where it is not today's."""
    when = time.localtime(wall)
    today = when[:3] == time.localtime()[:3]
    return time.strftime("at about %H:%M" if today else "at about %a %d %b, %H:%M", when)
