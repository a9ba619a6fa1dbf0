"""Machines that are away are told, remembered and shown for as long as a scheduler says so."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import pytest

from hetsched import dispatch
from hetsched.agents.rules import make_rule
from hetsched.executor import store
from hetsched.executor.closures import Closures
from hetsched.executor.faults import Faults, FaultyExecutor
from hetsched.executor.guard import Guard
from hetsched.executor.health import Health
from hetsched.executor.ledger import Notebook
from hetsched.executor.live_view import picture
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, Mode, Queue
from hetsched.executor.restore import resume_queue
from hetsched.executor.simulated import SimulatedExecutor
from hetsched.executor.snapshot import Reader
from hetsched.executor.store_ledger import StoreLedger
from hetsched.executor.web_data import queue_data
from hetsched.tests.executor.test_live_view import seen

MACHINES = (Machine("m"), Machine("n"))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    jobs = (Job("a", (Mode("m", 5.0),), "true"), Job("b", (Mode("n", 5.0),), "true"))
    store.create(tmp_path / "state", Queue(jobs, MACHINES))
    return tmp_path / "state"


def test_a_machine_that_goes_away_and_comes_back_is_told_once_each(state: Path) -> None:
    faults = Faults(outages=(("m", 2.0, 9.0),))
    with contextlib.closing(StoreLedger(state)) as ledger:
        executor = FaultyExecutor(SimulatedExecutor(MACHINES), faults)
        done = resume_queue(ledger, Guard(make_rule("fifo")), executor)
    assert done.all_done
    assert done.notes == ["machine 'm' is away: it cannot be reached", "machine 'm' is back"]


def test_what_is_away_is_written_down_only_when_it_changes() -> None:
    class Counting(Notebook):
        written = 0

        def away(self, since: object) -> None:
            self.written += 1

    executor = FaultyExecutor(SimulatedExecutor(MACHINES), Faults(outages=(("m", 2.0, 9.0),)))
    ledger = Counting()
    closures = Closures(Health(["m", "n"]), executor, ledger, lambda now, text: None)
    assert closures.now(0.0) == closures.now(1.0) == frozenset()
    executor.poll(3.0)
    assert closures.now(3.0) == closures.now(4.0) == {"m"}
    assert ledger.written == 2


def test_a_machine_that_is_away_is_shown_everywhere_with_the_reason(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(StoreLedger(state)) as ledger:
        ledger.set(began=repr(time.time() - 60.0), started="yes")
        ledger.load()
        ledger.away({"m": 20.0})
        ledger.commit()
        assert dispatch.dispatch(["status", "--state", str(state)]) == 0
        table = capsys.readouterr().out
        assert "away for 40." in table
        assert ", cannot be reached" in table
        assert "can only use machines that get no work: 'm' is away" in " ".join(table.split())
        dispatch.dispatch(["status", "--state", str(state), "--json"])
        said = json.loads(capsys.readouterr().out)["machines"]
        assert [one["away"] for one in said] == [20.0, None]
        with contextlib.closing(Reader(state)) as reader:
            snapshot = reader.snapshot()
        assert [one["away"] for one in queue_data(snapshot)["machines"]] == [20.0, None]
        assert snapshot.finish is None  # nobody knows when it comes back
        assert picture(snapshot, 30) is not None
        (line,) = [line for line in seen(snapshot) if line.startswith("m ")]
        assert "away for 40." in line
    with contextlib.closing(Reader(state)) as reader:  # no scheduler: nobody knows
        assert [one.away for one in reader.overview().machines] == [None, None]
