"""An executor without processes: a fake clock that jumps from one event to the next.

It runs the same adapter as the local executor does, in no time: for dry runs, for tests of
failures, and to check that the adapter takes the simulator's decisions.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hetsched.executor.protocol import (
    PREEMPTED_EXIT,
    Attempt,
    Machine,
    Occupancy,
    Outcome,
    Status,
    after_preemption,
)


@dataclass(frozen=True)
class Fault:
    """An end other than the natural one, for tests: `status` after `seconds` of running."""

    status: Status
    seconds: float
    exit_code: int | None = None

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ValueError(f"fault: seconds is {self.seconds}; it must be 0 or more.")


def expected_seconds(attempt: Attempt) -> float:
    """The duration of a world in which every estimate is true."""
    if attempt.expected is None:
        raise ValueError(f"job {attempt.job!r}: no expected duration to simulate with.")
    return attempt.expected


def durations_of(actual: Mapping[tuple[str, int], float]) -> Callable[[Attempt], float]:
    """True durations by (job name, index among the job's modes), in seconds."""
    return lambda attempt: actual[attempt.job, attempt.mode]


class SimulatedExecutor:
    """Runs attempts on a fake clock.

    Args:
        machines: as `Executor.machines`.
        seconds: the true duration of an attempt (default: its expected one).
        fault: an attempt's injected fault, or None to let it finish.

    Raises:
        ValueError: two machines with one name.
    """

    def __init__(
        self,
        machines: tuple[Machine, ...],
        seconds: Callable[[Attempt], float] = expected_seconds,
        fault: Callable[[Attempt], Fault | None] = lambda attempt: None,
    ) -> None:
        self._machines = machines
        self._occupancy = Occupancy(machines)
        self._seconds = seconds
        self._fault = fault
        self._now = 0.0
        self._ends: list[tuple[float, int, Outcome]] = []  # heap: end, order of start, outcome
        self._order = 0

    @property
    def machines(self) -> tuple[Machine, ...]:
        """See `Executor.machines`."""
        return self._machines

    def down(self) -> frozenset[str]:
        """See `Executor.down`; never any (`hetsched.executor.faults` takes machines away)."""
        return frozenset()

    def now(self) -> float:
        """See `Executor.now`; it only moves inside `poll`."""
        return self._now

    def start(self, attempt: Attempt) -> float:
        """See `Executor.start`."""
        self._occupancy.take(attempt)
        fault = self._fault(attempt)
        seconds = self._seconds(attempt) if fault is None else fault.seconds
        status: Status = "done" if fault is None else fault.status
        exit_code = 0 if fault is None else fault.exit_code
        reason = "" if fault is None else f"injected: {fault.status}"
        if seconds > attempt.timeout:
            seconds, status, exit_code = attempt.timeout, "timeout", None
            reason = f"ran longer than its timeout of {attempt.timeout:g} s"
        end = self._now + seconds
        outcome = Outcome(attempt, status, self._now, end, exit_code, reason)
        heapq.heappush(self._ends, (end, self._order, outcome))
        self._order += 1
        return self._now

    def poll(self, until: float = math.inf) -> list[Outcome]:
        """See `Executor.poll`; what ends at the same instant is reported together."""
        if not self._ends or self._ends[0][0] > until:
            if math.isfinite(until):
                self._now = max(self._now, until)
            return []
        self._now = self._ends[0][0]
        finished = []
        while self._ends and self._ends[0][0] <= self._now:
            finished.append(heapq.heappop(self._ends)[2])
        for outcome in finished:
            self._occupancy.release(outcome.attempt.job)
        return finished

    def preempt(self, job: str, grace: float | None = None) -> None:
        """See `Executor.preempt`; the attempt saves its state and ends at once."""
        self._end(job, "preempted", PREEMPTED_EXIT, after_preemption(PREEMPTED_EXIT, False)[1])

    def stop(self, job: str, grace: float | None = None) -> None:
        """See `Executor.stop`; the attempt ends at once."""
        self._end(job, "cancelled", None, "stopped")

    def _end(self, job: str, status: Status, exit_code: int | None, reason: str) -> None:
        for position, (end, order, outcome) in enumerate(self._ends):
            if outcome.attempt.job != job:
                continue
            if end <= self._now and status == "preempted":  # has ended, or is being ended
                return
            ended = Outcome(outcome.attempt, status, outcome.started, self._now, exit_code, reason)
            self._ends[position] = (self._now, order, ended)
            heapq.heapify(self._ends)
            return

    def close(self) -> None:
        """See `Executor.close`."""
        for _, _, outcome in self._ends:
            self._occupancy.release(outcome.attempt.job)
        self._ends.clear()
