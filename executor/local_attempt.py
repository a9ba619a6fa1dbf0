"""An attempt of the local executor, and what its end means."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.executor import processes
from hetsched.executor.protocol import PREEMPTED_EXIT, Outcome, Status, after_preemption

if TYPE_CHECKING:
    from hetsched.executor.protocol import Attempt

SURVIVED = "SIGKILL did not end all of its processes, which may still hold its machine"


@dataclass
class Running:
    """An attempt that runs.

    Attributes:
        process: leads the group; descriptor: readable once it has exited, if there is one.
        started: on the executor's clock; log: of its output.
        reason: why we end it: "timeout", "memory", "cancelled" or "preempted".
        kill_at: when its grace ends; killed: SIGKILL was sent.
        gone_by: its leader has exited and the rest of the group was killed: until when that is
            waited for; None: not yet.
        survived: something of the group lived on all the same.
        held: bytes that were too many.
    """

    attempt: Attempt
    process: processes.Process
    descriptor: int | None
    log: Path
    started: float
    reason: Status | None = None
    kill_at: float = math.inf
    killed: bool = False
    gone_by: float | None = None
    survived: bool = False
    held: int = 0

    @property
    def deadline(self) -> float:
        """When something must be done about it."""
        if self.gone_by is not None:
            return self.gone_by
        if self.killed:
            return math.inf
        return self.kill_at if self.reason else self.started + self.attempt.timeout

    def outcome(self, ended: float, code: int | None) -> Outcome:
        """What its end means; `code`: its exit code, None where nobody knows it."""
        status: Status = "done"
        reason = ""
        how = " and was killed after its grace" if self.killed else ""
        if self.reason == "preempted":
            status, reason = after_preemption(code, self.killed)
        elif self.reason == "memory":
            status = self.reason
            reason = f"held {_size(self.held)}, more than its limit of {_size(self.attempt.memory)}"
        elif self.reason == "timeout":
            status = self.reason
            reason = f"ran longer than its timeout of {self.attempt.timeout:g} s{how}"
        elif self.reason is not None:
            status = self.reason
            reason = f"stopped{how}"
        else:
            status, reason = ended_by_itself(code)
        if self.survived:
            reason = f"{reason}; {SURVIVED}" if reason else SURVIVED
        return Outcome(self.attempt, status, self.started, ended, code, reason, os.fspath(self.log))


def ended_by_itself(code: int | None) -> tuple[Status, str]:
    """Status and reason of an attempt that nobody ended."""
    if code is None:
        return "lost", "ended, and nobody knows how"
    if code == 0:
        return "done", ""
    return ("failed" if code > 0 else "lost"), processes.describe_exit(code)


def found_outcome(attempt: Attempt, started: float, ended: float, code: int, log: Path) -> Outcome:
    """What the end of an attempt means that was found to have ended while nobody looked.

    SIGTERM then came from the computer's shutting down, and is as good as a preemption.
    """
    status, reason = ended_by_itself(code)
    if code in (PREEMPTED_EXIT, -signal.SIGTERM, -signal.SIGHUP):
        status, reason = after_preemption(code, killed=False)
    return Outcome(attempt, status, started, ended, code, reason, os.fspath(log))


def _size(number: float) -> str:
    return f"{number / 1024**3:.2f} GiB" if number >= 1024**3 else f"{number / 1024**2:.0f} MiB"
