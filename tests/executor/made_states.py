"""States of queues as a scheduler leaves them, made by hand, for tests of what shows them."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from hetsched.executor import store
from hetsched.executor.exits import file_name
from hetsched.executor.protocol import Machine, Outcome
from hetsched.executor.queue import Job, Mode, Queue
from hetsched.executor.store_ledger import StoreLedger

EVIL = "<script>document.title='owned'</script>"
MACHINES = (Machine("one", "v100"), Machine("four", "k80", capacity=4))


def make_state(folder: Path) -> Path:
    """The queue began a minute ago. EVIL is done on `one` (expected 4 s, took 5), "b" has failed on
    `four`, "runs" runs on `one` since 5 s, "gang" waits for what `four` has in use: two units
    since 2 s, by "half"."""
    jobs = (
        Job(EVIL, (Mode("one", 4.0),), "true"),
        Job("b", (Mode("four", 3.0),), "false"),
        Job("half", (Mode("four", 1000.0, 2),), "true"),
        Job("runs", (Mode("one", 500.0),), "true"),
        Job("gang", (Mode("four", 100.0, 4),), "true"),
    )
    store.create(folder, Queue(jobs, MACHINES))
    logs = folder / store.LOGS
    logs.mkdir()
    with contextlib.closing(StoreLedger(folder)) as ledger:
        ledger.set(began=repr(time.time() - 60.0), started="yes")
        ledger.load()
        evil, b, half, runs = (job.attempt(0, 1) for job in jobs[:4])
        for attempt, at in ((evil, 0.0), (b, 0.0), (half, 2.0), (runs, 5.0)):
            ledger.starting(attempt, at)
            (logs / file_name(attempt.job, 1, "log")).write_text(f"this is <b>{attempt.job}</b>\n")
        ledger.ended(Outcome(evil, "done", 0.0, 5.0, 0))
        ledger.ended(Outcome(b, "failed", 0.0, 1.0, 3, "exit status 3"))
        ledger.fate(EVIL, "done", "")
        ledger.fate("b", "failed", "exit status 3")
        ledger.note(3.0, "machine 'one' is <i>hot</i>")
        ledger.commit()
    return folder
