"""What is read of a state for those who watch it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

import pytest

from hetsched.executor import store
from hetsched.executor.ledger import Request
from hetsched.executor.queue import QueueError
from hetsched.executor.snapshot import Bar, Reader, Watch, on_units
from hetsched.executor.store_client import Client
from hetsched.executor.store_ledger import StoreLedger
from hetsched.tests.executor.made_states import EVIL, make_state


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return make_state(tmp_path / "state")


def reader(state: Path) -> contextlib.closing[Reader]:
    return contextlib.closing(Reader(state))


def test_a_snapshot_has_attempts_with_their_plan_and_what_went_wrong(state: Path) -> None:
    with reader(state) as one:
        seen = one.snapshot()
    bars = {bar.job: (bar.started, bar.ended, bar.expected, bar.status) for bar in seen.bars}
    assert bars == {
        EVIL: (0.0, 5.0, 4.0, "done"),
        "b": (0.0, 1.0, 3.0, "failed"),
        "half": (2.0, None, 1000.0, "running"),
        "runs": (5.0, None, 500.0, "running"),
    }
    assert [(bar.job, bar.reason) for bar in seen.failures] == [("b", "exit status 3")]
    assert seen.attempts == {"done": 1, "failed": 1, "running": 2}
    (gang,) = [one for one in seen.overview.jobs if one.status == "waiting"]
    assert gang.reason.startswith("needs 4 of 'four' together; 2 free; next at about ")
    # half ends at 1002, then gang takes 100
    assert seen.finish == pytest.approx(1102.0)


def test_the_time_machines_were_in_use_counts_their_units(state: Path) -> None:
    with reader(state) as one:
        seen = one.snapshot()
    # one: EVIL 5 s, and `runs` since 5; four: b 1 s, and `half` on two units since 2
    assert seen.busy["one"] == pytest.approx(5.0 + seen.clock - 5.0)
    assert seen.busy["four"] == pytest.approx(1.0 + 2 * (seen.clock - 2.0))


def test_the_clock_of_a_queue_that_is_over_stands_still(state: Path) -> None:
    with contextlib.closing(sqlite3.connect(state / store.FILE)) as file, file:
        file.execute("UPDATE attempts SET status = 'done', ended = 9.0 WHERE ended IS NULL")
        file.execute("UPDATE jobs SET status = 'done'")
    with reader(state) as one:
        seen = one.snapshot()
    assert (seen.clock, seen.finish) == (9.0, None)


def test_only_the_latest_attempts_are_read_of_many(state: Path) -> None:
    with reader(state) as one:
        seen = one.snapshot(jobs=1, bars=2)
    assert [bar.job for bar in seen.bars] == ["half", "runs"]


def test_a_reader_cannot_write(state: Path) -> None:
    with reader(state) as one, pytest.raises(sqlite3.OperationalError, match="readonly"):
        one.request([Request("cancel", "gang")])


def test_a_state_in_a_folder_that_is_not_ours_can_be_read(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not Path(f"{state / store.FILE}-wal").exists()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with reader(state) as one:
        assert len(one.snapshot().bars) == 4
        assert not Path(f"{state / store.FILE}-shm").exists()


def test_reading_holds_up_no_writer(state: Path) -> None:
    with reader(state) as one, contextlib.closing(StoreLedger(state)) as ledger:
        one.file.execute("BEGIN")
        assert one.statuses(["gang"]) == {"gang": "waiting"}
        ledger.load()
        ledger.fate("gang", "cancelled", "")
        ledger.commit()  # while the reader is in the middle of it
        assert one.statuses(["gang"]) == {"gang": "waiting"}
        one.file.execute("ROLLBACK")
        assert one.statuses(["gang"]) == {"gang": "cancelled"}


def test_a_watch_reads_no_more_often_than_it_is_told(state: Path) -> None:
    watch = Watch(state, every=3600.0)
    first = watch.latest()
    assert watch.latest() is first
    assert Watch(state, every=0.0).latest() is not first


def test_a_watch_rests_longer_than_it_works(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(state, every=0.0)
    times = iter([0.0, 1.0])  # of work: a second
    monkeypatch.setattr("hetsched.executor.snapshot.time.thread_time", lambda: next(times))
    clock = iter([100.0, 119.9])
    monkeypatch.setattr("hetsched.executor.snapshot.time.monotonic", lambda: next(clock))
    first = watch.latest()  # at 100
    assert watch.latest() is first  # at 119.9


def test_a_watch_finds_a_queue_that_was_begun_anew(tmp_path: Path) -> None:
    state = tmp_path / "state"
    watch = Watch(state, every=0.0)
    with pytest.raises(store.StoreError, match="holds no queue"):
        watch.latest()
    make_state(state)
    watch.latest()
    state.rename(tmp_path / "old")
    make_state(state)
    with contextlib.closing(StoreLedger(state)) as ledger:
        ledger.load()
        ledger.fate("gang", "cancelled", "")
        ledger.commit()
    deadline = time.monotonic() + 10  # it rests after the work of the first reading
    while not watch.latest().overview.counts.get("cancelled") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert watch.latest().overview.counts["cancelled"] == 1


def test_bars_lie_side_by_side_on_the_units_of_a_machine() -> None:
    def bar(job: str, demand: int, started: float, ended: float | None) -> Bar:
        return Bar(job, 1, "m", demand, started, ended, None, "done", "")

    bars = [bar("a", 1, 0, 9), bar("b", 2, 0, 4), bar("c", 1, 1, None), bar("d", 2, 5, 6)]
    units = {one.job: one.unit for one in on_units(bars, {"m": 4})}
    assert units == {"a": 0, "b": 1, "c": 3, "d": 1}
    # a machine that has fewer units than it had is drawn all the same
    assert [one.unit for one in on_units(bars, {"m": 1})] == [0, 0, 0, 0]


class TestLogs:
    def test_the_log_of_a_known_job_is_found_also_after_the_state_was_moved(
        self, state: Path
    ) -> None:
        moved = state.rename(state.with_name("moved"))
        with reader(moved) as one:
            path = one.log_file(EVIL)
        assert path is not None
        assert path.parent == moved / store.LOGS
        assert path.read_text() == f"this is <b>{EVIL}</b>\n"

    @pytest.mark.parametrize("name", ["../state.sqlite", "nobody", "", "../../etc/passwd"])
    def test_only_jobs_that_there_are_have_logs(self, state: Path, name: str) -> None:
        with reader(state) as one, pytest.raises(QueueError, match="there is no job"):
            one.log_file(name)

    def test_a_job_that_has_not_run_has_none(self, state: Path) -> None:
        with reader(state) as one:
            with pytest.raises(QueueError, match="has not run yet"):
                one.log_file("gang")
            with pytest.raises(QueueError, match="no attempt 7"):
                one.log_file("b", 7)

    def test_neither_a_line_of_the_state_nor_a_link_leads_elsewhere(
        self, state: Path, tmp_path: Path
    ) -> None:
        secret = tmp_path / "secret"
        secret.write_text("secret")
        with contextlib.closing(sqlite3.connect(state / store.FILE)) as file, file:
            file.execute("UPDATE attempts SET log = ?", (str(secret),))
        log = state / store.LOGS / "b.1.log"
        log.unlink()
        log.symlink_to(secret)
        with contextlib.closing(Client(state)) as client:
            assert (
                client.log_of("b").resolve() == secret
            )  # whoever has a terminal can read it anyway
        with reader(state) as one:
            assert one.log_file("b") is None
