"""What executors that run commands promise beyond `conformance.py`, as checks."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from hetsched.executor.protocol import PREEMPTED_EXIT, Attempt, Outcome
from hetsched.tests.executor.conformance import (
    GRACE,
    Check,
    Subject,
    check,
    drain,
    nothing_more,
    sleep,
)

PROCESSES: list[Check] = []
OPENING: list[Check] = []


def run(subject: Subject, command: tuple[str, ...] | str, **fields: object) -> Outcome:
    """Run one attempt to its end."""
    fields = {"job": "job", "machine": "one", **fields}
    subject.executor.start(Attempt(command=command, **fields))  # type: ignore[arg-type]
    (outcome,) = drain(subject.executor, 1)
    return outcome


def output(outcome: Outcome) -> str:
    assert outcome.log is not None
    return Path(outcome.log).read_text(encoding="utf-8")


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def is_alive(pid: int) -> bool:
    """Running, and no zombie that merely waits to be collected."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def numbers_in(path: Path, count: int) -> list[int]:
    """So many numbers that processes write into a file."""
    assert wait_until(lambda: path.exists() and len(path.read_text().split()) >= count)
    return [int(word) for word in path.read_text().split()]


@check(PROCESSES)
def an_end_has_the_command_s_exit_code(subject: Subject) -> None:
    for command, status, code, reason in (
        ("exit 0", "done", 0, ""),
        ("exit 3", "failed", 3, "exit status 3"),
        ("kill -SEGV $$", "lost", -signal.SIGSEGV, "killed by SIGSEGV"),
        (f"exit {PREEMPTED_EXIT}", "failed", PREEMPTED_EXIT, "exit status 75"),  # nobody asked
    ):
        outcome = run(subject, command)
        assert (outcome.status, outcome.exit_code, outcome.reason) == (status, code, reason)
        assert not outcome.machine_failed


@check(PROCESSES)
def a_command_that_cannot_be_started_is_an_outcome(subject: Subject) -> None:
    for command, workdir in (
        (("no-such-program",), None),
        (("true",), str(subject.folder / "absent")),
        (("echo", "a\0b"), None),
    ):
        outcome = run(subject, command, workdir=workdir)
        assert outcome.status == "failed"
        assert outcome.exit_code is None
        assert outcome.reason.startswith("could not be started: ")
        assert nothing_more(subject.executor)
    assert run(subject, ("true",)).status == "done"  # its room is free again


@check(PROCESSES)
def a_command_may_be_words_or_text_for_the_shell(subject: Subject) -> None:
    assert output(run(subject, ("echo", "$HOME", "a  b"))) == "$HOME a  b\n"
    assert output(run(subject, "echo $((6 * 7)) | cat")) == "42\n"


@check(PROCESSES)
def a_job_finds_its_folder_its_variables_and_no_terminal(subject: Subject) -> None:
    outcome = run(
        subject,
        'pwd; echo "$COLOUR $HETSCHED_JOB $HETSCHED_ATTEMPT $HETSCHED_MACHINE"; read line',
        workdir=str(subject.folder),
        env={"COLOUR": "blue"},
        number=3,
    )
    assert output(outcome) == f"{subject.folder.resolve()}\nblue job 3 one\n"
    assert outcome.exit_code == 1  # the end of the input, at once


@check(PROCESSES)
def an_attempt_sees_the_gpus_of_its_units_and_no_others(subject: Subject) -> None:
    executor, seen = subject.executor, {}
    command = 'sleep 0.2; echo "${CUDA_VISIBLE_DEVICES-unset}"'
    for job, machine in (("cpu", "one"), ("first", "gpu"), ("second", "gpu")):
        executor.start(Attempt(job, machine, command=command))
    for outcome in drain(executor, 3):
        seen[outcome.attempt.job] = output(outcome).strip()
    assert seen["cpu"] == ""
    assert seen["first"]
    assert seen["second"]
    assert seen["first"] != seen["second"]
    both = output(run(subject, command, machine="gpu", demand=2)).strip()
    assert both == f"{seen['first']},{seen['second']}"


@check(PROCESSES)
def every_attempt_has_a_log_with_both_outputs(subject: Subject) -> None:
    first = run(subject, "echo out; echo err >&2", number=1)
    second = run(subject, "echo again", number=2)
    assert output(first) == "out\nerr\n"
    assert output(second) == "again\n"
    assert first.log != second.log


