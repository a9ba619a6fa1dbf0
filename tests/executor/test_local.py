"""Real processes: exit codes, output, timeouts, process groups, GPU visibility."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hetsched.executor import local, processes
from hetsched.executor.local import LocalExecutor
from hetsched.executor.protocol import Attempt, Machine, Outcome
from hetsched.tests.executor.conformance_processes import is_alive, output, wait_until

if TYPE_CHECKING:
    import subprocess

MACHINES = (
    Machine("cpu", capacity=4),
    Machine("gpu", "v100", "gpu", ("GPU-0a1b", "GPU-2c3d"), capacity=2),
    Machine("shared", "k80", "gpu", ("3",), capacity=2),
)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(MACHINES, tmp_path / "logs", grace=0.3)
    yield made
    made.close()


def run(executor: LocalExecutor, command: tuple[str, ...] | str, **fields: object) -> Outcome:
    fields.setdefault("machine", "cpu")
    executor.start(Attempt("job", command=command, **fields))  # type: ignore[arg-type]
    (outcome,) = executor.poll()
    return outcome


def test_success_is_done_with_its_output_in_a_file(executor: LocalExecutor) -> None:
    outcome = run(executor, ("sh", "-c", "echo out; echo err >&2"), number=2)
    assert (outcome.status, outcome.exit_code, outcome.reason) == ("done", 0, "")
    assert output(outcome) == "out\nerr\n"
    assert outcome.log is not None
    assert outcome.log.endswith("logs/job.2.log")


def test_a_string_goes_through_the_shell(executor: LocalExecutor) -> None:
    assert output(run(executor, "echo $((6 * 7)) | cat")) == "42\n"


def test_an_exit_status_is_a_failure(executor: LocalExecutor) -> None:
    outcome = run(executor, "exit 3")
    assert (outcome.status, outcome.exit_code, outcome.reason) == ("failed", 3, "exit status 3")


def test_a_death_by_a_signal_is_a_loss(executor: LocalExecutor) -> None:
    outcome = run(executor, "kill -SEGV $$")
    assert (outcome.status, outcome.exit_code) == ("lost", -signal.SIGSEGV)
    assert outcome.reason == "killed by SIGSEGV"


def test_a_command_that_cannot_be_started_is_a_failure(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("no program")
    absent = str(tmp_path / "absent")
    for command, workdir, why in (
        (("no-such-program",), None, "'no-such-program'"),
        (("true",), absent, f"'{absent}'"),
        ((str(plain),), None, f"'{plain}'"),
    ):
        outcome = run(executor, command, workdir=workdir)
        assert outcome.status == "failed"
        assert outcome.reason.startswith("could not be started: ")
        assert why in outcome.reason
    assert run(executor, ("true",)).status == "done"  # its room is free again


def test_a_job_runs_in_its_folder_with_its_variables(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    outcome = run(
        executor,
        'pwd; echo "$COLOUR $HETSCHED_JOB $HETSCHED_ATTEMPT $HETSCHED_MACHINE"',
        workdir=str(tmp_path),
        env={"COLOUR": "blue"},
    )
    assert output(outcome) == f"{tmp_path.resolve()}\nblue job 1 cpu\n"


def test_a_job_reads_no_terminal(executor: LocalExecutor) -> None:
    assert run(executor, "read line").status == "failed"  # end of file at once


def test_attempts_see_only_the_gpus_of_their_units(
    executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    command = 'sleep 0.1; echo "${CUDA_VISIBLE_DEVICES-unset}"'
    seen: dict[str, str] = {}
    for job, machine, demand in (
        ("none", "cpu", 1),
        ("first", "gpu", 1),
        ("second", "gpu", 1),
        ("half", "shared", 1),
        ("other half", "shared", 1),
    ):
        executor.start(Attempt(job, machine, command=command, demand=demand))
    while len(seen) < 5:
        seen.update({one.attempt.job: output(one).strip() for one in executor.poll()})
    assert seen == {
        "none": "",
        "first": "GPU-0a1b",
        "second": "GPU-2c3d",
        "half": "3",
        "other half": "3",
    }
    assert output(run(executor, command, machine="gpu", demand=2)) == "GPU-0a1b,GPU-2c3d\n"


def test_slots_run_at_the_same_time(executor: LocalExecutor) -> None:
    for job in "abcd":
        executor.start(Attempt(job, "cpu", command=("sleep", "0.4")))
    ended: list[Outcome] = []
    while len(ended) < 4:
        ended += executor.poll()
    assert max(one.ended for one in ended) < 1.5  # one after the other would take 1.6


def test_output_of_any_size_does_not_block(executor: LocalExecutor) -> None:
    outcome = run(executor, "head -c 10000000 /dev/zero; head -c 1000 /dev/zero >&2", timeout=20)
    assert outcome.status == "done"
    assert outcome.log is not None
    assert Path(outcome.log).stat().st_size == 10_001_000


def test_a_job_that_heeds_sigterm_may_clean_up(executor: LocalExecutor) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    outcome = run(executor, ("sh", "-c", script), timeout=0.2)
    assert (outcome.status, outcome.exit_code) == ("timeout", 0)
    words = output(outcome).split()
    assert (words[0], words[-1]) == ("ready", "saved")  # some shells also say "Terminated"


def test_the_shell_dies_of_sigterm_but_its_child_keeps_its_grace(tmp_path: Path) -> None:
    child = "import signal, sys, time\n" + (
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(.3), print('saved'), sys.exit()))\n"
        "print('ready', flush=True)\ntime.sleep(30)"
    )
    executor = LocalExecutor(MACHINES, tmp_path, grace=5.0)
    try:
        executor.start(Attempt("job", "cpu", command=f'{sys.executable} -c "{child}" && echo no'))
        assert wait_until(lambda: "ready" in (tmp_path / "job.1.log").read_text(), 5.0)
        executor.stop("job")
        (outcome,) = executor.poll()
    finally:
        executor.close()
    assert outcome.status == "cancelled"
    assert output(outcome).split() == ["ready", "saved"]
    assert outcome.seconds < 4


def test_a_job_that_ignores_sigterm_is_killed_with_its_grandchildren(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    script = (
        f"trap '' TERM; echo $$ >> {pids}; "
        f"sh -c 'echo $$ >> {pids}; sleep 60 & echo $! >> {pids}; wait' & wait; sleep 60"
    )
    began = time.monotonic()
    outcome = run(executor, script, timeout=0.4)
    assert 0.6 < time.monotonic() - began < 6.0  # timeout and grace
    assert outcome.status == "timeout"
    assert outcome.exit_code == -signal.SIGKILL
    assert outcome.reason.endswith("was killed after its grace")
    numbers = [int(line) for line in pids.read_text().split()]
    assert len(numbers) == 3
    assert not any(is_alive(pid) for pid in numbers)


def test_a_stopped_process_is_ended_too(executor: LocalExecutor) -> None:
    outcome = run(executor, "kill -STOP $$; sleep 60", timeout=0.2)
    assert (outcome.status, outcome.exit_code) == ("timeout", -signal.SIGTERM)


def test_what_a_job_leaves_behind_is_killed(executor: LocalExecutor) -> None:
    outcome = run(executor, "sleep 60 & echo $!")
    assert outcome.status == "done"
    assert not is_alive(int(output(outcome)))


def test_an_end_is_not_reported_before_its_whole_group_is_gone(
    executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False, False, True])
    asked: list[int] = []

    def is_gone(group: int) -> bool:
        asked.append(group)
        return next(answers)

    monkeypatch.setattr(processes, "group_is_gone", is_gone)
    executor.start(Attempt("job", "cpu", command="exit 3"))
    executor.stop("job", grace=0.0)
    (outcome,) = executor.poll()
    assert len(asked) == 3
    assert outcome.status == "cancelled"


def test_what_cannot_be_killed_is_waited_for_only_so_long_and_told(
    executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "group_is_gone", lambda group: False)
    monkeypatch.setattr(local, "GONE_SECONDS", 0.2)
    executor.start(Attempt("job", "cpu", command=("sleep", "60"), timeout=0.1))
    assert executor.poll(executor.now() + 0.25) == []
    executor.stop("job")  # it has ended: nothing more can be asked of it
    (outcome,) = executor.poll()
    assert outcome.status == "timeout"
    assert outcome.reason.endswith("SIGKILL did not end all of its processes, which may still "
                                   "hold its machine")  # fmt: skip
    assert outcome.seconds < 3.0
    assert executor.poll(executor.now()) == []


def test_a_big_killed_group_is_gone_when_its_end_is_reported(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    hoard = "held = bytearray(100 * 2**20); print(1, flush=True); import time; time.sleep(60)"
    one = f'{sys.executable} -c "{hoard}" & echo $! >> {pids}'
    script = f"trap '' TERM; for i in 1 2 3 4; do {one}; done; wait"
    executor.start(Attempt("job", "cpu", command=script))
    log = tmp_path / "logs" / "job.1.log"
    assert wait_until(lambda: log.read_text().count("1") == 4, 20.0)
    executor.stop("job", grace=0.0)
    (outcome,) = executor.poll()
    assert outcome.status == "cancelled"
    assert not any(is_alive(int(pid)) for pid in pids.read_text().split())


def test_closing_leaves_no_process(tmp_path: Path) -> None:
    executor = LocalExecutor(MACHINES, tmp_path, grace=0.2)
    executor.start(Attempt("obeys", "cpu", command="echo $$; exec sleep 60"))
    executor.start(Attempt("ignores", "cpu", command="trap '' TERM; echo $$; sleep 60; sleep 60"))
    logs = [tmp_path / "obeys.1.log", tmp_path / "ignores.1.log"]
    assert wait_until(lambda: all(log.read_text().strip() for log in logs), 5.0)
    pids = [int(log.read_text()) for log in logs]
    executor.close()
    assert not any(is_alive(pid) for pid in pids)


def test_somebody_can_wake_a_poll(tmp_path: Path) -> None:
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    executor = LocalExecutor(MACHINES, tmp_path, grace=0.0, wake=reader.fileno())
    executor.start(Attempt("a", "cpu", command=("sleep", "60")))
    writer.send(b"x")
    assert executor.poll() == []
    until = executor.now() + 0.1
    assert executor.poll(until) == []  # the byte is gone: this one waits
    assert executor.now() >= until
    executor.close()
    reader.close()
    writer.close()


def test_polling_sleeps_in_the_kernel(
    executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    has_exited = processes.has_exited

    def counted(process: subprocess.Popen[bytes]) -> bool:
        looks.append(process)
        return has_exited(process)

    monkeypatch.setattr(processes, "has_exited", counted)
    executor.start(Attempt("a", "cpu", command=("sleep", "0.5")))
    executor.poll()
    assert len(looks) <= 3


def test_without_pidfd_exits_are_still_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "exit_descriptor", lambda process: None)
    monkeypatch.setattr(processes, "_CAN_PEEK", False)
    executor = LocalExecutor(MACHINES, tmp_path, grace=0.2)
    try:
        outcome = run(executor, "exit 4")
        assert (outcome.status, outcome.exit_code) == ("failed", 4)
        assert outcome.seconds < 3.0
        assert run(executor, ("sleep", "60"), timeout=0.1).status == "timeout"
    finally:
        executor.close()


def test_a_long_run_keeps_no_descriptor(executor: LocalExecutor) -> None:
    run(executor, ("true",))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        run(executor, ("true",))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_job_name_cannot_leave_the_log_folder(executor: LocalExecutor, tmp_path: Path) -> None:
    executor.start(Attempt("../../a b/c", "cpu", command=("true",)))
    (outcome,) = executor.poll()
    assert outcome.log == str(tmp_path / "logs" / "..%2F..%2Fa b%2Fc.1.log")


def test_a_negative_grace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="grace is -1"):
        LocalExecutor(MACHINES, tmp_path, grace=-1)


def test_an_attempt_costs_little_more_than_its_process(executor: LocalExecutor) -> None:
    began = time.monotonic()
    for _ in range(20):
        run(executor, ("true",))
    assert (time.monotonic() - began) / 20 < 0.2  # generous: a few ms on an idle machine
