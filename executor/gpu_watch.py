"""The health of the GPUs while a queue runs: what the driver says of them, looked at now and then.

A thread of its own looks: a driver whose GPU has fallen off the bus may take long to say so, and no
decision waits for it. NVML is opened anew for every look, because a GPU that somebody has open
cannot be reset, and that is what a drained one waits for.

Only what two looks in a row agree on counts: running jobs are moved on account of it.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched.executor.discovery import Device, Discovery
    from hetsched.executor.protocol import Machine

LOOK_SECONDS = 15.0
CONFIRM_SECONDS = 1.0  # until the second look at something new
FIRST_SECONDS = 5.0  # for which a queue waits at most before it gives work to GPUs


@dataclass(frozen=True)
class Condition:
    """What the driver says of the machines.

    Attributes:
        broken: machines that cannot work, with the reason; all units of one GPU's machine.
        well: machines of which it says that they can. Of others it says nothing.
        suspect: those of the well ones about which there is something to say.
    """

    broken: Mapping[str, str] = field(default_factory=dict)
    well: frozenset[str] = frozenset()
    suspect: Mapping[str, str] = field(default_factory=dict)


def examine(found: Discovery, machines: Iterable[Machine], seen: set[str]) -> Condition | None:
    """The condition of the machines' GPUs; None: there is no driver to ask.

    Args:
        found: what is there now.
        machines: whose devices are UUIDs, beginnings of UUIDs, or numbers.
        seen: devices that have been there before; it is brought up to date. One that has never been
            is left to whoever wrote the machines, one that is gone is broken.
    """
    if found.driver is None and not found.devices:
        return None
    broken: dict[str, str] = {}
    well: set[str] = set()
    suspect: dict[str, str] = {}
    for machine in machines:
        found_all, problems = bool(machine.devices), []
        for name in machine.devices:
            here = [one for one in found.devices if _is(one, name)]
            # A GPU off the bus may keep its place in the list and say nothing any more.
            if here and any(one.health.verdict != "unknown" for one in here):
                seen.add(f"{name} tells")
            elif f"{name} tells" in seen:
                here = []
            if here:
                seen.add(name)
            fatal = [phrase for one in here for phrase in one.health.fatal]
            if fatal:
                broken.setdefault(machine.name, f"GPU {name} {fatal[0]}")
            elif not here and name in seen:
                broken.setdefault(machine.name, f"GPU {name} does not answer any more")
            found_all &= bool(here)
            problems += [f"GPU {name}: {phrase}" for one in here for phrase in one.health.problems]
        if machine.name not in broken and found_all:
            well.add(machine.name)
            if problems:
                suspect[machine.name] = ", ".join(problems)
    return Condition(broken, frozenset(well), suspect)


def _is(device: Device, name: str) -> bool:
    return device.index == int(name) if name.isdecimal() else device.uuid.startswith(name)


class GpuWatch:
    """Looks at the GPUs of a queue's machines until it is closed.

    Args:
        machines: of the queue; without a GPU among them nothing is looked at.
        look: finds the GPUs; None: through NVML.
        every: seconds between two looks; confirm: between the first and second at something new.
    """

    def __init__(
        self,
        machines: Iterable[Machine],
        look: Callable[[], Discovery] | None = None,
        every: float = LOOK_SECONDS,
        confirm: float = CONFIRM_SECONDS,
    ) -> None:
        self._machines = [one for one in machines if one.kind == "gpu"]
        self._look, self._every, self._confirm = look, every, confirm
        self._agreed: Condition | None = None
        self._sentences: deque[str] = deque()
        self._said: set[str] = set()
        self._known = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hetsched-gpus", daemon=True)
        if self._machines:
            self._thread.start()
            self._known.wait(FIRST_SECONDS)

    def condition(self) -> Condition | None:
        """The latest that two looks agree on, the same object until it changes; None: none yet."""
        return self._agreed

    def news(self) -> list[str]:
        """What people should know of GPUs that go on working, each sentence once."""
        return [self._sentences.popleft() for _ in range(len(self._sentences))]

    def close(self) -> None:
        """Look no more. A driver that hangs is left alone with its thread."""
        self._closing.set()
        if self._machines:
            self._thread.join(timeout=1.0)

    def _watch(self) -> None:
        seen: set[str] = set()
        before: Condition | None = None
        while True:
            try:
                now = self._examine(seen)
            except Exception as error:  # of a binding that is like none known
                what = f"{type(error).__name__}: {error}"
                self._sentences.append(f"the GPUs' health is watched no more ({what})")
                now = before = None
            if now is None and before is None:  # no driver: nothing will ever be said
                self._known.set()
                return
            settled = now is None
            if now is not None:
                if before is None and not (now.broken or now.suspect):
                    before = now
                if before is not None:
                    self._agree(before, now)
                    settled = before.broken.keys() == now.broken.keys()
                before = now
            if self._closing.wait(self._every if settled else self._confirm):
                return

    def _examine(self, seen: set[str]) -> Condition | None:
        if self._look is not None:
            return examine(self._look(), self._machines, seen)
        from hetsched.executor.discovery import discover

        return examine(discover(), self._machines, seen)

    def _agree(self, before: Condition, now: Condition) -> None:
        """Publish what two looks have in common."""
        both = Condition(
            {name: why for name, why in now.broken.items() if name in before.broken},
            before.well & now.well,
            {name: what for name, what in now.suspect.items() if name in before.suspect},
        )
        if both != self._agreed:
            self._agreed = both
        for machine, what in both.suspect.items():
            kind = re.sub(r"\d+ ", "", f"{machine}: {what}")  # not anew for every further error
            if kind not in self._said:
                self._said.add(kind)
                self._sentences.append(f"machine {machine!r} goes on working, but {what} (NVML)")
        self._known.set()
