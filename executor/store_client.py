"""The other side of a state: adding to it and asking it while its scheduler runs, or does not.

A submitted job is safe when the command returns: it is in the file. Requests wait there until the
scheduler has carried them out. Imports nothing heavy, and what only readers need when they read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.executor import store
from hetsched.executor.queue import QueueError, check_jobs

if TYPE_CHECKING:
    import sqlite3

    from hetsched.executor.ledger import Request
    from hetsched.executor.overview import Overview
    from hetsched.executor.protocol import Machine
    from hetsched.executor.queue import Job


class Client:
    """A queue's state, from another process than its scheduler's.

    Args:
        folder: of the state.
        read_only: only ask; the folder may be somebody else's.

    Raises:
        StoreError: it holds none.
    """

    def __init__(self, folder: str | Path, read_only: bool = False) -> None:
        self.folder = Path(folder)
        self.file: sqlite3.Connection = store.connect(self.folder, read_only)

    def close(self) -> None:
        """Let go of the file."""
        self.file.close()

    @property
    def machines(self) -> tuple[Machine, ...]:
        """Of the queue."""
        return store.read_machines(self.file)

    def now(self) -> float:
        """The queue's clock, as the wall clock tells it."""
        return max(0.0, time.time() - float(store.read_meta(self.file)["began"]))

    # ---- writing -------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[Job]) -> None:
        """Append jobs. Their release and due times count from now. All come in, or none.

        Raises:
            QueueError: a name is taken, or a job can never run.
        """
        now = self.now()
        shifted = [replace(job, release=job.release + now, due=job.due + now) for job in jobs]
        with store.transaction(self.file):
            known = self.statuses(
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
            store.insert_jobs(self.file, shifted)
        store.ring(self.folder)

    def request(self, requests: Iterable[Request]) -> None:
        """Leave requests for the scheduler."""
        with store.transaction(self.file):
            self.file.executemany(
                "INSERT INTO requests (kind, name, value) VALUES (?, ?, ?)",
                [(one.kind, one.name, one.value) for one in requests],
            )
        store.ring(self.folder)

    def status_of(self, names: Sequence[str]) -> dict[str, str]:
        """Status of the named jobs.

        Raises:
            QueueError: there is none of a name.
        """
        known = self.statuses(names)
        for name in names:
            if name not in known:
                raise QueueError(
                    f"there is no job {name!r} in {self.folder}; see status for names."
                )
        return known

    def is_over(self, name: str) -> bool:
        """Whether a job neither waits nor runs."""
        return self.statuses([name]).get(name) not in store.OPEN_STATUSES

    def log_of(self, name: str, attempt: int | None = None) -> Path:
        """Where the output of an attempt is (None: of the latest).

        Raises:
            QueueError: there is no such job or attempt.
        """
        self.status_of([name])
        row = self.file.execute(
            "SELECT number, log FROM attempts JOIN jobs ON jobs.id = job WHERE name = ? "
            "AND (number = ? OR ? IS NULL) ORDER BY number DESC LIMIT 1",
            (name, attempt, attempt),
        ).fetchone()
        if row is None:
            which = "has not run yet" if attempt is None else f"has no attempt {attempt}"
            raise QueueError(f"job {name!r} {which}; see status.")
        from hetsched.executor.exits import file_name

        number, log = row
        # First in the folder itself, which may have been moved or set aside since.
        here = self.folder / store.LOGS / file_name(name, number, "log")
        if here.exists():
            return here
        return Path(log) if log else self.logs() / here.name

    def logs(self) -> Path:
        """The folder of what jobs write."""
        return Path(store.read_meta(self.file).get("logs", self.folder / store.LOGS))

    def statuses(self, names: Iterable[str]) -> dict[str, str]:
        """Of those of the named jobs that are there."""
        found = {}
        for name in names:
            row = self.file.execute("SELECT status FROM jobs WHERE name = ?", (name,)).fetchone()
            if row is not None:
                found[name] = row[0]
        return found

    def num_attempts(self) -> int:
        """How many attempts there were."""
        (number,) = self.file.execute("SELECT count(*) FROM attempts").fetchone()
        return int(number)

    def overview(self, limit: int | None = None, names: Sequence[str] = ()) -> Overview:
        """What there is to see.

        Args:
            limit: of the jobs that wait and of those that are over, so many at most: the next
                and the latest. None: all.
            names: only these jobs.

        Raises:
            QueueError: there is no job of a name.
        """
        from hetsched.executor.store_overview import read_overview

        if names:
            self.status_of(names)
        return read_overview(self, limit, names)
