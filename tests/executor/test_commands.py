"""The commands that talk to a queue from another terminal, over a state without a scheduler."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
import sys
import threading
import time
from pathlib import Path

import pytest

from hetsched import dispatch
from hetsched.cli import UserError
from hetsched.executor import store
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, Mode, Queue
from hetsched.executor.store_client import Client
from hetsched.executor.store_ledger import StoreLedger
from hetsched.executor.store_merge import set_aside

MACHINES = (Machine("cpu", capacity=2), Machine("h200", "h200", "gpu", ("0",), memory=141e9))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A queue in the default folder, of which job `a` is done and `b` waits."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "dispatch" / "queue"
    jobs = (Job("a", (Mode("cpu", 5.0),), "true"), Job("b", (Mode("cpu", 5.0),), "true"))
    store.create(folder, Queue(jobs, MACHINES))
    with contextlib.closing(StoreLedger(folder)) as ledger:
        ledger.load()
        attempt = jobs[0].attempt(0, 1)
        ledger.starting(attempt, 0.0)
        ledger.fate("a", "done", "")
    (folder / store.LOGS).mkdir()
    (folder / store.LOGS / "a.1.log").write_text("one\ntwo\nthree\n")
    return folder


def call(*arguments: str) -> int:
    return dispatch.dispatch(arguments)


def job(state: Path, name: str) -> Job:
    with contextlib.closing(Client(state)) as client:
        (found,) = client.overview(names=[name]).jobs
    return found.job


def test_a_job_is_submitted_by_options(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--on", "h200=20m", "--gpus", "1", "--priority", "3", "--memory", "2G"]
    options += ["--env", "LEVEL=2", "--after", "b", "--retries", "1", "--due", "1h"]
    assert call("submit", "--name", "new", *options, "--", "echo", "-n", "x y") == 0
    said = capsys.readouterr().out
    assert "Submitted 1 job to runs/dispatch/queue." in said
    assert "No scheduler runs there: dispatch.py run --state runs/dispatch/queue" in said
    new = job(state, "new")
    assert new.modes == (Mode("h200", 1200.0, 1),)
    assert (new.command, new.after, new.priority) == (("echo", "-n", "x y"), ("b",), 3)
    assert (new.memory, new.retries, dict(new.env)) == (2 * 1024**3, 1, {"LEVEL": "2"})
    assert new.workdir == os.fspath(Path.cwd())
    assert new.due - new.release == pytest.approx(3600.0)


def test_jobs_are_submitted_from_a_file(state: Path, tmp_path: Path) -> None:
    text = (
        "defaults: {durations: {cpu: 3}}\njobs:\n- {name: x, command: a}\n- {name: y, command: b}"
    )
    (tmp_path / "more.yaml").write_text(text)
    assert call("submit", "more.yaml") == 0
    assert job(state, "y").command == "b"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["submit", "--name", "x", "--on", "v100=5", "--", "true"], "'v100', which is no machine"),
        (["submit", "--name", "x", "--on", "cpu=5"], "command is missing"),
        (
            ["submit", "--name", "x", "--on", "cpu", "--", "true"],
            "--on: 'cpu' has no value; write MACHINE=SECONDS",
        ),
        (
            ["submit", "--name", "x", "--on", "cpu=5", "--demand", "9", "--", "true"],
            "needs more units",
        ),
        (
            ["submit", "--name", "x", "--on", "h200=5", "--gpu-memory", "200G", "--", "true"],
            "gpu_memory is more than the 131 GiB",
        ),
        (["submit", "--name", "a", "--on", "cpu=5", "--", "true"], "'a': name is used already"),
        (["submit", "--name", "x", "--on", "cpu=5", "--gpus", "two", "--", "t"], "is no number"),
        (["submit", "jobs"], "give one JOBS.yaml, or --name"),
        (["cancel", "nobody"], "there is no job 'nobody'"),
        (["cancel", "a"], "job 'a' is over"),
        (["preempt", "b"], "job 'b' does not run"),
        (["priority", "1", "a"], "job 'a' does not wait"),
        (["priority", "1", "b", "--weight", "-1"], "--weight is -1.0"),
        (["priority", "1" + "0" * 30, "b"], "priority is 1000.*; it must be within"),
        (["priority", "1", "b", "--weight", "1e300"], "--weight is 1e.300; it must be a number"),
        (
            ["submit", "--name", "x", "--on", "cpu=5", "--priority", "1" + "0" * 30, "--", "t"],
            "'x': priority is 1000.*; it must be within",
        ),
        (["serve", "--port", "99999"], "--port is 99999; give a number from 0"),
        (["statsu"], "there is no command and no file 'statsu'; the commands are run, submit, "),
        (["drain", "v100"], "there is no machine 'v100'; use cpu, h200"),
        (["logs", "b"], "job 'b' has not run yet"),
        (["logs", "a", "-n", "-3"], "--lines is -3; give 0 or more"),
        (["logs", "a", "--attempt", "2"], "job 'a' has no attempt 2"),
        (["status", "--state", "elsewhere"], "elsewhere holds no queue"),
        (["status", "nobody"], "there is no job 'nobody'"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)


def test_without_any_queue_the_sentence_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(UserError, match=r"no queue in runs/dispatch; .* dispatch.py QUEUE.yaml"):
        call("status")


def test_the_status_is_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("status") == 0
    table = capsys.readouterr().out
    assert "1 done, 1 waiting" in table
    assert "NO SCHEDULER RUNS" in table
    assert call("status", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["counts"] == {"done": 1, "waiting": 1}
    assert [(one["job"], one["status"]) for one in said["jobs"]] == [
        ("b", "waiting"),
        ("a", "done"),
    ]
    assert [one["capacity"] for one in said["machines"]] == [2, 1]


@pytest.mark.parametrize(("until", "more"), [(math.inf, ""), (1e6, "; tried again in 277:4")])
def test_the_status_shows_drained_machines(
    state: Path, capsys: pytest.CaptureFixture[str], until: float, more: str
) -> None:
    with contextlib.closing(StoreLedger(state)) as ledger:
        ledger.machine("cpu", "failed [twice]", until)
        ledger.note(5.0, "machine 'cpu' is drained")
    assert call("status") == 0
    said = capsys.readouterr().out
    assert f"drained: failed [twice]{more}" in said
    assert "machine 'cpu' is drained" in said


def test_the_status_of_a_queue_that_is_over_alarms_nobody(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(StoreLedger(state)) as ledger:
        ledger.load()
        ledger.fate("b", "failed", "its reason is longer than a line of a narrow terminal, " * 2)
    assert call("status") == 0
    said = capsys.readouterr().out
    assert "all over, no scheduler runs" in said
    assert "NO SCHEDULER" not in said
    assert "longer than a line of a narrow terminal" in said  # no word broken in a pipe


def test_requests_say_who_will_carry_them_out(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("cancel", "b") == 0
    assert "as soon as dispatch.py run --state runs/dispatch/queue" in capsys.readouterr().out
    with contextlib.closing(StoreLedger(state)) as ledger:
        assert call("drain", "cpu", "--reason", "loud") == 0
        assert capsys.readouterr().out == "Machine cpu will be drained.\n"
        ledger.load()
        requests = ledger.inbox().requests
    assert [(one.kind, one.name, one.value) for one in requests] == [
        ("cancel", "b", ""),
        ("drain", "cpu", "loud"),
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "one\ntwo\nthree\n"),
        (["-n", "2"], "two\nthree\n"),
        (["-n", "0"], ""),
        (["-n", "9"], "one\ntwo\nthree\n"),
        (["-f"], "one\ntwo\nthree\n"),  # it is over
    ],
)
def test_logs_show_what_a_job_wrote(
    options: list[str], said: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert call("logs", "a", *options) == 0
    sys.stdout.flush()
    assert capfdbinary.readouterr().out.decode() == said


def test_logs_can_be_followed_until_the_job_is_over(
    state: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with contextlib.closing(StoreLedger(state)) as ledger:
        (b,) = [one.job for one in ledger.load() if one.job.name == "b"]
        ledger.starting(b.attempt(0, 1), 0.0)
        ledger.commit()
        log = state / store.LOGS / "b.1.log"
        log.write_text("early\n")
        following = threading.Thread(target=call, args=("logs", "-f", "b"))
        following.start()
        time.sleep(0.3)
        with log.open("a") as file:
            file.write("late\n")
        ledger.fate("b", "done", "")
        ledger.commit()
        following.join(timeout=20)
    assert not following.is_alive()
    assert capfdbinary.readouterr().out == b"early\nlate\n"


def test_the_path_of_a_log_is_said(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("logs", "--path", "a") == 0
    assert capsys.readouterr().out.strip() == os.fspath(
        Path("runs", "dispatch", "queue", "logs", "a.1.log")
    )


def test_the_logs_of_a_run_that_was_set_aside_are_its_own(
    state: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with contextlib.closing(StoreLedger(state)) as ledger:
        ledger._write("UPDATE attempts SET log = ?", os.fspath(state / store.LOGS / "a.1.log"))
    place = set_aside(state)
    (state / store.LOGS).mkdir(parents=True)  # the next run, in the same folder
    (state / store.LOGS / "a.1.log").write_text("of the next run\n")
    assert call("logs", "--state", os.fspath(place), "a") == 0
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b"one\ntwo\nthree\n"


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["logs", "a"], ["cancel", "b"], ["submit", "--name", "x", "--on", "cpu=5", "t"]],
)
def test_a_state_that_is_damaged_in_the_middle_is_one_sentence(
    state: Path, arguments: list[str]
) -> None:
    with contextlib.closing(sqlite3.connect(state / store.FILE)) as file:
        pages = [row[0] for row in file.execute(
            "SELECT rootpage FROM sqlite_master WHERE tbl_name IN ('jobs', 'machines')"
        )]  # fmt: skip
        (size,) = file.execute("PRAGMA page_size").fetchone()
    with (state / store.FILE).open("r+b") as raw:
        for page in pages:
            raw.seek((page - 1) * size)
            raw.write(b"\xff" * 256)
    with pytest.raises(
        UserError, match=r"the state of the queue .*malformed.*: it is damaged; name"
    ):
        call(*arguments)


@pytest.mark.parametrize("arguments", [["status"], ["status", "--json"], ["logs", "a"]])
def test_commands_that_only_show_work_where_nothing_can_be_written(
    state: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = store.connect

    def sealed(folder: Path, read_only: bool = False) -> sqlite3.Connection:
        assert read_only  # an administrator may write everywhere: ask what was asked for
        return connect(folder, read_only)

    monkeypatch.setattr(store, "connect", sealed)
    assert call(*arguments) == 0


def test_a_submitted_job_is_in_the_queue_of_a_scheduler_that_runs(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(StoreLedger(state)) as ledger:
        ledger.load()
        assert ledger.inbox().jobs == ()
        assert call("submit", "--name", "new", "--on", "cpu=5", "--", "true") == 0
        assert "No scheduler" not in capsys.readouterr().out
        assert [one.name for one in ledger.inbox().jobs] == ["new"]
        assert ledger.inbox().jobs == ()