@check(PROCESSES)
def a_job_name_cannot_leave_the_log_folder(subject: Subject) -> None:
    plain, nasty = run(subject, ("true",)), run(subject, ("true",), job="../../a b/c")
    assert plain.log is not None
    assert nasty.log is not None
    assert Path(nasty.log) == Path(plain.log).parent / "..%2F..%2Fa b%2Fc.1.log"


@check(PROCESSES)
def output_of_any_size_does_not_block(subject: Subject) -> None:
    outcome = run(subject, "head -c 10000000 /dev/zero; head -c 1000 /dev/zero >&2", timeout=60)
    assert outcome.status == "done"
    assert outcome.log is not None
    assert Path(outcome.log).stat().st_size == 10_001_000


@check(PROCESSES)
def attempts_run_at_the_same_time(subject: Subject) -> None:
    executor, began = subject.executor, subject.executor.now()
    for job, machine in (("a", "one"), ("b", "two"), ("c", "two"), ("d", "gpu"), ("e", "gpu")):
        executor.start(Attempt(job, machine, command=("sleep", "0.5")))
    drain(executor, 5)
    assert executor.now() - began < 2.0  # one after the other would take 2.5


@check(PROCESSES)
def a_job_that_heeds_sigterm_may_clean_up(subject: Subject) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    outcome = run(subject, ("sh", "-c", script), timeout=0.2)
    assert (outcome.status, outcome.exit_code) == ("timeout", 0)
    words = output(outcome).split()
    assert (words[0], words[-1]) == ("ready", "saved")  # some shells also say "Terminated"


@check(PROCESSES)
def a_job_that_ignores_sigterm_is_killed_after_its_grace_with_its_descendants(
    subject: Subject,
) -> None:
    pids = subject.folder / "pids"
    script = (
        f"trap '' TERM; echo $$ >> {pids}; "
        f"sh -c 'echo $$ >> {pids}; sleep 60 & echo $! >> {pids}; wait' & wait; sleep 60"
    )
    began = subject.executor.now()
    outcome = run(subject, script, timeout=0.3)
    assert 0.3 + GRACE <= subject.executor.now() - began < 6.0
    assert (outcome.status, outcome.exit_code) == ("timeout", -signal.SIGKILL)
    assert outcome.reason.endswith("was killed after its grace")
    processes = numbers_in(pids, 3)
    assert wait_until(lambda: not any(is_alive(pid) for pid in processes))


@check(PROCESSES)
def a_job_that_takes_more_memory_than_it_may_is_ended(subject: Subject) -> None:
    hoard = (sys.executable, "-c", "held = bytearray(300 * 2**20); import time; time.sleep(60)")
    outcome = run(subject, hoard, memory=100 * 2**20)
    assert outcome.status == "memory"
    assert "more than its limit of 100 MiB" in outcome.reason


@check(PROCESSES)
def a_stop_without_grace_kills_at_once(subject: Subject) -> None:
    executor, ready = subject.executor, subject.folder / "ready"
    command = f"trap '' TERM; echo $$ > {ready}; sleep 60; sleep 60"
    executor.start(Attempt("a", "one", command=command))
    (pid,) = numbers_in(ready, 1)
    executor.stop("a", grace=60.0)
    assert executor.poll(executor.now() + 0.1) == []
    executor.stop("a", grace=0.0)  # asked a second time, with less patience
    (outcome,) = drain(executor, 1, seconds=10.0)
    assert (outcome.status, outcome.exit_code) == ("cancelled", -signal.SIGKILL)
    assert wait_until(lambda: not is_alive(pid))


@check(PROCESSES)
def what_a_job_leaves_behind_is_killed(subject: Subject) -> None:
    outcome = run(subject, "sleep 60 & echo $!")
    assert outcome.status == "done"
    pid = int(output(outcome))
    assert wait_until(lambda: not is_alive(pid))


