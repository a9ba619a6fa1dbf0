"""What people are shown of a queue, read from its state."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hetsched.executor import store
from hetsched.executor.exits import file_name
from hetsched.executor.overview import JobStatus, MachineStatus, Overview, clock_time
from hetsched.executor.progress import SUFFIX, read_share
from hetsched.executor.records import job_from_json
from hetsched.executor.waiting import KEPT_BY_POLICY, Held, why_waiting

if TYPE_CHECKING:
    from hetsched.executor.store_client import Client


def read_overview(client: Client, limit: int | None, names: Sequence[str]) -> Overview:
    """As :meth:`Client.overview`, for names that are there."""
    meta = store.read_meta(client.file)
    counts = dict(client.file.execute("SELECT status, count(*) FROM jobs GROUP BY status"))
    number, mean = client.file.execute(
        "SELECT count(*), coalesce(avg(seconds), 0) FROM decisions"
    ).fetchone()
    notes = client.file.execute("SELECT at, text FROM notes ORDER BY id DESC LIMIT 10").fetchall()
    machines, jobs = _machines(client), _jobs(client, limit, names)
    running = [one for one in _jobs(client, 0, ()) if one.status == "running"]
    now = client.now()
    return Overview(
        now=now,
        began=float(meta["began"]),
        counts=counts,
        jobs=tuple(_explained(client, jobs, running, machines, now, float(meta["began"]))),
        machines=machines,
        scheduler=store.is_locked(client.folder),
        decisions=number,
        mean_decision=mean,
        notes=tuple(reversed(notes)),
    )


def _machines(client: Client) -> tuple[MachineStatus, ...]:
    used = dict(
        client.file.execute(
            "SELECT machine, sum(demand) FROM attempts WHERE status = 'running' GROUP BY machine"
        )
    )
    drained = {
        name: (why, math.inf if until is None else until)
        for name, why, until in client.file.execute("SELECT name, drained, until FROM machines")
    }
    away: dict[str, float] = {}
    if store.is_locked(client.folder):  # what the last scheduler saw says nothing about now
        away = json.loads(store.read_meta(client.file).get("away", "{}"))
    return tuple(
        MachineStatus(one, used.get(one.name, 0), *drained[one.name], away.get(one.name))
        for one in client.machines
    )


def _jobs(client: Client, limit: int | None, names: Sequence[str]) -> list[JobStatus]:
    """Running ones, then waiting ones, then those that are over, the latest first."""
    if names:
        marks = ",".join("?" * len(names))
        return _select(client, f"name IN ({marks}) ORDER BY jobs.id", tuple(names))
    many = -1 if limit is None else limit
    found = _select(client, "jobs.status = 'running' ORDER BY started, jobs.id")
    found += _select(client, "jobs.status = 'waiting' ORDER BY jobs.id LIMIT ?", (many,))
    over = "jobs.status NOT IN ('waiting', 'running') ORDER BY ended DESC, jobs.id LIMIT ?"
    return found + _select(client, over, (many,))


def _select(client: Client, condition: str, values: tuple[object, ...] = ()) -> list[JobStatus]:
    rows = client.file.execute(
        "SELECT jobs.definition, jobs.status, jobs.reason, jobs.asked, coalesce(number, 0), "
        "machine, coalesce(demand, 0), started, ended, expected, log "
        "FROM jobs LEFT JOIN attempts ON job = id "
        "AND number = (SELECT max(number) FROM attempts WHERE job = jobs.id) "
        f"WHERE {condition}",
        values,
    )
    return [JobStatus(job_from_json(text), *rest) for text, *rest in rows]


def _explained(
    client: Client,
    jobs: Sequence[JobStatus],
    running: Sequence[JobStatus],
    machines: Sequence[MachineStatus],
    now: float,
    began: float,
) -> Iterable[JobStatus]:
    """With the progress of those that run and the reason why the others wait."""
    held = [Held(one.job.name, str(one.machine), one.demand, _end(one, now)) for one in running]
    closed = {one.machine.name: one.closed for one in machines if one.closed}
    first = _first(client)
    alive = store.is_locked(client.folder)
    logs = client.logs()
    for one in jobs:
        if one.status == "running":
            path = logs / file_name(one.job.name, one.attempts, SUFFIX)
            yield replace(one, progress=read_share(path, one.job.steps))
            continue
        if one.status != "waiting":
            yield one
            continue
        open_before = [
            name
            for name, status in client.statuses(one.job.after).items()
            if status in store.OPEN_STATUSES
        ]
        why = why_waiting(
            one.job,
            [machine.machine for machine in machines],
            held,
            now,
            closed=closed,
            unfinished=open_before,
            first=first,
            say_when=lambda at: clock_time(began + at),
        )
        if not alive and why == KEPT_BY_POLICY:
            why = "could start, but no scheduler runs"
        again = f" (again: {one.reason})" if one.reason else ""
        yield replace(one, reason=why + again)


def _first(client: Client) -> dict[str, int]:
    """Of every machine, the highest priority of a waiting job that may use it."""
    rows = client.file.execute(
        "SELECT definition FROM jobs WHERE status = 'waiting' AND "
        "json_extract(definition, '$.priority') > 0"
    )
    first: dict[str, int] = {}
    for (text,) in rows:
        job = job_from_json(text)
        for mode in job.modes:
            first[mode.machine] = max(first.get(mode.machine, job.priority), job.priority)
    return first


def _end(one: JobStatus, now: float) -> float:
    started = now if one.started is None else one.started
    return math.inf if one.expected is None else started + one.expected
