"""When a queue should be over: what runs, and then each waiting job where it would end first.

No more than a guide for people. The policy decides otherwise, estimates are wrong, jobs fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched.executor.protocol import Machine
    from hetsched.executor.queue import Job
    from hetsched.executor.waiting import Held


def finish_time(
    now: float,
    machines: Iterable[Machine],
    held: Iterable[Held],
    waiting: Iterable[Job],
    opens: Mapping[str, float],
    unseen: float = 1.0,
) -> float | None:
    """When the last job should end, on the queue's clock; None: nobody knows.

    Args:
        now: the queue's clock.
        held: what running jobs hold. One that is late is taken to end now.
        waiting: jobs in the order of the queue.
        opens: machines that get no work, and when they will again (infinity: not known).
        unseen: how many jobs wait for each of `waiting`; the time for these is multiplied.
    """
    free = {one.name: [max(now, opens.get(one.name, now))] * one.capacity for one in machines}
    last = now
    for one in held:
        units = free.get(one.machine)
        if one.until == math.inf or units is None:
            return None
        until = max(now, one.until)
        last = max(last, until)
        units.sort()
        units[: one.units] = [max(until, at) for at in units[: one.units]]
    busy_until = last
    ends: dict[str, float] = {}
    for job in sorted(waiting, key=lambda one: -one.priority):  # stable: else the queue's order
        ready = max([now, job.release, *(ends.get(name, now) for name in job.after)])
        best: tuple[float, list[float], int] | None = None
        for mode in job.modes:
            units = free.get(mode.machine, [])
            if mode.demand > len(units):
                continue
            units.sort()
            end = max(ready, units[mode.demand - 1]) + mode.seconds
            if best is None or end < best[0]:
                best = (end, units, mode.demand)
        if best is None or best[0] == math.inf:
            return None
        end, units, demand = best
        units[:demand] = [end] * demand
        ends[job.name] = end
        last = max(last, end)
    return now + max((last - now) * unseen if ends else 0.0, busy_until - now)
