"""What jobs say of their progress, from the file they write to what people see."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

import pytest

from hetsched import dispatch
from hetsched.executor import store
from hetsched.executor.exits import Exits
from hetsched.executor.local import LocalExecutor
from hetsched.executor.progress import read_share
from hetsched.executor.protocol import Attempt, Machine
from hetsched.executor.queue import Job, Mode, Queue
from hetsched.executor.snapshot import Reader
from hetsched.executor.store_ledger import StoreLedger
from hetsched.executor.web_data import queue_data
from hetsched.tests.executor.conformance_processes import output, wait_until
from hetsched.tests.executor.test_live_view import seen

CPU = (Machine("cpu", capacity=2),)


@pytest.mark.parametrize(
    ("text", "steps", "share"),
    [
        ("0.25\n", 0, 0.25),
        ("0.25\n0.5\n", 0, 0.5),
        ("1.0\n", 0, 1.0),
        ("25%\n", 0, 0.25),
        ("25 %\n", 0, None),  # the last word says no number
        ("epoch 50%", 0, 0.5),
        ("50\n", 200, 0.25),
        ("7 50\n", 200, 0.25),  # units count, not steps
        ("50%\n", 200, 0.5),
        ("300\n", 200, 1.0),
        ("1\n", 0, None),  # a step, of nobody knows how many
        ("-0.5\n", 0, None),
        ("1.5\n", 0, None),
        ("0.5\nnonsense and more\nnan\n", 0, 0.5),
        ("", 0, None),
        ("x" * 600 + "\n0.75\n", 0, 0.75),
    ],
)
def test_the_last_number_counts(
    tmp_path: Path, text: str, steps: float, share: float | None
) -> None:
    (tmp_path / "p").write_text(text)
    assert read_share(tmp_path / "p", steps) == share


def test_whatever_lies_there_does_no_harm(tmp_path: Path) -> None:
    assert read_share(tmp_path / "absent", 0.0) is None
    assert read_share(tmp_path, 0.0) is None
    os.mkfifo(tmp_path / "pipe")
    assert read_share(tmp_path / "pipe", 0.0) is None
    (tmp_path / "real").write_text("0.5\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read_share(tmp_path / "link", 0.0) is None
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\n0.5\n\xff")
    assert read_share(tmp_path / "bytes", 0.0) == 0.5


def test_every_attempt_begins_with_no_progress(tmp_path: Path) -> None:
    executor = LocalExecutor(CPU, tmp_path)
    with contextlib.closing(executor):
        for number in (1, 1, 2):  # the first twice: as a program that runs a queue again
            command = 'cat "$HETSCHED_PROGRESS"; echo 0.5 >> "$HETSCHED_PROGRESS"'
            executor.start(Attempt("a/b", "cpu", number, command=command))
            (outcome,) = executor.poll()
            assert "No such file" in output(outcome)
    assert read_share(tmp_path / "a%2Fb.2.progress", 0.0) == 0.5


def test_a_file_that_the_attempt_brings_along_is_left_to_it(tmp_path: Path) -> None:
    executor = LocalExecutor(CPU, tmp_path)
    with contextlib.closing(executor):
        env = {"HETSCHED_PROGRESS": "/mine"}
        executor.start(Attempt("a", "cpu", command='echo "$HETSCHED_PROGRESS"', env=env))
        (outcome,) = executor.poll()
    assert output(outcome) == "/mine\n"


def test_the_progress_of_a_running_job_is_shown_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    says = 'echo {} >> "$HETSCHED_PROGRESS"; sleep 60'
    shares = Job("shares", (Mode("cpu", 100.0),), says.format("0.37"))
    counts = Job("counts", (Mode("cpu", 100.0),), says.format("50"), steps=200.0)
    store.create(state, Queue((shares, counts), CPU))
    with contextlib.closing(StoreLedger(state)) as ledger:
        ledger.load()
        exits = Exits(state / store.EXITS, ledger.identity)
        executor = LocalExecutor(CPU, state / store.LOGS, 0.1, exits=exits, opened=ledger.clock())
        with contextlib.closing(executor):
            for one in (shares, counts):
                ledger.starting(one.attempt(0, 1), executor.now())
                executor.start(one.attempt(0, 1))
            ledger.commit()
            reports = [state / store.LOGS / f"{name}.1.progress" for name in ("shares", "counts")]
            assert wait_until(lambda: all(one.exists() and one.read_text() for one in reports))
            dispatch.dispatch(["status", "--state", str(state)])
            table = " ".join(capsys.readouterr().out.split())
            assert "running 37%" in table
            assert "running 25%" in table
            dispatch.dispatch(["status", "--state", str(state), "--json"])
            jobs = json.loads(capsys.readouterr().out)["jobs"]
            assert [one["progress"] for one in jobs] == [0.37, 0.25]
            with contextlib.closing(Reader(state)) as reader:
                snapshot = reader.snapshot()
            assert [one["progress"] for one in queue_data(snapshot)["jobs"]] == [0.37, 0.25]
            lines = "\n".join(seen(snapshot))
            assert "37%, " in lines
            assert "25%, " in lines


def test_reading_progress_is_cheap(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_bytes(b"0.1\n" * 10**6)
    began = time.process_time()
    for _ in range(100):
        assert read_share(path, 0.0) == 0.1
    assert time.process_time() - began < 0.5  # microseconds each, however long it is
