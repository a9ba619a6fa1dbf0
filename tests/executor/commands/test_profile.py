"""``dispatch.py profile``: from a queue without durations to a table that queues are read with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hetsched import dispatch
from hetsched.cli import UserError
from hetsched.envs.scenarios.own import own_instance
from hetsched.executor.commands.profile import main
from hetsched.executor.estimates import CompletedRun, Estimates
from hetsched.executor.profiling_table import SpeedRow, read_table, write_table
from hetsched.executor.queue_file import load_queue

ROOT = Path(dispatch.__file__).parent
QUEUE = """
machines: [{name: slots, slots: 2}]
speeds: speeds.csv
jobs:
  - {name: train, model: net, steps: 1000, command: 'i=0; while :; do i=$((i+1));
      echo $i >> "$HETSCHED_PROGRESS"; sleep 0.02; done'}
  - {name: short, command: "sleep 0.1"}
"""
QUICK = ["--repeats", "1", "--warmup", "0.1", "--seconds", "0.3", "--warmup-runs", "0"]


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "queue.yaml"
    path.write_text(QUEUE, encoding="utf-8")
    return path


def test_what_it_writes_is_what_dispatch_and_training_read(
    queue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = queue.with_name("speeds.csv")
    write_table(table, [SpeedRow("other", "k80", 3.0), SpeedRow("net", "cpu", 1.0)])
    assert main([str(queue), *QUICK, "--json", "all.json"]) == 0
    out = capsys.readouterr().out
    assert "Written to" in out
    assert "short: durations: {cpu: 0.1" in out

    other, net, short = read_table(table)
    assert (other.key, net.key, short.key) == (
        ("other", "k80", 1), ("net", "cpu", 1), ("short", "cpu", 1),
    )  # fmt: skip
    assert other.speed == 3.0
    assert 2 < net.speed <= 50
    runs = json.loads(Path("all.json").read_text(encoding="utf-8"))["measurements"]
    assert [one["model"] for one in runs] == ["net", "short"]
    assert runs[0]["runs"][0]["speed"] == pytest.approx(net.speed, rel=1e-4)

    queue.write_text(QUEUE.replace("short,", "short, model: short, steps: 1,"), encoding="utf-8")
    train, again = load_queue(queue).jobs
    assert train.modes[0].seconds == pytest.approx(net.startup + 1000 / net.speed)
    assert again.modes[0].seconds == pytest.approx(1 / short.speed)
    jobs = queue.with_name("jobs.csv")
    jobs.write_text("name,model,work\na,net,1000\n", encoding="utf-8")
    matrix = own_instance(table, jobs, "cpu*1").matrix()
    assert matrix[0, 0] == pytest.approx(train.modes[0].seconds)


def test_some_that_cannot_be_measured_give_status_1_and_the_others_are_written(
    queue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.write_text(
        "machines: [{name: cpu}]\njobs:\n  - {name: bad, command: exit 3}\n"
        "  - {name: good, command: sleep 0.05}\n",
        encoding="utf-8",
    )
    assert main([str(queue), *QUICK, "--out", "other.csv"]) == 1
    assert "not measured: exit status 3" in capsys.readouterr().out
    assert [row.model for row in read_table("other.csv")] == ["good"]
    assert not queue.with_name("speeds.csv").exists()


def test_a_dry_run_says_what_would_be_measured(
    queue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(queue), "--dry-run"]) == 0
    assert capsys.readouterr().out == "net on cpu (slots)\nshort on cpu (slots)\n"
    assert sorted(path.name for path in queue.parent.iterdir()) == ["queue.yaml"]


def test_ctrl_c_keeps_what_was_measured_and_leaves_no_process(queue: Path) -> None:
    pid_file = queue.with_name("pid")
    queue.write_text(
        "machines: [{name: cpu}]\njobs:\n  - {name: quick, command: sleep 0.05}\n"
        f"  - {{name: slow, command: 'echo $$ > {pid_file}; sleep 60'}}\n",
        encoding="utf-8",
    )
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "dispatch.py"), "profile", str(queue), *QUICK],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    end = time.monotonic() + 30
    while not (pid_file.exists() and pid_file.read_text(encoding="utf-8").strip()):
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert "Written to" in out
    assert [row.model for row in read_table(queue.with_name("speeds.csv"))] == ["quick"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text(encoding="utf-8")), 0)


def test_completed_runs_correct_the_table_without_running_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, runs = tmp_path / "speeds.csv", tmp_path / "runs.csv"
    write_table(table, [SpeedRow("net", "k80", 9.0), SpeedRow("else", "k80", 4.0)])
    Estimates((), [CompletedRun("net", "k80", 1, 10.0, 30.0)] * 40).save(runs)
    for changed in (1, 0):  # the runs are used up
        assert main(["--learn", str(runs), "--out", str(table)]) == 0
        assert f"{changed} of 2 rows corrected" in capsys.readouterr().out
        net, other = read_table(table)
        assert net.speed == pytest.approx(3.0, rel=0.01)
        assert other.speed == 4.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "QUEUE.yaml is missing"),
        (["absent.yaml"], "cannot read absent.yaml"),
        (["queue.yaml", "--gpus", "1,x"], "--gpus is '1,x'; give numbers from 1"),
        (["queue.yaml", "--repeats", "0"], "repeats is 0; it must be at least 1"),
        (["queue.yaml", "--progress-pattern", "("], "is no regular expression"),
        (["queue.yaml", "--progress-pattern", "step"], "has no group"),
        (["queue.yaml", "--out", "absent/speeds.csv"], "--out: 'absent/speeds.csv' cannot be"),
        (["queue.yaml", "--on", "v100"], "--on: there is no 'v100' in this queue; use cpu."),
        (["--learn", "runs.csv"], "--learn needs --out SPEEDS.csv"),
        (["--learn", "runs.csv", "--out", "speeds.csv"], "cannot read runs.csv"),
    ],
)
def test_mistakes_are_one_sentence(queue: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        main(arguments)
    assert message in str(caught.value)


def test_a_broken_table_is_refused_before_anything_runs(queue: Path) -> None:
    queue.with_name("speeds.csv").write_text("model,machine\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"speeds.csv, line 1: column 'speed' is missing"):
        main([str(queue)])
    assert not queue.with_name("runs").exists()
