"""The scheduler's side of a state: the ledger that survives it."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.executor import store
from hetsched.executor.ledger import Decision, Inbox, Request
from hetsched.executor.protocol import Attempt, Machine, Outcome
from hetsched.executor.records import job_from_json, job_to_json

if TYPE_CHECKING:
    from hetsched.executor.queue import Job


@dataclass(frozen=True)
class Remembered:
    """A job as a state remembers it.

    Attributes:
        status, reason: of the job; asked: see `Ledger.asked`.
        outcomes: of its attempts that ended, in their order.
        running: the attempt that ran when this was written, and its start; None: none.
    """

    job: Job
    status: str
    reason: str
    asked: str
    outcomes: tuple[Outcome, ...]
    running: tuple[Attempt, float] | None


class StoreLedger:
    """A ledger in a folder. One at a time has a folder.

    Args:
        folder: the state; it must exist.

    Raises:
        StoreError: it does not exist, or another scheduler uses it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._file = store.connect(self.folder)
        self._file.execute("PRAGMA journal_mode=WAL")
        try:
            self._lock = store.Lock(self.folder)
        except BaseException:
            self._file.close()
            raise
        self._pending: list[tuple[str, tuple[Any, ...]]] = []
        self._meta = store.read_meta(self._file)
        self._ids: dict[str, int] = {}  # of unfinished jobs
        self._last_id = 0
        self._last_request = 0
        self._version = -1

    @property
    def listens(self) -> bool:
        """See `Ledger.listens`."""
        return True

    @property
    def identity(self) -> str:
        """Of the queue, for as long as it exists."""
        return self._meta["identity"]

    @property
    def objective(self) -> str:
        """What is minimised."""
        return self._meta["objective"]

    @property
    def grace(self) -> float:
        """Seconds between SIGTERM and SIGKILL."""
        return float(self._meta["grace"])

    @property
    def began(self) -> float:
        """Wall-clock time at which the queue's clock showed 0."""
        return float(self._meta["began"])

    @property
    def machines(self) -> tuple[Machine, ...]:
        """Of the queue, in their order."""
        return store.read_machines(self._file)

    def clock(self) -> float:
        """What the queue's clock shows now: from here on a monotonic clock counts.

        It begins when the first scheduler asks for it, after loading what it needs. Between two
        schedulers only the wall clock knows how much time has passed. Where that was set back, the
        queue goes on from the latest time that it has seen.
        """
        if "started" not in self._meta:
            self.set(began=repr(time.time()), started="yes")
        (latest,) = self._file.execute(
            "SELECT max(max(started), coalesce(max(ended), 0)) FROM attempts"
        ).fetchone()
        return max(time.time() - self.began, latest or 0.0, 0.0)

    @property
    def learn_after(self) -> float:
        """Runs that ended up to then say nothing of the queue's durations, which are newer."""
        return float(self._meta.get("learn_after", "-inf"))

    def drained(self) -> dict[str, tuple[str, float]]:
        """Machines without work: reason and until when."""
        rows = self._file.execute("SELECT name, drained, until FROM machines WHERE drained != ''")
        return {name: (why, math.inf if until is None else until) for name, why, until in rows}

    # ---- reading what is remembered ------------------------------------------------------------

    def load(self) -> list[Remembered]:
        """All jobs in their order; later ones come by `inbox`."""
        attempts: dict[int, list[tuple[Any, ...]]] = {}
        for row in self._file.execute(
            "SELECT job, number, machine, mode, demand, expected, memory, started, ended, status, "
            "exit_code, reason, log FROM attempts ORDER BY job, number"
        ):
            attempts.setdefault(row[0], []).append(row[1:])
        found = []
        for key, name, text, status, reason, asked in self._file.execute(
            "SELECT id, name, definition, status, reason, asked FROM jobs ORDER BY id"
        ):
            job = job_from_json(text)
            self._last_id = key
            if status in store.OPEN_STATUSES:
                self._ids[name] = key
            outcomes, running = _attempts(job, attempts.get(key, []))
            found.append(Remembered(job, status, reason, asked, outcomes, running))
        return found

    def decision_seconds(self) -> list[float]:
        """How long each decision took, in their order."""
        return [row[0] for row in self._file.execute("SELECT seconds FROM decisions ORDER BY id")]

    def notes(self) -> list[str]:
        """What people should know, in its order."""
        return [row[0] for row in self._file.execute("SELECT text FROM notes ORDER BY id")]

    def inbox(self) -> Inbox:
        """See `Ledger.inbox`."""
        (version,) = self._file.execute("PRAGMA data_version").fetchone()
        if version == self._version:  # nobody else has written
            return Inbox()
        self._version = version
        jobs = []
        for key, name, text in self._file.execute(
            "SELECT id, name, definition FROM jobs WHERE id > ? ORDER BY id", (self._last_id,)
        ):
            self._last_id = self._ids[name] = key
            jobs.append(job_from_json(text))
        requests = []
        for key, kind, name, value in self._file.execute(
            "SELECT id, kind, name, value FROM requests WHERE id > ? ORDER BY id",
            (self._last_request,),
        ):
            self._last_request = key
            requests.append(Request(kind, name, value))
        if requests:  # gone once their effects are certain
            self._write("DELETE FROM requests WHERE id <= ?", self._last_request)
        return Inbox(tuple(jobs), tuple(requests))

    def is_done(self, name: str) -> bool:
        """See `Ledger.is_done`."""
        row = self._file.execute("SELECT status FROM jobs WHERE name = ?", (name,)).fetchone()
        return row is not None and row[0] == "done"

    # ---- writing -------------------------------------------------------------------------------

    def decided(self, decision: Decision) -> None:
        """See `Ledger.decided`."""
        self._write(
            "INSERT INTO decisions (at, policy, seconds, shown, action) VALUES (?, ?, ?, ?, ?)",
            decision.at, decision.policy, decision.seconds, decision.shown, decision.action,
        )  # fmt: skip

    def starting(self, attempt: Attempt, at: float) -> None:
        """See `Ledger.starting`."""
        key = self._ids[attempt.job]
        self._write(
            "INSERT INTO attempts (job, number, machine, mode, demand, expected, memory, started) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            key, attempt.number, attempt.machine, attempt.mode, attempt.demand, attempt.expected,
            attempt.memory if math.isfinite(attempt.memory) else None, at,
        )  # fmt: skip
        self._write("UPDATE jobs SET status = 'running', reason = '' WHERE id = ?", key)

    def ended(self, outcome: Outcome) -> None:
        """See `Ledger.ended`."""
        self._write(
            "UPDATE attempts SET status = ?, started = ?, ended = ?, exit_code = ?, reason = ?, "
            "log = ? WHERE job = ? AND number = ?",
            outcome.status, outcome.started, outcome.ended, outcome.exit_code, outcome.reason,
            outcome.log, self._ids[outcome.attempt.job], outcome.attempt.number,
        )  # fmt: skip

    def fate(self, name: str, status: str, reason: str) -> None:
        """See `Ledger.fate`."""
        self._write(
            "UPDATE jobs SET status = ?, reason = ?, asked = '' WHERE id = ?",
            status, reason, self._ids[name],
        )  # fmt: skip
        if status not in store.OPEN_STATUSES:
            del self._ids[name]

    def asked(self, name: str, what: str) -> None:
        """See `Ledger.asked`."""
        self._write("UPDATE jobs SET asked = ? WHERE id = ?", what, self._ids[name])

    def changed(self, job: Job) -> None:
        """See `Ledger.changed`."""
        self._write(
            "UPDATE jobs SET definition = ? WHERE id = ?", job_to_json(job), self._ids[job.name]
        )

    def machine(self, name: str, drained: str, until: float) -> None:
        """See `Ledger.machine`."""
        self._write(
            "UPDATE machines SET drained = ?, until = ? WHERE name = ?",
            drained, until if math.isfinite(until) else None, name,
        )  # fmt: skip

    def away(self, since: Mapping[str, float]) -> None:
        """See `Ledger.away`."""
        self._write("INSERT OR REPLACE INTO meta VALUES ('away', ?)", json.dumps(dict(since)))

    def note(self, at: float, text: str) -> None:
        """See `Ledger.note`."""
        self._write("INSERT INTO notes (at, text) VALUES (?, ?)", at, text)

    def commit(self) -> None:
        """See `Ledger.commit`: one short transaction, so that nobody waits for a policy."""
        if not self._pending:
            return
        with store.transaction(self._file):
            for statement, values in self._pending:
                self._file.execute(statement, values)
        self._pending.clear()

    def close(self) -> None:
        """Commit, and let another scheduler have the folder."""
        with contextlib.suppress(Exception):
            self.commit()
        self._file.close()
        self._lock.release()

    def set(self, **values: Any) -> None:
        """Note something of the queue as a whole, at once."""
        with store.transaction(self._file):
            store.write_meta(self._file, **values)
        self._meta = store.read_meta(self._file)

    def replace_machines(self, machines: tuple[Machine, ...]) -> None:
        """Have other machines from now on."""
        with store.transaction(self._file):
            store.insert_machines(self._file, machines)

    def add(self, jobs: tuple[Job, ...]) -> None:
        """Append jobs, at once; they come by `load` or `inbox`."""
        with store.transaction(self._file):
            store.insert_jobs(self._file, jobs)

    def _write(self, statement: str, *values: Any) -> None:
        self._pending.append((statement, values))


def _attempts(
    job: Job, rows: list[tuple[Any, ...]]
) -> tuple[tuple[Outcome, ...], tuple[Attempt, float] | None]:
    """Rows of the table as outcomes, and the attempt without an end."""
    outcomes, running = [], None
    for number, machine, mode, demand, expected, memory, started, ended, status, *rest in rows:
        exit_code, reason, log = rest
        attempt = Attempt(
            job=job.name,
            machine=machine,
            number=number,
            mode=mode,
            demand=demand,
            command=job.command,
            env=job.env,
            workdir=job.workdir,
            timeout=job.timeout,
            memory=math.inf if memory is None else memory,
            expected=expected,
        )
        if status == "running":
            running = (attempt, started)
        else:
            outcomes.append(Outcome(attempt, status, started, ended, exit_code, reason, log))
    return tuple(outcomes), running
