"""Makes trouble, from a seed, between a caller and any executor: for tests of what survives it.

The faults are those of the infrastructure: attempts that crash, die without an exit code of
their own or never end, starts that take long, machines that go away and come back. What a command
does to itself (exit codes, ignored signals) belongs into the command.

Every attempt's fate depends on the seed, the job and the number of the attempt, every machine's on
the seed and its name, and on nothing else: the same queue meets the same faults whatever the
order of its jobs.
"""

from __future__ import annotations

import functools
import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from hetsched.executor.protocol import Attempt, Executor, Machine, Occupancy, Outcome, Status

Fate = tuple[str, float]  # what happens to an attempt, and after how many seconds


@dataclass(frozen=True)
class Faults:
    """How much trouble.

    Args:
        crash: probability that an attempt fails (exit status 1) at some time.
        lost: probability that it dies by a signal (SIGKILL) at some time.
        hang: probability that it does not end by itself. Without a timeout it is spared.
        slow: probability that it starts only after `slow_seconds`.
        slow_seconds: as said.
        within: a crash or loss comes uniformly within so many seconds, if the attempt still runs;
            None: within its expected time.
        away: mean seconds between the times when a machine goes away; None: never.
        back: mean seconds until it comes back. Both times are exponential.
        outages: further ones, each (machine's name, second it goes away, second it is back).

    Raises:
        ValueError: naming the field.
    """

    crash: float = 0.0
    lost: float = 0.0
    hang: float = 0.0
    slow: float = 0.0
    slow_seconds: float = 1.0
    within: float | None = None
    away: float | None = None
    back: float = 1.0
    outages: tuple[tuple[str, float, float], ...] = ()

    def __post_init__(self) -> None:
        for name in ("crash", "lost", "hang", "slow"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"faults: {name} is {getattr(self, name)}; use 0 to 1.")
        if self.crash + self.lost + self.hang > 1:
            raise ValueError("faults: crash, lost and hang add up to more than 1; lower one.")
        for name in ("slow_seconds", "within", "away", "back"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"faults: {name} is {value}; it must be above 0 seconds.")
        for machine, begin, end in self.outages:
            if not 0 <= begin < end:
                raise ValueError(f"faults: outage of {machine!r} from {begin} to {end}; mend it.")

    def fate(self, seed: int, attempt: Attempt) -> Fate | None:
        """What ends an attempt instead of itself; None: nothing does."""
        draw = random.Random(f"{seed}/{attempt.job}/{attempt.number}")
        chance = draw.random()
        within = self.within if self.within is not None else attempt.expected or 1.0
        for name, probability in (("crash", self.crash), ("lost", self.lost), ("hang", self.hang)):
            if chance < probability:
                if name != "hang":
                    return name, draw.uniform(0.0, within)
                return ("hang", attempt.timeout) if math.isfinite(attempt.timeout) else None
            chance -= probability
        return None

    def delay(self, seed: int, attempt: Attempt) -> float:
        """Seconds by which an attempt starts late."""
        draw = random.Random(f"{seed}/{attempt.job}/{attempt.number}/slow")
        return self.slow_seconds if draw.random() < self.slow else 0.0


@dataclass
class _Run:
    """An attempt as the caller knows it."""

    attempt: Attempt
    started: float
    hangs: bool = False
    inside: bool = False  # the executor within runs it
    verdict: tuple[Status, int | None, str] | None = None  # how its end is to be reported
    asked: str = ""  # "stop" or "preempt"


