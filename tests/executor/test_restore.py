"""What survives the scheduler: attempts, requests, and the end of every attempt."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import time
from pathlib import Path

import pytest
from rich.console import Console

from hetsched.agents.rules import make_rule
from hetsched.executor import processes, scheduler, store
from hetsched.executor.exits import Exits
from hetsched.executor.guard import Guard
from hetsched.executor.ledger import Request
from hetsched.executor.local import LocalExecutor
from hetsched.executor.protocol import Attempt, Machine
from hetsched.executor.queue import Job, Mode
from hetsched.executor.report import as_dict, print_report
from hetsched.executor.restore import resume_queue
from hetsched.executor.simulated import SimulatedExecutor
from hetsched.executor.store_ledger import StoreLedger
from hetsched.tests.executor.left_queues import (
    MACHINES,
    client,
    job,
    left_running,
    make,
    run,
    statuses,
    wait_until,
)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn of the scheduler is short, also when nothing happens."""
    monkeypatch.setattr(scheduler, "CHECK_SECONDS", 0.1)


def test_a_job_that_still_runs_is_found_again_and_its_exit_code_known(
    state: Path, tmp_path: Path
) -> None:
    flag, count = tmp_path / "go", tmp_path / "count"
    waits = f"echo x >> {count}; while [ ! -e {flag} ]; do sleep 0.02; done; exit 3"
    left_running(state, job("a", waits))
    wait_until(count.exists)
    assert statuses(state) == {"a": "running"}
    flag.touch()
    (outcome,) = run(state).outcomes
    assert (outcome.status, outcome.exit_code, outcome.attempt.number) == ("failed", 3, 1)
    assert count.read_text() == "x\n"


def test_a_job_that_ended_while_nobody_looked_is_done(state: Path, tmp_path: Path) -> None:
    left_running(state, job("a", f"echo x >> {tmp_path}/count"), job("b", "kill -SEGV $$", "n"))
    wait_until(lambda: len(list((state / store.EXITS).iterdir())) == 2)
    time.sleep(0.2)  # the end was then, and not when it is looked at
    done = run(state)
    ends = {one.attempt.job: (one.status, one.exit_code) for one in done.outcomes}
    assert ends == {"a": ("done", 0), "b": ("lost", -11)}
    assert done.last["a"].ended < done.ended - 0.1
    assert (tmp_path / "count").read_text() == "x\n"
    assert list((state / store.EXITS).iterdir()) == []


