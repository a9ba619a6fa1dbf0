"""The state of a queue in a folder that outlives every scheduler: an SQLite file, logs, exit codes.

    DIR/state.sqlite   jobs, attempts, decisions, machines, notes, requests
    DIR/logs/          what the jobs wrote, a file per attempt
    DIR/exits/         exit codes of attempts that the scheduler has not noted yet
    DIR/lock           held by the scheduler while it runs
    DIR/bell           a pipe: a byte wakes the scheduler

SQLite's write-ahead log lets others read and write while the scheduler runs. `synchronous=FULL`:
what is committed survives a power failure too. That costs one fsync per event, two milliseconds on
an ordinary disk, because all that belongs to an event is one transaction.

Imports nothing heavy: `submit` opens a store too (`hetsched.executor.store_client`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.executor.records import job_to_json, machine_from_json, machine_to_json

if TYPE_CHECKING:
    from hetsched.executor.protocol import Machine
    from hetsched.executor.queue import Job, Queue

FORMAT = 1
FILE, LOCK, BELL, LOGS, EXITS = "state.sqlite", "lock", "bell", "logs", "exits"
BUSY_SECONDS = 30.0  # how long to wait for another writer, who needs milliseconds
LOCK_TRIES, LOCK_PAUSE = 5, 0.01  # seconds
OPEN_STATUSES = ("waiting", "running")

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE machines (
    position INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, definition TEXT NOT NULL,
    drained TEXT NOT NULL DEFAULT '', until REAL);
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, definition TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'waiting', reason TEXT NOT NULL DEFAULT '',
    asked TEXT NOT NULL DEFAULT '');
CREATE INDEX jobs_by_status ON jobs (status);
CREATE TABLE attempts (
    job INTEGER NOT NULL REFERENCES jobs, number INTEGER NOT NULL, machine TEXT NOT NULL,
    mode INTEGER NOT NULL, demand INTEGER NOT NULL, expected REAL, memory REAL,
    started REAL NOT NULL, ended REAL, status TEXT NOT NULL DEFAULT 'running', exit_code INTEGER,
    reason TEXT NOT NULL DEFAULT '', log TEXT,
    PRIMARY KEY (job, number)) WITHOUT ROWID;
CREATE INDEX running_attempts ON attempts (status) WHERE status = 'running';
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, policy TEXT NOT NULL, seconds REAL NOT NULL,
    shown INTEGER NOT NULL, action TEXT NOT NULL);
CREATE TABLE notes (id INTEGER PRIMARY KEY, at REAL NOT NULL, text TEXT NOT NULL);
CREATE TABLE requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, name TEXT NOT NULL,
    value TEXT NOT NULL DEFAULT '');
"""


class StoreError(ValueError):
    """A state that cannot be used, in one sentence that names the folder and the mend."""


def exists(folder: str | Path) -> bool:
    """Whether a folder holds the state of a queue."""
    return Path(folder, FILE).is_file()


def connect(folder: Path, read_only: bool = False) -> sqlite3.Connection:
    """Open the file of a state that exists.

    Args:
        read_only: SQLite refuses to write, and the folder may be somebody else's.

    Raises:
        StoreError: there is none, it is another program's, or of another version.
    """
    if not exists(folder):
        raise StoreError(
            f"{folder} holds no queue; name the folder of one with --state, or start one with "
            "dispatch.py QUEUE.yaml."
        )
    try:
        # Closed by the garbage collector of another thread at worst; every use is in one thread.
        place, log = (folder / FILE).absolute(), folder / f"{FILE}-wal"
        # Without a log nobody writes; SQLite would still make one, which a folder may not allow.
        sealed = read_only and not log.exists() and not os.access(folder, os.W_OK)
        file = sqlite3.connect(
            place.as_uri() + ("?immutable=1" if sealed else ""),
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
        )
        file.execute("PRAGMA query_only=ON" if read_only else "PRAGMA synchronous=FULL")
        version = dict(file.execute("SELECT key, value FROM meta")).get("format")
    except sqlite3.Error as error:
        raise StoreError(f"{folder / FILE} cannot be read ({error}); choose another.") from None
    if version != str(FORMAT):
        raise StoreError(
            f"{folder} has format {version}, this version reads {FORMAT}; use a new folder."
        )
    return file


