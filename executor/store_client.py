"""The other side of a state: adding to it and reading it while its scheduler runs, or does not.

A submitted job is safe when the command returns: it is in the file. Requests wait there until the
scheduler has carried them out. Imports nothing heavy.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.executor import store
from hetsched.executor.exits import file_name
from hetsched.executor.overview import FINAL, JobStatus, MachineStatus, Overview, clock_time
from hetsched.executor.progress import SUFFIX, read_share
from hetsched.executor.queue import QueueError, check_jobs
from hetsched.executor.records import job_from_json
from hetsched.executor.waiting import KEPT_BY_POLICY, Held, why_waiting

if TYPE_CHECKING:
    from hetsched.executor.ledger import Request
    from hetsched.executor.protocol import Machine
    from hetsched.executor.queue import Job

__all__ = ["FINAL", "Client", "JobStatus", "MachineStatus", "Overview", "clock_time"]


class Client:
    """A queue's state, from another process than its scheduler's.

    Args:
        folder: of the state.

    Raises:
        StoreError: it holds none.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._file = store.connect(self.folder)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    @property
    def machines(self) -> tuple[Machine, ...]:
        """Of the queue."""
        return store.read_machines(self._file)

    def now(self) -> float:
        """The queue's clock, as the wall clock tells it."""
        return max(0.0, time.time() - float(store.read_meta(self._file)["began"]))

    # ---- writing -------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[Job]) -> None:
        """Append jobs. Their release and due times count from now. All come in, or none.

        Raises:
            QueueError: a name is taken, or a job can never run.
        """
        now = self.now()
        shifted = [replace(job, release=job.release + now, due=job.due + now) for job in jobs]
        with store.transaction(self._file):
            known = self._statuses(
                {job.name for job in jobs} | {x for job in jobs for x in job.after}
            )
            names: set[str] = set()
            for job in jobs:
                if job.name in known or job.name in names:
                    raise QueueError(f"job {job.name!r}: name is used already; give it another.")
                names.add(job.name)
                for before in job.after:
                    if known.get(before, "done") not in (*store.OPEN_STATUSES, "done"):
                        raise QueueError(
                            f"job {job.name!r}: after names {before!r}, which ended as "
                            f"{known[before]}; it could never run."
                        )
            check_jobs(jobs, self.machines, known)
            store.insert_jobs(self._file, shifted)
        store.ring(self.folder)

    def request(self, requests: Iterable[Request]) -> None:
        """Leave requests for the scheduler."""
        with store.transaction(self._file):
            self._file.executemany(
                "INSERT INTO requests (kind, name, value) VALUES (?, ?, ?)",
                [(one.kind, one.name, one.value) for one in requests],
            )
        store.ring(self.folder)

    def status_of(self, names: Sequence[str]) -> dict[str, str]:
        """Status of the named jobs.

        Raises:
            QueueError: there is none of a name.
        """
        known = self._statuses(names)
        for name in names:
            if name not in known:
                raise QueueError(
                    f"there is no job {name!r} in {self.folder}; see status for names."
                )
        return known

    def is_over(self, name: str) -> bool:
        """Whether a job neither waits nor runs."""
        return self._statuses([name]).get(name) not in store.OPEN_STATUSES

    def log_of(self, name: str, attempt: int | None = None) -> Path:
        """Where the output of an attempt is (None: of the latest).

        Raises:
            QueueError: there is no such job or attempt.
        """
        self.status_of([name])
        row = self._file.execute(
            "SELECT number, log FROM attempts JOIN jobs ON jobs.id = job WHERE name = ? "
            "AND (number = ? OR ? IS NULL) ORDER BY number DESC LIMIT 1",
            (name, attempt, attempt),
        ).fetchone()
        if row is None:
            which = "has not run yet" if attempt is None else f"has no attempt {attempt}"
            raise QueueError(f"job {name!r} {which}; see status.")
        number, log = row
        return Path(log) if log else self._logs() / file_name(name, number, "log")

    def _logs(self) -> Path:
        return Path(store.read_meta(self._file).get("logs", self.folder / store.LOGS))

    def _statuses(self, names: Iterable[str]) -> dict[str, str]:
        found = {}
        for name in names:
            row = self._file.execute("SELECT status FROM jobs WHERE name = ?", (name,)).fetchone()
            if row is not None:
                found[name] = row[0]
        return found

    # ---- reading -------------------------------------------------------------------------------

    def overview(self, limit: int | None = None, names: Sequence[str] = ()) -> Overview:
        """What there is to see.

        Args:
            limit: of the jobs that wait and of those that are over, so many at most: the next
                and the latest. None: all.
            names: only these jobs.

        Raises:
            QueueError: there is no job of a name.
        """
        if names:
            self.status_of(names)
        meta = store.read_meta(self._file)
        counts = dict(self._file.execute("SELECT status, count(*) FROM jobs GROUP BY status"))
        number, mean = self._file.execute(
            "SELECT count(*), coalesce(avg(seconds), 0) FROM decisions"
        ).fetchone()
        notes = self._file.execute(
            "SELECT at, text FROM notes ORDER BY id DESC LIMIT 10"
        ).fetchall()
        machines, jobs = self._machines(), self._jobs(limit, names)
        running = [one for one in self._jobs(0, ()) if one.status == "running"]
        now = self.now()
        return Overview(
            now=now,
            began=float(meta["began"]),
            counts=counts,
            jobs=tuple(self._explained(jobs, running, machines, now, float(meta["began"]))),
            machines=machines,
            scheduler=store.is_locked(self.folder),
            decisions=number,
            mean_decision=mean,
            notes=tuple(reversed(notes)),
        )

    def num_attempts(self) -> int:
        """How many attempts there were."""
        (number,) = self._file.execute("SELECT count(*) FROM attempts").fetchone()
        return int(number)

    def _machines(self) -> tuple[MachineStatus, ...]:
        used = dict(
            self._file.execute(
                "SELECT machine, sum(demand) FROM attempts WHERE status = 'running' "
                "GROUP BY machine"
            )
        )
        drained = {
            name: (why, math.inf if until is None else until)
            for name, why, until in self._file.execute("SELECT name, drained, until FROM machines")
        }
        away: dict[str, float] = {}
        if store.is_locked(self.folder):  # what the last scheduler saw says nothing about now
            away = json.loads(store.read_meta(self._file).get("away", "{}"))
        return tuple(
            MachineStatus(one, used.get(one.name, 0), *drained[one.name], away.get(one.name))
            for one in self.machines
        )

    def _jobs(self, limit: int | None, names: Sequence[str]) -> list[JobStatus]:
        """Running ones, then waiting ones, then those that are over, the latest first."""
        if names:
            marks = ",".join("?" * len(names))
            return self._select(f"name IN ({marks}) ORDER BY jobs.id", tuple(names))
        many = -1 if limit is None else limit
        found = self._select("jobs.status = 'running' ORDER BY started, jobs.id")
        found += self._select("jobs.status = 'waiting' ORDER BY jobs.id LIMIT ?", (many,))
        over = "jobs.status NOT IN ('waiting', 'running') ORDER BY ended DESC, jobs.id LIMIT ?"
        return found + self._select(over, (many,))

    def _select(self, condition: str, values: tuple[object, ...] = ()) -> list[JobStatus]:
        rows = self._file.execute(
            "SELECT jobs.definition, jobs.status, jobs.reason, jobs.asked, coalesce(number, 0), "
            "machine, coalesce(demand, 0), started, ended, expected, log "
            "FROM jobs LEFT JOIN attempts ON job = id "
            "AND number = (SELECT max(number) FROM attempts WHERE job = jobs.id) "
            f"WHERE {condition}",
            values,
        )
        return [JobStatus(job_from_json(text), *rest) for text, *rest in rows]

    def _explained(
        self,
        jobs: Sequence[JobStatus],
        running: Sequence[JobStatus],
        machines: Sequence[MachineStatus],
        now: float,
        began: float,
    ) -> Iterable[JobStatus]:
        """With the progress of those that run and the reason why the others wait."""
        held = [Held(one.job.name, str(one.machine), one.demand, _end(one, now)) for one in running]
        closed = {one.machine.name: one.closed for one in machines if one.closed}
        first = self._first()
        alive = store.is_locked(self.folder)
        logs = self._logs()
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
                for name, status in self._statuses(one.job.after).items()
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

    def _first(self) -> dict[str, int]:
        """Of every machine, the highest priority of a waiting job that may use it."""
        rows = self._file.execute(
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