def test_a_job_that_is_gone_without_a_trace_runs_again_and_its_children_are_killed(
    state: Path, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    script = f'[ "$HETSCHED_ATTEMPT" = 1 ] || exit 0; sleep 60 & echo $! > {pids}; wait'
    left_running(state, job("a", script))
    wait_until(lambda: pids.exists() and pids.read_text().strip() != "")
    with contextlib.closing(StoreLedger(state)) as ledger:
        exits = Exits(state / store.EXITS, ledger.identity)
        wrapper = exits.wrapper_of(exits.marked(), "a", 1)
        assert wrapper is not None
        os.kill(wrapper.pid, 9)
    first, second = run(state).outcomes
    assert (first.status, second.status) == ("lost", "done")
    assert first.reason == "ran when the scheduler was killed, and is gone"
    wait_until(lambda: processes.birth(int(pids.read_text())) is None)


def test_a_job_that_was_not_even_started_uses_up_nothing(state: Path) -> None:
    make(state, job("a", moves=0))
    with contextlib.closing(StoreLedger(state)) as ledger:
        ledger.load()
        ledger.starting(job("a").attempt(0, 1), 0.0)
        ledger.commit()
    assert [one.status for one in run(state).outcomes] == ["preempted", "done"]


def test_units_of_a_machine_that_a_found_job_holds_are_taken(tmp_path: Path) -> None:
    machines = (Machine("g", "v100", "gpu", ("GPU-a", "GPU-b"), 2),)
    exits = Exits(tmp_path / "exits", "identity")
    first = LocalExecutor(machines, tmp_path / "logs", 0.2, exits=exits)
    first.start(Attempt("short", "g", command=("true",)))
    first.start(Attempt("long", "g", command=("sleep", "30")))  # holds GPU-b
    assert [one.attempt.job for one in first.poll()] == ["short"]
    second = LocalExecutor(machines, tmp_path / "logs", 0.2, exits=exits, opened=5.0)
    try:
        assert second.adopt(Attempt("long", "g", command=("sleep", "30")), started=4.0)
        second.start(Attempt("new", "g", command="echo $CUDA_VISIBLE_DEVICES"))
        (outcome,) = second.poll()
        assert Path(str(outcome.log)).read_text() == "GPU-a\n"
        second.stop("long")
        (stopped,) = second.poll()
        assert (stopped.status, stopped.started) == ("cancelled", 4.0)
    finally:
        second.close()
        first.close()


def test_a_strange_process_with_the_number_of_a_job_is_left_alone(tmp_path: Path) -> None:
    exits = Exits(tmp_path, "identity")
    stranger = subprocess.Popen(["sleep", "30"], env={"HETSCHED_QUEUE": "another"})
    try:
        assert exits.marked() == []
        assert exits.kill() == 0
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_process_that_left_its_group_is_ended_with_the_executor(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    exits = Exits(tmp_path / "exits", "identity")
    executor = LocalExecutor((Machine("m"),), tmp_path, 0.2, exits=exits)
    command = f"setsid sh -c 'echo $$ > {pid}; exec sleep 60' & while [ ! -s {pid} ]; do :; done"
    executor.start(Attempt("a", "m", command=command))
    assert executor.poll()[0].status == "done"
    executor.close()
    wait_until(lambda: processes.birth(int(pid.read_text())) is None)


def test_a_request_that_was_made_before_a_crash_is_remembered_for_a_running_job(
    state: Path,
) -> None:
    left_running(state, job("a", "sleep 60"))
    with client(state) as one:
        one.request([Request("cancel", "a")])
    (outcome,) = run(state).outcomes
    assert outcome.status == "cancelled"
    assert statuses(state) == {"a": "cancelled"}


def test_a_preempted_job_goes_on_elsewhere_without_using_up_a_retry(
    state: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    script = f"[ -e {saved} ] && exit 0; trap 'touch {saved}; exit 75' TERM; sleep 60 & wait"
    both = Job("a", (Mode("m", 1.0), Mode("n", 9.0)), script)
    left_running(state, both)
    time.sleep(0.3)  # the trap must be set
    with client(state) as one:
        one.request([Request("preempt", "a")])
    done = run(state)
    told = [(one.status, one.attempt.machine) for one in done.outcomes]
    assert told == [("preempted", "m"), ("done", "n")]


@pytest.mark.parametrize("code", [1, 75, 143])
def test_a_job_whose_cancellation_ended_without_a_scheduler_does_not_run_again(
    state: Path, tmp_path: Path, code: int
) -> None:
    ran = tmp_path / "ran"
    script = f"echo >> {ran}; trap 'exit {code}' TERM; sleep 60 & wait"
    left_running(state, job("a", script, retries=3), cancelling=True)
    time.sleep(0.3)  # its exit code is on disk
    done = run(state)
    assert [one.attempt.number for one in done.outcomes] == [1]
    assert statuses(state) == {"a": "cancelled"}
    assert ran.read_text() == "\n"


def test_a_drained_machine_stays_so_after_a_restart_and_its_jobs_wait(state: Path) -> None:
    make(state, job("a"), job("b", machine="n"))
    with client(state) as one:
        one.request([Request("drain", "m", "its fan is loud")])
    run(state, stops=lambda: int(statuses(state)["b"] == "done"))
    assert statuses(state) == {"a": "waiting", "b": "done"}
    with client(state) as one:
        overview = one.overview()
        assert overview.machines[0].drained == "its fan is loud"
        (a,) = [entry for entry in overview.jobs if entry.job.name == "a"]
        assert a.reason == "can only use machines that get no work: 'm' is drained: its fan is loud"
        one.request([Request("undrain", "m")])
    run(state)
    assert statuses(state)["a"] == "done"


def test_a_job_that_is_cancelled_while_it_waits_to_go_on_is_told_as_cancelled(
    state: Path,
) -> None:
    make(state, job("a", "sleep 60"))
    stops = iter([0, 0] + [1] * 99)
    assert run(state, stops=lambda: next(stops, 1)).interrupted
    with client(state) as one:
        one.request([Request("cancel", "a")])
    done = run(state)
    assert [one.status for one in done.outcomes] == ["preempted"]
    assert done.verdicts == {"a": ("cancelled", "cancelled while it waited")}
    (told,) = as_dict(done, "local")["jobs"]
    assert (told["status"], told["reason"]) == ("cancelled", "cancelled while it waited")
    console = Console(file=io.StringIO(), width=200)
    print_report(done, "local", console)
    assert "cancelled while it waited" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_stopped_queue_goes_on_with_the_next_run(state: Path) -> None:
    make(state, job("a", "[ $HETSCHED_ATTEMPT = 2 ] || sleep 60"), job("b", after=("a",)))
    stops = iter([0, 0] + [1] * 99)
    done = run(state, stops=lambda: next(stops, 1))
    assert done.interrupted
    assert statuses(state) == {"a": "waiting", "b": "waiting"}
    run(state)
    assert statuses(state) == {"a": "done", "b": "done"}


def test_an_executor_that_cannot_look_for_its_attempts_has_lost_them(state: Path) -> None:
    make(state, job("a"))
    with contextlib.closing(StoreLedger(state)) as ledger:
        ledger.load()
        ledger.starting(job("a").attempt(0, 1), 0.0)
        ledger.commit()
    with contextlib.closing(StoreLedger(state)) as ledger:
        guard = Guard(make_rule("fifo"))
        done = resume_queue(ledger, guard, SimulatedExecutor(MACHINES))
    assert [one.status for one in done.outcomes] == ["lost", "done"]
