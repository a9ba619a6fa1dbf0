"""A queue's overview as plain data: what ``dispatch.py status --json`` and the web page say."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetsched.executor.overview import JobStatus, MachineStatus, Overview


def as_dict(overview: Overview) -> dict[str, Any]:
    """What there is to see as plain data (times in seconds of the queue's clock)."""
    return {
        "now": overview.now,
        "began": overview.began,
        "scheduler": overview.scheduler,
        "counts": overview.counts,
        "decisions": {"count": overview.decisions, "mean_ms": 1000 * overview.mean_decision},
        "machines": [
            {
                "machine": one.machine.name,
                "type": one.machine.type,
                "capacity": one.machine.capacity,
                "used": one.used,
                "drained": one.drained,
                "until": one.until if math.isfinite(one.until) else None,
                "away": one.away,
            }
            for one in overview.machines
        ],
        "jobs": [_job(one) for one in overview.jobs],
        "notes": [{"at": at, "text": text} for at, text in overview.notes],
    }


def why_closed(one: MachineStatus, now: float) -> str:
    """Why a machine gets no work and when that may end, for people; empty: it gets some."""
    from hetsched.executor.report import duration  # slow: numpy

    said = []
    if one.away is not None:
        said.append(f"away for {duration(max(0.0, now - one.away))}, cannot be reached")
    if one.drained:
        said.append(f"drained: {one.drained}")
        if math.isfinite(one.until):
            said[-1] += f"; tried again in {duration(max(0.0, one.until - now))}"
    return ", ".join(said)


def _job(one: JobStatus) -> dict[str, Any]:
    said = {
        field.name: getattr(one, field.name)
        for field in dataclasses.fields(one)
        if field.name != "job"
    }
    return {
        "job": one.job.name,
        "priority": one.job.priority,
        "weight": one.job.weight,
        "release": one.job.release,
        "due": one.job.due if math.isfinite(one.job.due) else None,
        **said,
    }
