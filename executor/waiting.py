"""Why a job waits, in words: what it needs, what there is, and when there may be enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched.executor.protocol import Machine
    from hetsched.executor.queue import Job, Mode

KEPT_BY_POLICY = "was kept waiting by the policy"


@dataclass(frozen=True)
class Held:
    """Units of a machine that a running job has, and the time at which it should end."""

    job: str
    machine: str
    units: int
    until: float


def seconds_from(now: float) -> Callable[[float], str]:
    """Says a time of the queue's clock as "in about 12 s"."""
    return lambda at: f"in about {max(0.0, at - now):.0f} s"


def why_waiting(
    job: Job,
    machines: Sequence[Machine],
    held: Sequence[Held],
    now: float,
    *,
    closed: Mapping[str, str],
    unfinished: Collection[str],
    first: Mapping[str, int] | None = None,
    say_when: Callable[[float], str] | None = None,
) -> str:
    """One phrase, to go after the job's name.

    Args:
        job: a waiting job.
        machines: all there are.
        held: what running jobs hold of them.
        now: the queue's clock.
        closed: machines that get no work, with the reason.
        unfinished: names of the jobs that are not over.
        first: for machines that are kept for jobs of a higher priority, that priority.
        say_when: a time for people (default: "in about 12 s").
    """
    when = say_when or seconds_from(now)
    if job.release > now:
        return f"is released only {when(job.release)}"
    for before in job.after:
        if before in unfinished:
            return f"comes after {before!r}, which had not ended"
    capacity = {machine.name: machine.capacity for machine in machines}
    open_modes = [one for one in job.modes if one.machine not in closed]
    if not open_modes:
        name = job.modes[0].machine
        return f"can only use machines that get no work: {name!r} {closed[name]}"
    taken: dict[str, int] = {}
    for one in held:
        taken[one.machine] = taken.get(one.machine, 0) + one.units
    free = {name: units - taken.get(name, 0) for name, units in capacity.items()}
    fitting = [mode for mode in open_modes if mode.demand <= free[mode.machine]]
    for mode in fitting:
        if first is None or first.get(mode.machine, job.priority) <= job.priority:
            return KEPT_BY_POLICY
    if fitting:
        mode = fitting[0]
        assert first is not None
        return f"lets jobs of priority {first[mode.machine]} go first on {mode.machine!r}"
    best, at = min(
        ((mode, _when_free(mode, free[mode.machine], held)) for mode in open_modes),
        key=lambda one: one[1] + one[0].seconds,
    )
    together = " together" if best.demand > 1 else ""
    later = f"next {when(at)}"
    if at <= now:
        later = "next should have been by now"
    elif at == math.inf:
        later = "nobody knows when there are more"
    return f"needs {best.demand} of {best.machine!r}{together}; {free[best.machine]} free; {later}"


def _when_free(mode: Mode, free: int, held: Sequence[Held]) -> float:
    """When enough units of the machine should be free; infinity if no such time is known."""
    here = [one for one in held if one.machine == mode.machine]
    for one in sorted(here, key=lambda one: one.until):
        free += one.units
        if free >= mode.demand:
            return one.until
    return math.inf
