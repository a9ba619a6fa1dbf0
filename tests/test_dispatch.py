"""The command: exit statuses, reports, one-sentence mistakes, and Ctrl-C without orphans."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from hetsched import dispatch
from hetsched.cli import UserError
from hetsched.executor.estimates import read_runs

ROOT = Path(dispatch.__file__).parent
QUEUE = """
machines:
  - {name: cpu, slots: 2}
jobs:
  - {name: a, command: "echo hello", durations: {cpu: 0.1}}
  - {name: b, command: "exit 3", durations: {cpu: 0.1}}
  - {name: c, command: "true", durations: {cpu: 0.1}, after: b}
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The states of queues go to runs/dispatch of the current folder."""
    monkeypatch.chdir(tmp_path)


def write(tmp_path: Path, text: str = QUEUE) -> str:
    path = tmp_path / "queue.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def call(*arguments: str) -> int:
    return dispatch.dispatch(arguments)


def test_a_failed_job_gives_status_1_and_a_full_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out.json"
    queue = write(tmp_path)
    status = call(queue, "--policy", "fifo", "--logs", str(logs), "--json", str(out))
    assert status == 1
    said = json.loads(out.read_text(encoding="utf-8"))
    assert {one["job"]: one["status"] for one in said["jobs"]} == {
        "a": "done",
        "b": "failed",
        "c": "not run",
    }
    assert (logs / "a.1.log").read_text(encoding="utf-8") == "hello\n"
    assert json.loads((logs / "report.json").read_text(encoding="utf-8")) == said
    captured = capsys.readouterr()
    assert "1 of 3 jobs done" in captured.out
    assert "b on cpu" in captured.err
    assert "exit status 3" in captured.err


def test_all_done_gives_status_0_and_the_json_can_go_to_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = QUEUE.replace("exit 3", "true")
    arguments = ("--policy", "ect-wait", "--logs", str(tmp_path / "logs"), "--json", "-")
    assert call(write(tmp_path, text), "--quiet", *arguments) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["policy"], said["totals"]["done"]) == ("ect-wait", 3)


def test_the_simulated_executor_starts_nothing(tmp_path: Path) -> None:
    text = QUEUE.replace("echo hello", f"touch {tmp_path}/started")
    out = tmp_path / "out.json"
    arguments = ("--policy", "fifo", "--executor", "simulated", "--json", str(out))
    assert call(write(tmp_path, text), *arguments) == 0
    assert not (tmp_path / "started").exists()
    said = json.loads(out.read_text(encoding="utf-8"))
    assert said["totals"]["makespan"] == pytest.approx(0.2)


def test_a_dry_run_shows_the_plan_and_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "plan.html"
    arguments = ("--policy", "spt", "--dry-run", "--gantt", str(picture))
    assert call(write(tmp_path), *arguments, "--machines", "big:cpu@0,cpu@cpu*4") == 0
    said = capsys.readouterr().out
    assert "nothing was started" in said
    assert "3 of 3 jobs planned" in said
    assert "Machines in use: big" in said
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize("name", ["queue.yaml", "gpu-queue.yaml"])
def test_the_examples_can_be_planned(name: str) -> None:
    assert call(str(ROOT / "examples" / name), "--policy", "allox", "--dry-run") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.yaml"], "cannot read absent.yaml"),
        (["QUEUE", "--machines", "two gpus"], "--machines: 'two gpus' cannot be read"),
        (["QUEUE", "--policy", "no-such"], "--policy: 'no-such' is neither a file nor a shipped"),
        (["QUEUE", "--policy", "no-such"], "the rules are fifo, "),
        (["QUEUE", "--policy", "absent.safetensors"], "--policy: there is no checkpoint"),
        (["QUEUE", "--policy", "atc:k=much"], "--policy: parameter 'k' of rule 'atc' must be"),
        (["QUEUE", "--policy", "fifo", "--json", "absent/x"], "--json: 'absent/x' cannot be writ"),
        (["QUEUE", "--policy", "fifo", "--gantt", "x.gif"], "gantt: 'x.gif' must end in .png"),
        (["QUEUE", "--policy", "fifo", "--logs", "QUEUE"], "--logs: .* cannot be made"),
        (["QUEUE", "--policy", "fifo", "--state", "QUEUE"], "--state: .* cannot be made"),
        (["run"], "QUEUE.yaml is missing"),
        (["run", "--policy", "fifo", "--state", "nowhere"], "nowhere holds no queue"),
        (["QUEUE", "--policy", "fifo", "--web", "99999"], "--web is 99999; give a number from 0"),
        (["QUEUE", "--fallback", "no-such"], "--fallback: no rule is called 'no-such'"),
        (["QUEUE", "--policy", "fifo", "--decision-timeout", "0"], "--decision-timeout is 0"),
    ],
)
def test_a_mistake_in_the_call_is_one_sentence(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    queue = write(tmp_path)
    arguments = [queue if word == "QUEUE" else word for word in arguments]
    with pytest.raises(UserError, match=message) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)


def test_the_same_command_runs_a_finished_queue_anew_and_keeps_the_last_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = QUEUE.replace("echo hello", f"echo x >> {tmp_path}/count")
    for _ in range(2):
        assert call(write(tmp_path, text), "--policy", "fifo") == 1
    assert (tmp_path / "count").read_text() == "x\nx\n"
    assert len(list((tmp_path / "runs" / "dispatch").iterdir())) == 2
    assert "The last run of this queue is now in runs/dispatch/queue." in capsys.readouterr().err


def test_a_run_leaves_what_its_jobs_taught_in_a_table(tmp_path: Path) -> None:
    text = QUEUE.replace("echo hello", "sleep 0.3")
    assert call(write(tmp_path, text), "--quiet", "--policy", "fifo", "--state", "s") == 1
    (run,) = read_runs(tmp_path / "s" / "runs.csv")  # b failed and c never ran
    assert (run.model, run.machine, run.gpus, run.expected) == ("a", "cpu", 1, 0.1)
    assert 0.3 <= run.seconds < 30.0
    assert (
        call(write(tmp_path, text), "--quiet", "--policy", "fifo", "--state", "t", "--no-learning")
        == 1
    )
    assert not (tmp_path / "t" / "runs.csv").exists()


def test_a_job_submitted_after_the_end_is_not_set_aside_but_run(tmp_path: Path) -> None:
    queue = write(tmp_path)
    assert call(queue, "--policy", "fifo", "--quiet") == 1
    text = f"echo x >> {tmp_path}/late"
    assert call("submit", "--name", "late", "--on", "cpu=1", "--", "sh", "-c", text) == 0
    assert call(queue, "--policy", "fifo", "--quiet") == 1
    assert (tmp_path / "late").read_text() == "x\n"
    assert [one.name for one in (tmp_path / "runs" / "dispatch").iterdir()] == ["queue"]


def test_a_state_that_was_named_is_never_run_again_unless_asked(tmp_path: Path) -> None:
    text = QUEUE.replace("echo hello", f"echo x >> {tmp_path}/count")
    queue = write(tmp_path, text)
    options = ("--policy", "fifo", "--state", str(tmp_path / "state"), "--quiet")
    for _ in range(2):
        assert call(queue, *options) == 1
    assert (tmp_path / "count").read_text() == "x\n"
    assert call("run", *options) == 1  # without the file too
    assert call(queue, *options, "--fresh") == 1
    assert (tmp_path / "count").read_text() == "x\nx\n"


def test_a_policy_that_cannot_be_loaded_is_replaced_if_a_fallback_was_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"no weights at all")
    out = tmp_path / "out.json"
    arguments = ("--policy", str(bad), "--fallback", "spt", "--json", str(out))
    assert call(write(tmp_path), *arguments) == 1
    assert "WARNING: --policy: " in capsys.readouterr().err
    assert json.loads(out.read_text(encoding="utf-8"))["policy"] == "spt"


def test_a_queue_that_is_in_use_is_refused(tmp_path: Path) -> None:
    from hetsched.executor.queue_file import load_queue
    from hetsched.executor.store import create
    from hetsched.executor.store_ledger import StoreLedger

    queue, state = write(tmp_path), tmp_path / "state"
    create(state, load_queue(queue))
    ledger = StoreLedger(state)
    try:
        with pytest.raises(UserError, match="is in use by another dispatch"):
            call(queue, "--policy", "fifo", "--state", str(state))
    finally:
        ledger.close()


def test_a_mistake_in_the_objective_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"queue: objective: .*unknown term 'fast'"):
        call(write(tmp_path, QUEUE + "objective: fast"), "--policy", "fifo")


def test_a_command_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dispatch.COMMANDS, "dance", "what nobody has written")
    with pytest.raises(UserError, match="dance: this version does not have that command yet"):
        call("dance")


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--help") == 0
    said = capsys.readouterr().out
    assert all(name in said for name in dispatch.COMMANDS)


def test_help_does_not_load_torch() -> None:
    code = "import sys; from hetsched import dispatch; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def processes_with(mark: str) -> list[int]:
    """Living processes that have the text in their environment, as /proc shows it."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