@check(PROCESSES)
def a_preempted_job_saves_its_state_and_goes_on_elsewhere(subject: Subject) -> None:
    executor, folder = subject.executor, subject.folder
    program = (
        "import os, signal, sys, time\n"
        f"state, ready = {os.fspath(folder / 'state')!r}, {os.fspath(folder / 'ready')!r}\n"
        "begin = step = int(open(state).read()) if os.path.exists(state) else 0\n"
        "def leave(*_):\n"
        "    open(state + '.new', 'w').write(str(step)); os.replace(state + '.new', state)\n"
        f"    sys.exit({PREEMPTED_EXIT})\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "print('from', begin, flush=True)\n"
        "while begin == 0:\n"  # it takes for ever, unless somebody has begun already
        "    step += 1; open(ready, 'w').write(str(step)); time.sleep(0.02)\n"
    )
    command = (sys.executable, "-c", program)
    executor.start(Attempt("a", "one", command=command))
    numbers_in(folder / "ready", 1)
    executor.preempt("a")
    (first,) = drain(executor, 1)
    assert (first.status, first.exit_code) == ("preempted", PREEMPTED_EXIT)
    assert "has saved its state" in first.reason
    executor.start(Attempt("a", "two", number=2, command=command))
    (second,) = drain(executor, 1)
    assert second.status == "done"
    assert output(second) == f"from {(folder / 'state').read_text()}\n"


@check(PROCESSES)
def a_preempted_job_that_saves_nothing_is_preempted_all_the_same(subject: Subject) -> None:
    executor, ready = subject.executor, subject.folder / "ready"
    for command, code, reason in (
        ("echo 1 >> {}; exec sleep 60", -signal.SIGTERM, "did not say that it saved its state"),
        ("trap '' TERM; echo 1 >> {}; sleep 60; sleep 60", -signal.SIGKILL, "was killed after"),
        ("trap 'exit 1' TERM; echo 1 >> {}; while :; do sleep 0.02; done", 1, "did not say"),
    ):
        ready.unlink(missing_ok=True)
        executor.start(Attempt("a", "one", command=command.format(ready)))
        numbers_in(ready, 1)
        executor.preempt("a")
        (outcome,) = drain(executor, 1)
        assert (outcome.status, outcome.exit_code) == ("preempted", code)
        assert reason in outcome.reason


@check(PROCESSES)
def a_job_that_finishes_although_it_was_told_to_go_is_done(subject: Subject) -> None:
    executor, ready = subject.executor, subject.folder / "ready"
    script = f"trap 'echo late; exit 0' TERM; echo 1 > {ready}; while :; do sleep 0.02; done"
    executor.start(Attempt("a", "one", command=script))
    numbers_in(ready, 1)
    executor.preempt("a")
    (outcome,) = drain(executor, 1)
    assert (outcome.status, outcome.exit_code, outcome.reason) == ("done", 0, "")


@check(PROCESSES)
def an_exception_in_the_middle_of_a_poll_loses_nothing(subject: Subject) -> None:
    executor = subject.executor

    class Interrupted(Exception):
        pass

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for attempt in range(3):
            executor.start(sleep(f"a {attempt}", "two", 0.3))
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Interrupted):
                executor.poll()
            (outcome,) = drain(executor, 1)
            assert (outcome.attempt.job, outcome.status) == (f"a {attempt}", "done")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert nothing_more(executor)


@check(OPENING)
def closing_ends_what_runs_and_may_happen_twice(subject: Subject) -> None:
    executor = subject.open(None)
    obeys, ignores = subject.folder / "obeys", subject.folder / "ignores"
    executor.start(Attempt("a", "two", command=f"echo $$ > {obeys}; exec sleep 60", expected=60))
    command = f"trap '' TERM; echo $$ > {ignores}; sleep 60; sleep 60"
    executor.start(Attempt("b", "two", command=command, expected=60))
    pids = numbers_in(obeys, 1) + numbers_in(ignores, 1) if subject.processes else []
    executor.close()
    assert not any(is_alive(pid) for pid in pids)
    executor.close()


@check(OPENING)
def somebody_can_wake_a_poll(subject: Subject) -> None:
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    with contextlib.closing(reader), contextlib.closing(writer):
        executor = subject.open(reader.fileno())
        with contextlib.closing(executor):
            executor.start(sleep("a", "one", 60))
            writer.send(b"x")
            assert executor.poll() == []
            until = executor.now() + 0.1
            assert executor.poll(until) == []  # the byte is gone: this one waits
            assert executor.now() >= until
            executor.stop("a")
            assert drain(executor, 1)[0].status == "cancelled"
