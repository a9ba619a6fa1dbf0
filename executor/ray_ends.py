"""How attempts ended that the Ray executor did not see end: what is on disk, and what is lost.

An actor dies with its node or its scheduler, and what it knew dies with it. The exit code of a
command is on disk all the same, where the node shares the scheduler's folder; see
`hetsched.executor.exits`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.executor.exits import file_name
from hetsched.executor.local_attempt import found_outcome
from hetsched.executor.protocol import Attempt, Outcome

if TYPE_CHECKING:
    from hetsched.executor.exits import Exits


class Ends:
    """What can be learnt of an attempt afterwards.

    Args:
        log_dir: of outputs.
        exits: of exit codes; None: nobody keeps them.
    """

    def __init__(self, log_dir: Path, exits: Exits | None) -> None:
        self._log_dir = log_dir
        self._exits = exits

    def log_of(self, attempt: Attempt) -> Path:
        """Where the output of an attempt is, or would be."""
        return self._log_dir / file_name(attempt.job, attempt.number, "log")

    def lost(self, attempt: Attempt, started: float, now: float, stopped: bool = False) -> Outcome:
        """The end of an attempt whose machine went away; `stopped`: somebody had asked for it."""
        outcome = None if stopped else self._noted(attempt, started, now)
        reason = f"machine {attempt.machine!r} went away"
        if outcome is None:
            outcome = Outcome(attempt, "lost", started, now, None, reason, self._log(attempt))
        return (
            replace(outcome, status="cancelled", reason=f"stopped; {reason}")
            if stopped
            else outcome
        )

    def orphaned(self, attempt: Attempt, started: float, now: float) -> Outcome:
        """The end of an attempt whose scheduler was killed: as good as a preemption."""
        reason = "ended with its scheduler, which was killed"
        return self._noted(attempt, started, now) or Outcome(
            attempt, "preempted", started, max(started, now), None, reason, self._log(attempt)
        )

    def forget(self, outcomes: Iterable[Outcome]) -> None:
        """Remove the exit codes of what is remembered elsewhere by now."""
        if self._exits is not None:
            for outcome in outcomes:
                self._exits.forget(outcome.attempt.job, outcome.attempt.number)

    def _noted(self, attempt: Attempt, started: float, now: float) -> Outcome | None:
        noted = None if self._exits is None else self._exits.read(attempt.job, attempt.number)
        if noted is None or noted[0] == -signal.SIGKILL:  # by its guard, most likely
            return None
        ended = max(started, min(now, now - (time.time() - noted[1])))
        return found_outcome(attempt, started, ended, noted[0], self.log_of(attempt))

    def _log(self, attempt: Attempt) -> str | None:
        log = self.log_of(attempt)
        return os.fspath(log) if log.exists() else None


def cancelled(outcome: Outcome) -> Outcome:
    """What was to be continued is not, if somebody stops the job before that is heard of."""
    if outcome.status != "preempted":
        return outcome
    return replace(outcome, status="cancelled", reason=f"stopped; {outcome.reason}")