INTERRUPTED = """
machines:
  - {name: cpu, slots: 3}
grace: 0.5
defaults: {durations: {cpu: 60}, env: {MARK: MARKER}}
jobs:
  - {name: obeys, command: "touch OBEYS; sleep 60"}
  - name: ignores
    command: "trap '' TERM; (sleep 60 & sleep 60; sleep 60) & touch IGNORES; wait; sleep 60"
  - {name: waits, command: "true", after: obeys}
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="orphans are found in /proc")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_signal_leaves_no_orphan(tmp_path: Path, number: int, status: int) -> None:
    mark = uuid.uuid4().hex
    flags = [tmp_path / "obeys", tmp_path / "ignores"]
    text = INTERRUPTED.replace("MARKER", mark)
    text = text.replace("OBEYS", str(flags[0])).replace("IGNORES", str(flags[1]))
    command = [sys.executable, str(ROOT / "dispatch.py"), write(tmp_path, text)]
    command += ["--policy", "fifo", "--logs", str(tmp_path / "logs")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 60
        while not all(flag.exists() for flag in flags) and time.monotonic() < end:
            time.sleep(0.02)
        assert len(processes_with(mark)) >= 4
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == status, err.decode()
    assert processes_with(mark) == []
    said = json.loads((tmp_path / "logs" / "report.json").read_text(encoding="utf-8"))
    assert [one["status"] for one in said["jobs"]] == ["preempted", "preempted", "not run"]
    assert said["jobs"][1]["reason"] == "made to leave its machine; it was killed after its grace"
    assert "it comes after 'obeys', which had not ended" in said["jobs"][2]["reason"]
    assert "0 of 3 jobs done" in out.decode()
    assert "Jobs not over: 3. To go on: dispatch.py run --state" in err.decode()
