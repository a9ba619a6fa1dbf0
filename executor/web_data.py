"""A snapshot as the plain data of the web page's JSON (times in seconds of the queue's clock)."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from hetsched.executor.status_data import as_dict

if TYPE_CHECKING:
    from hetsched.executor.snapshot import Bar, Snapshot


def queue_data(snapshot: Snapshot) -> dict[str, Any]:
    """What ``dispatch.py status --json`` says, and what the charts need."""
    said = as_dict(snapshot.overview)
    clock = snapshot.clock
    for machine in said["machines"]:
        busy = snapshot.busy.get(machine["machine"], 0.0)
        machine["busy_unit_seconds"] = busy
        machine["utilisation"] = busy / (machine["capacity"] * clock) if clock > 0 else 0.0
    return {
        **said,
        "name": snapshot.name,
        "objective": snapshot.objective,
        "clock": clock,
        "finish": snapshot.finish,
        "attempts": snapshot.attempts,
        "bars": [_bar(one) for one in snapshot.bars],
        "failures": [_bar(one) for one in snapshot.failures],
    }


def _bar(bar: Bar) -> dict[str, Any]:
    said = dataclasses.asdict(bar)
    if bar.expected is not None and not math.isfinite(bar.expected):
        said["expected"] = None
    return said
