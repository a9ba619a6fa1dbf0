"""A queue at one moment, for eyes and gauges: read from its state, without its scheduler's help.

Whatever shows a queue (`hetsched.executor.live_view`, `web`, `metrics`) shows a `Snapshot`. Readers
of SQLite's write-ahead log hold up no writer, and `Watch` reads so seldom that it takes at most a
twentieth of one core, however many look.
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.executor import store
from hetsched.executor.exits import file_name
from hetsched.executor.forecast import finish_time
from hetsched.executor.store_client import Client
from hetsched.executor.waiting import Held

if TYPE_CHECKING:
    from hetsched.executor.overview import Overview

JOBS = 200  # of those that wait, and of those that are over: the next and the latest
BARS = 400  # attempts, the latest
FAILURES = 20
WENT_WELL = ("done", "running", "preempted", "cancelled")


@dataclass(frozen=True)
class Bar:
    """An attempt as a chart shows it.

    Attributes:
        started, ended: seconds of the queue's clock; `ended` None: it runs.
        expected: seconds it should have taken, as estimated when it was decided; None: not known.
        unit: first of the `demand` neighbouring units of the machine that it is drawn on.
    """

    job: str
    number: int
    machine: str
    demand: int
    started: float
    ended: float | None
    expected: float | None
    status: str
    reason: str
    unit: int = 0


@dataclass(frozen=True)
class Snapshot:
    """A queue at a moment of its clock.

    Attributes:
        overview: jobs (at most JOBS that wait and JOBS that are over), machines, counts, notes.
        clock: seconds; that of the last event where nothing runs and no scheduler does.
        bars: the latest attempts, by start; failures: the latest that went wrong, latest first.
        busy: unit-seconds of work by machine; attempts: how many by status.
        finish: when all should be over; None: nobody knows, or it is.
        decision_seconds: all decisions together.
        objective: what is minimised; name: of the state's folder.
    """

    overview: Overview
    clock: float
    bars: tuple[Bar, ...]
    failures: tuple[Bar, ...]
    busy: dict[str, float]
    attempts: dict[str, int]
    finish: float | None
    decision_seconds: float
    objective: str
    name: str


class Reader(Client):
    """A state that is looked at and never written.

    Raises:
        StoreError: the folder holds none.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder, read_only=True)

    def snapshot(self, jobs: int = JOBS, bars: int = BARS) -> Snapshot:
        """Everything, of one moment.

        Args:
            jobs, bars: so many at most, see `Snapshot`.
        """
        self.file.execute("BEGIN")  # all that follows sees the same moment
        try:
            overview = self.overview(jobs)
            meta = store.read_meta(self.file)
            clock = self._clock(overview)
            latest = self._bars("1", "started DESC, job DESC", bars)
            return Snapshot(
                overview=overview,
                clock=clock,
                bars=on_units(reversed(latest), self.capacities()),
                failures=tuple(
                    self._bars(
                        f"attempts.status NOT IN {WENT_WELL!r}", "ended DESC", min(jobs, FAILURES)
                    )
                ),
                busy=dict(
                    self.file.execute(
                        "SELECT machine, sum(demand * (coalesce(ended, ?) - started)) "
                        "FROM attempts GROUP BY machine",
                        (clock,),
                    )
                ),
                attempts=dict(
                    self.file.execute("SELECT status, count(*) FROM attempts GROUP BY status")
                ),
                finish=_finish(overview),
                decision_seconds=overview.decisions * overview.mean_decision,
                objective=meta["objective"],
                name=self.folder.absolute().name,
            )
        finally:
            self.file.execute("ROLLBACK")

    def capacities(self) -> dict[str, int]:
        """Units of every machine."""
        return {machine.name: machine.capacity for machine in self.machines}

    def log_file(self, job: str, attempt: int | None = None) -> Path | None:
        """The output of an attempt (None: of the latest) if there is any and it is a plain file.

        The path is made from the job's name and looked for in the state's folders of logs only:
        neither a name nor a line of the state leads anywhere else, and a link is not followed.

        Raises:
            QueueError: there is no such job or attempt.
        """
        self.log_of(job, attempt)  # raises where there is none
        number = attempt
        if number is None:
            (number,) = self.file.execute(
                "SELECT max(number) FROM attempts JOIN jobs ON jobs.id = job WHERE name = ?", (job,)
            ).fetchone()
        folders = [self.folder / store.LOGS]  # first: a state may have been moved since
        if said := store.read_meta(self.file).get("logs"):
            folders.append(Path(said))
        for folder in folders:
            path = folder / file_name(job, number, "log")
            if path.is_file() and not path.is_symlink():
                return path
        return None

    def _clock(self, overview: Overview) -> float:
        if overview.scheduler or overview.counts.get("running"):
            return overview.now
        (latest,) = self.file.execute(
            "SELECT max(max(started), coalesce(max(ended), 0)) FROM attempts"
        ).fetchone()
        return float(latest or 0.0)

    def _bars(self, condition: str, order: str, limit: int) -> list[Bar]:
        rows = self.file.execute(
            "SELECT name, number, machine, demand, started, ended, expected, attempts.status, "
            "attempts.reason FROM attempts JOIN jobs ON jobs.id = job "
            f"WHERE {condition} ORDER BY {order} LIMIT ?",
            (limit,),
        )
        return [Bar(*row) for row in rows]


