"""Machines of this computer that go away, with all that runs there, and come back: for soak.py."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from hetsched.executor.faults import Faults, FaultyExecutor, _Run

if TYPE_CHECKING:
    from hetsched.executor.local import LocalExecutor
    from hetsched.executor.protocol import Attempt

SHORTEST, LONGEST = 0.5, 2.0  # seconds that a machine is away
FAR = 100_000.0  # seconds for which outages are planned: longer than anybody waits


def plan(names: list[str], now: float, every: float, seed: int) -> Faults:
    """Outages from `now` on, of each machine once in `every` seconds on average."""
    outages = []
    for name in names:
        draw = random.Random(f"{seed}/{name}")
        begin = now + draw.expovariate(1 / every)
        while begin < now + min(FAR, 1000 * every):
            end = begin + draw.uniform(SHORTEST, LONGEST)
            outages.append((name, begin, end))
            begin = end + draw.expovariate(1 / every)
    return Faults(outages=tuple(outages))


class OutageExecutor(FaultyExecutor):
    """A local executor whose machines are not always there.

    Args:
        inner: freshly opened; it is closed with this one.
        every: mean seconds between the outages of a machine.
        seed: of the outages.
        told: called with the machine's name when one begins.
    """

    def __init__(
        self, inner: LocalExecutor, every: float, seed: int, told: Callable[[str], None]
    ) -> None:
        names = [machine.name for machine in inner.machines]
        super().__init__(inner, plan(names, inner.now(), every, seed))
        self._local = inner
        self._told = told

    def adopt(self, attempt: Attempt, started: float) -> bool:
        """See `LocalExecutor.adopt`."""
        if not self._local.adopt(attempt, started):
            return False
        self._occupancy.take(attempt)
        self._runs[attempt.job] = _Run(attempt, started, inside=True)
        return True

    def _leave(self, name: str) -> None:
        self._told(name)
        super()._leave(name)
