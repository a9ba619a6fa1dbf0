"""Which machines get no work at the moment: those that are away, and those that are drained.

Drained are machines whose jobs fail, whose GPU the driver calls broken, or that somebody drained by
hand; `hetsched.executor.health` says for how long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched.executor.gpu_watch import Condition, GpuWatch
    from hetsched.executor.health import Health
    from hetsched.executor.ledger import Ledger
    from hetsched.executor.protocol import Executor, Outcome


class Closures:
    """Keeps them, writes them down, and tells people.

    Args:
        health: of the machines; executor: knows which are away; ledger: remembers.
        say: tells people a sentence at a time.
        gpus: what the driver says; None: nothing.
    """

    def __init__(
        self,
        health: Health,
        executor: Executor,
        ledger: Ledger,
        say: Callable[[float, str], None],
        gpus: GpuWatch | None = None,
    ) -> None:
        self._health, self._executor, self._ledger = health, executor, ledger
        self._say, self._gpus = say, gpus
        self._condition: Condition | None = None
        self._away: dict[str, float] | None = None  # since when; None: not even asked

    @property
    def drained(self) -> dict[str, str]:
        """Machines whose jobs are to leave, with the reason."""
        return self._health.drained

    @property
    def watches(self) -> bool:
        """Whether the driver is asked, so that something may change without an event."""
        return self._gpus is not None

    def next_trial(self) -> float:
        """When a drained machine gets work again by itself."""
        return self._health.next_trial()

    def now(self, now: float) -> frozenset[str]:
        """The machines that get no work at this time; what has changed is told."""
        for name in self._health.end_probations(now):
            self._tell(name, now)
        self._heed_driver(now)
        away = self._executor.down()
        self._heed_away(away, now)
        return away | self._health.drained.keys()

    def drain(self, name: str, reason: str, now: float) -> None:
        """By hand."""
        self._health.drain(name, reason)
        self._tell(name, now)

    def undrain(self, name: str, now: float) -> None:
        """By hand."""
        self._health.undrain(name)
        self._tell(name, now)

    def ended(self, outcome: Outcome, machine_failed: bool) -> None:
        """An attempt has ended there, well or by the machine's fault or neither."""
        attempt = outcome.attempt
        if outcome.status == "done":
            self._health.succeeded(attempt.machine)
        elif machine_failed and attempt.machine not in self._executor.down():
            for name in self._health.failed(attempt.machine, attempt.job, outcome.ended):
                self._tell(name, outcome.ended)

    def _heed_driver(self, now: float) -> None:
        if self._gpus is None:
            return
        for sentence in self._gpus.news():
            self._say(now, sentence)
        condition = self._gpus.condition()
        if condition is None or condition is self._condition:
            return
        self._condition = condition
        for name in self._health.inspected(condition.broken, condition.well):
            self._tell(name, now)

    def _heed_away(self, names: frozenset[str], now: float) -> None:
        before = self._away
        if before is not None and names == before.keys():
            return
        self._away = {name: (before or {}).get(name, now) for name in sorted(names)}
        self._ledger.away(self._away)
        for name in sorted(names - (before or {}).keys()):
            self._say(now, f"machine {name!r} is away: it cannot be reached")
        for name in sorted((before or {}).keys() - names):
            self._say(now, f"machine {name!r} is back")

    def _tell(self, name: str, now: float) -> None:
        reason, until = self._health.drained.get(name, ""), self._health.until(name)
        self._ledger.machine(name, reason, until)
        back = f"; it is tried again in {until - now:.0f} s" if math.isfinite(until) else ""
        what = f"is drained: {reason}{back}" if reason else "gets work again"
        self._say(now, f"machine {name!r} {what}")