class FaultyExecutor:
    """Another executor, with faults.

    Args:
        inner: a freshly opened executor; it is closed with this one.
        faults: how much trouble; by default none at all.
        seed: which.
    """

    def __init__(self, inner: Executor, faults: Faults | None = None, seed: int = 0) -> None:
        self._inner = inner
        self._faults = faults or Faults()
        self._seed = seed
        self._occupancy = Occupancy(inner.machines)
        self._runs: dict[str, _Run] = {}
        self._ended: list[Outcome] = []
        self._away: set[str] = set()
        self._known_down = inner.down()
        self._events: list[tuple[float, int, Callable[[], None]]] = []  # heap: when, order, what
        self._order = 0
        if self._faults.away is not None:
            for machine in inner.machines:
                self._plan_outages(machine.name, random.Random(f"{seed}/{machine.name}"))
        for name, begin, end in self._faults.outages:
            self._at(begin, functools.partial(self._leave, name))
            self._at(end, functools.partial(self._away.discard, name))

    @property
    def machines(self) -> tuple[Machine, ...]:
        """See `Executor.machines`."""
        return self._inner.machines

    def down(self) -> frozenset[str]:
        """See `Executor.down`."""
        return self._known_down

    def now(self) -> float:
        """See `Executor.now`."""
        return self._inner.now()

    def start(self, attempt: Attempt) -> float:
        """See `Executor.start`."""
        self._occupancy.take(attempt)
        now = self.now()
        run = _Run(attempt, now)
        self._runs[attempt.job] = run
        if attempt.machine in self._known_down:
            self._report(run, "lost", None, _went_away(attempt))
            return now
        fate = self._faults.fate(self._seed, attempt)
        delay = self._faults.delay(self._seed, attempt)
        if fate is not None:
            what, after = fate
            run.hangs = what == "hang"
            self._at(now + after, lambda: self._strike(run, what))
        if delay:
            self._at(now + min(delay, attempt.timeout), lambda: self._start_late(run, delay))
            return now
        started = self._inner.start(attempt)
        run.started, run.inside = started, True
        return started

    def poll(self, until: float = math.inf) -> list[Outcome]:
        """See `Executor.poll`."""
        while True:
            self._happen()
            changed = self._see_down()
            now = self.now()
            idle = not self._runs and math.isinf(until)
            if self._ended or changed or idle or now >= until:
                break
            limit = min(until, self._events[0][0] if self._events else math.inf)
            outcomes = self._inner.poll(limit)
            for outcome in outcomes:
                self._note(outcome)
            if not outcomes and self.now() < limit:  # woken, or a machine of the inner one
                self._see_down()
                break
        ended, self._ended = self._ended, []
        return ended

    def preempt(self, job: str, grace: float | None = None) -> None:
        """See `Executor.preempt`."""
        self._ask(job, "preempt", grace)

    def stop(self, job: str, grace: float | None = None) -> None:
        """See `Executor.stop`."""
        self._ask(job, "stop", grace)

    def close(self) -> None:
        """See `Executor.close`."""
        self._inner.close()
        self._runs.clear()

    # --- what happens at a time ----------------------------------------------------------------

    def _at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, self._order, what))
        self._order += 1

    def _happen(self) -> None:
        while self._events and self._events[0][0] <= self.now():
            heapq.heappop(self._events)[2]()

    def _plan_outages(self, name: str, draw: random.Random) -> None:
        """The next outage of a machine; its end plans the one after it."""
        assert self._faults.away is not None
        begin = self.now() + draw.expovariate(1 / self._faults.away)
        end = begin + draw.expovariate(1 / self._faults.back)

        def come_back() -> None:
            self._away.discard(name)
            self._plan_outages(name, draw)

        self._at(begin, functools.partial(self._leave, name))
        self._at(end, come_back)

    def _leave(self, name: str) -> None:
        """A machine goes away, with all that runs on it."""
        self._away.add(name)
        for run in list(self._runs.values()):
            if run.attempt.machine != name:
                continue
            if run.asked == "stop":  # cancelled all the same, now at once
                self._inner.stop(run.attempt.job, grace=0.0)
            else:
                self._kill(run, "lost", None, _went_away(run.attempt))

    def _start_late(self, run: _Run, delay: float) -> None:
        if self._runs.get(run.attempt.job) is not run or run.verdict is not None:
            return
        left = run.attempt.timeout - delay
        if left <= 0:
            limit = f"ran longer than its timeout of {run.attempt.timeout:g} s"
            self._report(run, "timeout", None, limit)
            return
        run.inside = True
        self._inner.start(replace(run.attempt, timeout=left))

    def _strike(self, run: _Run, what: str) -> None:
        """The time of a crash, of a loss, or of the end of somebody's patience with a hang."""
        if self._runs.get(run.attempt.job) is not run or run.asked:
            return
        if what == "crash":
            self._kill(run, "failed", 1, "exit status 1 (injected)")
        elif what == "lost":
            self._kill(run, "lost", -9, "killed by SIGKILL (injected)")
        else:
            limit = f"ran longer than its timeout of {run.attempt.timeout:g} s (injected hang)"
            self._kill(run, "timeout", None, limit)

    # --- ends ----------------------------------------------------------------------------------

    def _kill(self, run: _Run, status: Status, exit_code: int | None, reason: str) -> None:
        """End an attempt that is to be reported as said, once the inner one has ended it."""
        run.verdict = run.verdict or (status, exit_code, reason)
        if run.inside:
            self._inner.stop(run.attempt.job, grace=0.0)
        else:
            self._report(run, *run.verdict)

    def _ask(self, job: str, how: str, grace: float | None) -> None:
        run = self._runs.get(job)
        if run is None or run.verdict is not None or (how == "preempt" and run.asked):
            return
        run.asked = how
        if run.inside:
            getattr(self._inner, how)(job, grace)
        elif how == "stop":  # a hang whose process is over, or a start that has not come
            self._report(run, "cancelled", None, "stopped")
        else:
            reason = "made to leave its machine; it did not say that it saved its state"
            self._report(run, "preempted", None, reason)

    def _note(self, outcome: Outcome) -> None:
        """An end that the inner executor reports."""
        run = self._runs[outcome.attempt.job]
        run.inside = False
        if run.verdict is not None:
            self._report(run, *run.verdict, outcome.log)
        elif run.hangs and not run.asked and outcome.status == "done":
            return  # nobody hears of it until the timeout
        else:
            self._report(run, outcome.status, outcome.exit_code, outcome.reason, outcome.log)

    def _report(
        self,
        run: _Run,
        status: Status,
        exit_code: int | None,
        reason: str,
        log: str | None = None,
    ) -> None:
        del self._runs[run.attempt.job]
        self._occupancy.release(run.attempt.job)
        end = self.now()
        self._ended.append(Outcome(run.attempt, status, run.started, end, exit_code, reason, log))

    def _see_down(self) -> bool:
        """Take note of the machines that are away; whether that has changed."""
        before = self._known_down
        self._known_down = self._inner.down() | self._away
        return self._known_down != before


def _went_away(attempt: Attempt) -> str:
    return f"machine {attempt.machine!r} went away"