def create(folder: str | Path, queue: Queue) -> None:
    """Make the state of a queue of which nothing has run.

    Either all of it is there afterwards or nothing: a crash leaves no half a queue.

    Raises:
        StoreError: there is one already.
        OSError: it cannot be written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if exists(folder):
        raise StoreError(f"{folder} holds a queue already; go on with it, or use a new folder.")
    draft = folder / f".{FILE}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    file = sqlite3.connect(draft, isolation_level=None)
    try:
        file.execute("PRAGMA synchronous=FULL")
        with transaction(file):
            for statement in _SCHEMA.split(";"):
                file.execute(statement)
            meta = {
                "format": str(FORMAT),
                "identity": os.urandom(16).hex(),
                "began": repr(time.time()),
                "objective": queue.objective,
                "grace": repr(queue.grace),
            }
            file.executemany("INSERT INTO meta VALUES (?, ?)", list(meta.items()))
            insert_machines(file, queue.machines)
            insert_jobs(file, queue.jobs)
    finally:
        file.close()
    draft.replace(folder / FILE)


@contextlib.contextmanager
def transaction(file: sqlite3.Connection) -> Iterator[None]:
    """All of the block or nothing; others wait."""
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        file.execute("ROLLBACK")
        raise
    file.execute("COMMIT")


def insert_machines(file: sqlite3.Connection, machines: Sequence[Machine]) -> None:
    """Write the machines of a queue, instead of those it had."""
    drained = dict(file.execute("SELECT name, drained FROM machines"))
    file.execute("DELETE FROM machines")
    file.executemany(
        "INSERT INTO machines (position, name, definition, drained) VALUES (?, ?, ?, ?)",
        [
            (at, machine.name, machine_to_json(machine), drained.get(machine.name, ""))
            for at, machine in enumerate(machines)
        ],
    )


def insert_jobs(file: sqlite3.Connection, jobs: Sequence[Job]) -> None:
    """Append waiting jobs; their names must be new."""
    file.executemany(
        "INSERT INTO jobs (name, definition) VALUES (?, ?)",
        [(job.name, job_to_json(job)) for job in jobs],
    )


def read_machines(file: sqlite3.Connection) -> tuple[Machine, ...]:
    """The machines of a queue, in their order."""
    rows = file.execute("SELECT definition FROM machines ORDER BY position")
    return tuple(machine_from_json(text) for (text,) in rows)


def read_meta(file: sqlite3.Connection) -> dict[str, str]:
    """What is known of the queue as a whole."""
    return dict(file.execute("SELECT key, value FROM meta"))


def has_ended(file: sqlite3.Connection) -> bool:
    """Whether a queue came to its end and has no job to go on with, submitted ones included."""
    left = file.execute("SELECT 1 FROM jobs WHERE status IN (?, ?) LIMIT 1", OPEN_STATUSES)
    return "ended" in read_meta(file) and left.fetchone() is None


def write_meta(file: sqlite3.Connection, **values: Any) -> None:
    """Set some of it."""
    file.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)",
        [
            (key, value if isinstance(value, str) else json.dumps(value))
            for key, value in values.items()
        ],
    )


class Lock:
    """Held by the one scheduler of a state, and let go by the kernel however it ends.

    Raises:
        StoreError: another scheduler holds it.
    """

    def __init__(self, folder: Path) -> None:
        import fcntl

        self._file = (folder / LOCK).open("a+")
        try:
            for _ in range(LOCK_TRIES - 1):
                with contextlib.suppress(OSError):
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(LOCK_PAUSE)  # `is_locked` of somebody who watches takes microseconds
            else:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _holder(folder)
            self._file.close()
            raise StoreError(
                f"{folder} is in use by another dispatch.py (process {holder}); talk to that one "
                "with submit, status or cancel, or end it first."
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Let another have it."""
        self._file.close()


def _holder(folder: Path) -> str:
    return (folder / LOCK).read_text(encoding="ascii", errors="replace").strip() or "unknown"


def is_locked(folder: Path) -> bool:
    """Whether a scheduler runs on the state."""
    import fcntl

    try:
        with (folder / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except OSError as error:  # EACCES: taken, on some systems; also a folder that is not ours
        return error.errno in (errno.EAGAIN, errno.EACCES)


def make_bell(folder: Path) -> Path:
    """The pipe that wakes a scheduler; made if absent."""
    bell = folder / BELL
    with contextlib.suppress(FileExistsError):
        os.mkfifo(bell)
    return bell


def ring(folder: Path) -> None:
    """Wake the scheduler, if one runs."""
    with contextlib.suppress(OSError):  # nobody listens, or it is being woken already
        descriptor = os.open(folder / BELL, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(descriptor, b"!")
        finally:
            os.close(descriptor)