def on_units(bars: Iterable[Bar], capacity: Mapping[str, int]) -> tuple[Bar, ...]:
    """The bars, given in order of start, on units of their machines, side by side.

    A state does not say which units of its machine an attempt had. Where bars overlap all the same
    (a machine that had more units before), one is drawn over another.
    """
    free: dict[str, list[float]] = {name: [-math.inf] * units for name, units in capacity.items()}
    placed = []
    for bar in bars:
        units = free.setdefault(bar.machine, [-math.inf])
        demand = min(bar.demand, len(units))
        spans = range(len(units) - demand + 1)
        # The first that is free; else that which is free first.
        unit = min(spans, key=lambda at: max(bar.started, *units[at : at + demand]))
        units[unit : unit + demand] = [math.inf if bar.ended is None else bar.ended] * demand
        placed.append(replace(bar, unit=unit))
    return tuple(placed)


def _finish(overview: Overview) -> float | None:
    waiting = [one.job for one in overview.jobs if one.status == "waiting"]
    running = [one for one in overview.jobs if one.status == "running"]
    if not waiting and not running:
        return None
    held = [
        Held(
            one.job.name,
            str(one.machine),
            one.demand,
            math.inf if one.started is None or one.expected is None else one.started + one.expected,
        )
        for one in running
    ]
    return finish_time(
        overview.now,
        [one.machine for one in overview.machines],
        held,
        waiting,
        opens={
            one.machine.name: math.inf if one.away is not None else one.until
            for one in overview.machines
            if one.closed
        },
        unseen=overview.counts.get("waiting", 0) / max(1, len(waiting)),
    )


class Watch:
    """The latest snapshot of a state, for any number of threads.

    Args:
        folder: of the state; opened anew for every reading, so that one that was begun anew, or
            comes only later, is found.
        every: seconds for which a snapshot is good enough.
        jobs, bars: see `Reader.snapshot`.
    """

    SHARE = 20.0  # it rests so many times longer than it has worked

    def __init__(self, folder: str | Path, every: float = 0.5, jobs: int = JOBS, bars: int = BARS):
        self.folder = Path(folder)
        self._every, self._jobs, self._bars = every, jobs, bars
        self._lock = threading.Lock()
        self._good_until = -math.inf
        self._latest: Snapshot | None = None

    def latest(self) -> Snapshot:
        """The state as it is, or was a moment ago.

        Raises:
            StoreError: there is none, or it cannot be read now.
        """
        with self._lock:
            if self._latest is None or time.monotonic() >= self._good_until:
                began = time.thread_time()
                try:
                    with closing(Reader(self.folder)) as reader:
                        self._latest = reader.snapshot(self._jobs, self._bars)
                except sqlite3.Error as error:
                    raise store.StoreError(
                        f"{self.folder} cannot be read ({error}); try again."
                    ) from None
                rest = max(self._every, self.SHARE * (time.thread_time() - began))
                self._good_until = time.monotonic() + rest
            return self._latest
