"""What soak.py looks at: jobs and attempts in the state, what jobs have said, processes, memory."""

from __future__ import annotations

import collections
import contextlib
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hetsched.executor import store
from hetsched.executor.exits import Exits
from hetsched.executor.overview import FINAL
from hetsched.executor.store_client import Client

WARM_JOBS = 200  # after which everything has been loaded


@dataclass(frozen=True)
class Sample:
    """The memory of a scheduler at a moment.

    Attributes:
        scheduler: how many were killed before it; over: jobs that were over; mb: resident.
    """

    scheduler: int
    over: int
    mb: float


def over(state: Path) -> int:
    """How many jobs are in a final state."""
    with contextlib.closing(store.connect(state)) as file:
        query = "SELECT count(*) FROM jobs WHERE status NOT IN (?, ?)"
        (count,) = file.execute(query, store.OPEN_STATUSES).fetchone()
        return int(count)


def attempts(state: Path) -> dict[tuple[str, int], bool]:
    """Every attempt, by job and number: whether it went away with its machine."""
    with contextlib.closing(store.connect(state)) as file:
        query = (
            "SELECT name, number, attempts.status = 'lost' AND attempts.reason LIKE '%went away%' "
            "FROM attempts JOIN jobs ON jobs.id = job"
        )
        return {(name, number): bool(away) for name, number, away in file.execute(query)}


def ran_to_their_end(ends: Path) -> dict[tuple[str, int], int]:
    """How often each attempt has said that it has come to its end."""
    text = ends.read_text(encoding="utf-8") if ends.exists() else ""
    parts = (line.rpartition("/") for line in text.splitlines())
    return collections.Counter((name, int(number or 0)) for name, _, number in parts)


def mistakes(state: Path, ends: Path, right: dict[str, str]) -> list[str]:
    """Jobs that are in no final state, in a wrong one, or ran to their end too often.

    What was killed with its machine counts as not run, whatever it has said.
    """
    wrong = []
    tried = attempts(state)
    said = ran_to_their_end(ends)
    times = collections.Counter[str]()
    for (name, number), count in said.items():
        times[name] += count - tried.get((name, number), False)
    with contextlib.closing(Client(state)) as client:
        found = {one.job.name: one.status for one in client.overview().jobs}
    if found.keys() != right.keys():
        wrong.append(f"{len(right)} jobs went in, {len(found)} are there")
    for name, status in found.items():
        if status not in FINAL:
            wrong.append(f"{name} is {status}")
        elif status != right[name]:
            wrong.append(f"{name} is {status} and should be {right[name]}")
        if times[name] != (status == "done"):
            wrong.append(f"{name} is {status} and ran to its end {times[name]} times")
    return wrong[:20]


def left_behind(state: Path, identity: str) -> list[str]:
    living = Exits(state / store.EXITS, identity).marked()
    return [f"process {one.pid} of {one.job} is still there" for one in living]


def memory_mb(process: int) -> float:
    with contextlib.suppress(OSError, IndexError, ValueError):
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def mb_per_1000_jobs(samples: Sequence[Sample]) -> float | None:
    """The slope of the last scheduler's memory (least squares), its first WARM_JOBS left out.

    None: it saw too few jobs after these.
    """
    last = [one for one in samples if one.scheduler == samples[-1].scheduler] if samples else []
    last = [one for one in last if one.over >= last[0].over + WARM_JOBS]
    if len(last) < 3 or last[-1].over < last[0].over + 500:
        return None
    over = [one.over / 1000 for one in last]
    slope, _ = statistics.linear_regression(over, [one.mb for one in last])
    return slope
