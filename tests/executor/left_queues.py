"""Queues of small jobs whose scheduler has left them, or has not come yet."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.agents.rules import make_rule
from hetsched.executor import store
from hetsched.executor.exits import Exits
from hetsched.executor.guard import Guard
from hetsched.executor.local import LocalExecutor
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, Mode, Queue
from hetsched.executor.restore import resume_queue
from hetsched.executor.store_client import Client
from hetsched.executor.store_ledger import StoreLedger

if TYPE_CHECKING:
    from hetsched.executor.adapter import Run

MACHINES = (Machine("m"), Machine("n", "other", capacity=4))


def job(name: str, command: str = "true", machine: str = "m", **fields: object) -> Job:
    return Job(name, (Mode(machine, 1.0),), command, **fields)  # type: ignore[arg-type]


def make(state: Path, *jobs: Job, grace: float = 0.3) -> None:
    store.create(state, Queue(jobs, MACHINES, grace=grace))


@contextlib.contextmanager
def client(state: Path) -> Iterator[Client]:
    with contextlib.closing(Client(state)) as made:
        yield made


def local(ledger: StoreLedger) -> LocalExecutor:
    exits = Exits(ledger.folder / store.EXITS, ledger.identity)
    logs = ledger.folder / store.LOGS
    return LocalExecutor(ledger.machines, logs, ledger.grace, exits=exits, opened=ledger.clock())


def run(state: Path, **options: object) -> Run:
    """Go on with a queue, on real processes, to its end."""
    with contextlib.closing(StoreLedger(state)) as ledger:
        executor = local(ledger)
        with contextlib.closing(executor):
            guard = Guard(make_rule("fifo"), make_rule("fifo"))
            return resume_queue(ledger, guard, executor, **options)  # type: ignore[arg-type]


def statuses(state: Path) -> dict[str, str]:
    with client(state) as one:
        return {entry.job.name: entry.status for entry in one.overview().jobs}


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def left_running(state: Path, *jobs: Job, cancelling: bool = False) -> int:
    """A queue whose scheduler died with its jobs running; returns the scheduler's number.

    It may just have asked them to end, because somebody has cancelled them.

    The child does what a scheduler does between a decision and the next event, and is then gone
    as after SIGKILL: nothing is closed.
    """
    make(state, *jobs)
    child = os.fork()
    if child == 0:
        ledger = StoreLedger(state)
        ledger.load()
        executor = local(ledger)
        for one in jobs:
            attempt = one.attempt(0, 1)
            ledger.starting(attempt, executor.now())
            ledger.commit()
            executor.start(attempt)
        if cancelling:
            time.sleep(0.3)  # traps must be set
            for one in jobs:
                executor.stop(one.name)
                ledger.asked(one.name, "cancel")
            ledger.commit()
        os._exit(0)
    os.waitpid(child, 0)
    return child
