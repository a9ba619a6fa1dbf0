"""What survives the scheduler: jobs, attempts, requests, locks, and the end of every attempt."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hetsched.agents.rules import make_rule
from hetsched.executor import processes, store
from hetsched.executor.exits import Exits
from hetsched.executor.guard import Guard
from hetsched.executor.ledger import Request
from hetsched.executor.local import LocalExecutor
from hetsched.executor.protocol import Attempt, Machine
from hetsched.executor.queue import Job, Mode, Queue, QueueError
from hetsched.executor.records import job_from_json, job_to_json
from hetsched.executor.restore import resume_queue
from hetsched.executor.simulated import SimulatedExecutor
from hetsched.executor.store_client import Client
from hetsched.executor.store_ledger import StoreLedger
from hetsched.executor.store_merge import merge, set_aside

if TYPE_CHECKING:
    from hetsched.executor.adapter import Run

MACHINES = (Machine("m"), Machine("n", "other", capacity=4))


def job(name: str, command: str = "true", machine: str = "m", **fields: object) -> Job:
    return Job(name, (Mode(machine, 1.0),), command, **fields)  # type: ignore[arg-type]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def make(state: Path, *jobs: Job, grace: float = 0.3) -> None:
    store.create(state, Queue(jobs, MACHINES, grace=grace))


@contextlib.contextmanager
def client(state: Path) -> Iterator[Client]:
    with contextlib.closing(Client(state)) as made:
        yield made


def local(ledger: StoreLedger) -> LocalExecutor:
    exits = Exits(ledger.folder / store.EXITS, ledger.identity)
    logs = ledger.folder / store.LOGS
    return LocalExecutor(ledger.machines, logs, ledger.grace, exits=exits, opened=ledger.clock())


def run(state: Path, **options: object) -> Run:
    """Go on with a queue, on real processes, to its end."""
    with contextlib.closing(StoreLedger(state)) as ledger:
        executor = local(ledger)
        with contextlib.closing(executor):
            guard = Guard(make_rule("fifo"), make_rule("fifo"))
            return resume_queue(ledger, guard, executor, **options)  # type: ignore[arg-type]


def statuses(state: Path) -> dict[str, str]:
    with client(state) as one:
        return {entry.job.name: entry.status for entry in one.overview().jobs}


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def left_running(state: Path, *jobs: Job, cancelling: bool = False) -> int:
    """A queue whose scheduler died with its jobs running; returns the scheduler's number.

    It may just have asked them to end, because somebody has cancelled them.

    The child does what a scheduler does between a decision and the next event, and is then gone
    as after SIGKILL: nothing is closed.
    """
    make(state, *jobs)
    child = os.fork()
    if child == 0:
        ledger = StoreLedger(state)
        ledger.load()
        executor = local(ledger)
        for one in jobs:
            attempt = one.attempt(0, 1)
            ledger.starting(attempt, executor.now())
            ledger.commit()
            executor.start(attempt)
        if cancelling:
            time.sleep(0.3)  # traps must be set
            for one in jobs:
                executor.stop(one.name)
                ledger.asked(one.name, "cancel")
            ledger.commit()
        os._exit(0)
    os.waitpid(child, 0)
    return child


@pytest.mark.parametrize(
    "one",
    [
        job("plain"),
        job("full", weight=2.5, due=9.0, release=1.0, timeout=7.0, after=("a", "b"), retries=3),
        job("more", moves=0, priority=-2, memory=5e9, gpu_memory=1e9, env={"A": "1"}, workdir="/"),
        Job("words", (Mode("m", 0.1), Mode("n", 1 / 3, 2)), ("echo", "a b", "ä"), model="resnet"),
    ],
)
def test_a_job_is_the_same_after_it_was_written(one: Job) -> None:
    assert job_from_json(job_to_json(one)) == one


def test_a_second_scheduler_is_refused_in_one_sentence(state: Path) -> None:
    make(state, job("a"))
    with contextlib.closing(StoreLedger(state)):
        assert store.is_locked(state)
        with pytest.raises(store.StoreError, match=f"in use by .*process {os.getpid()}") as caught:
            StoreLedger(state)
        assert "\n" not in str(caught.value)
    assert not store.is_locked(state)
    StoreLedger(state).close()


def test_what_is_no_state_is_refused(tmp_path: Path, state: Path) -> None:
    with pytest.raises(store.StoreError, match="holds no queue"):
        Client(tmp_path)
    make(state, job("a"))
    with pytest.raises(store.StoreError, match="holds a queue already"):
        make(state, job("a"))
    with contextlib.closing(sqlite3.connect(state / store.FILE)) as file:
        file.execute("UPDATE meta SET value = '99' WHERE key = 'format'")
        file.commit()
    with pytest.raises(store.StoreError, match="has format 99"):
        Client(state)
    (state / store.FILE).write_text("no database at all, but long enough to be looked at")
    with pytest.raises(store.StoreError, match="cannot be read"):
        Client(state)


def test_a_queue_runs_to_its_end_and_is_not_run_again(state: Path, tmp_path: Path) -> None:
    count = f"echo x >> {tmp_path}/count"
    make(state, job("a", count), job("b", "exit 3"), job("c", after=("b",)))
    done = run(state)
    assert statuses(state) == {"a": "done", "b": "failed", "c": "not run"}
    assert done.not_run == {"c": "comes after 'b', which was not done"}
    again = run(state)
    assert [one.attempt.job for one in again.outcomes] == ["a", "b"]
    assert (tmp_path / "count").read_text() == "x\n"


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


def test_jobs_come_in_while_the_queue_runs_and_when_it_does_not(state: Path) -> None:
    make(state, job("a", "sleep 0.3"))
    with client(state) as one:
        one.submit([job("b", after=("a",)), job("c", after=("b",))])
        with pytest.raises(QueueError, match="job 'a': name is used already"):
            one.submit([job("d"), job("a")])
        with pytest.raises(QueueError, match="job 'd': after names 'nobody'"):
            one.submit([job("d", after=("nobody",))])
        with pytest.raises(QueueError, match="demand 9 is above the 4 slots"):
            one.submit([Job("d", (Mode("n", 1.0, 9),))])
    assert statuses(state) == {"a": "waiting", "b": "waiting", "c": "waiting"}
    run(state)
    assert statuses(state) == {"a": "done", "b": "done", "c": "done"}


def test_nothing_can_come_after_what_was_never_done(state: Path) -> None:
    make(state, job("a", "false"))
    run(state)
    with client(state) as one, pytest.raises(QueueError, match="ended as failed; it could never"):
        one.submit([job("b", after=("a",))])


def test_requests_wait_for_the_scheduler(state: Path) -> None:
    make(state, job("a", "true"), job("b"), job("c", priority=1))
    with client(state) as one:
        one.request([Request("cancel", "a"), Request("cancel", "nobody")])
        one.request([Request("priority", "b", "5"), Request("weight", "b", "2.5")])
    done = run(state)
    assert statuses(state) == {"a": "cancelled", "b": "done", "c": "done"}
    assert [one.attempt.job for one in done.outcomes] == ["b", "c"]
    with client(state) as one:
        (b,) = one.overview(names=["b"]).jobs
    assert (b.job.priority, b.job.weight) == (5, 2.5)


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
    stops = iter([0] * 8 + [1] * 99)
    run(state, stops=lambda: next(stops))
    assert statuses(state) == {"a": "waiting", "b": "done"}
    with client(state) as one:
        overview = one.overview()
        assert overview.machines[0].drained == "its fan is loud"
        (a,) = [entry for entry in overview.jobs if entry.job.name == "a"]
        assert a.reason == "can only use machines that get no work: 'm' is drained: its fan is loud"
        one.request([Request("undrain", "m")])
    run(state)
    assert statuses(state)["a"] == "done"


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


def test_the_status_says_what_a_job_waits_for(state: Path) -> None:
    gang = Job("gang", (Mode("n", 5.0, 4),))
    left_running(state, Job("one", (Mode("n", 3600.0, 1),), "sleep 60"))
    with client(state) as one:
        one.submit([gang, job("later", release=7200.0), job("next", after=("gang",))])
        said = {entry.job.name: entry.reason for entry in one.overview().jobs}
    assert said["gang"].startswith("needs 4 of 'n' together; 3 free; next at about ")
    assert said["later"].startswith("is released only at about ")
    assert said["next"] == "comes after 'gang', which had not ended"
    with contextlib.closing(StoreLedger(state)) as ledger:
        Exits(state / store.EXITS, ledger.identity).kill()


def test_a_file_that_has_changed_updates_what_has_not_run(state: Path) -> None:
    make(state, job("a", "true"), job("b", "false"))
    with client(state) as one:
        one.request([Request("cancel", "b")])
    run(state)
    make_changed = Queue((job("a", "exit 9"), job("b"), job("c")), MACHINES)
    with contextlib.closing(StoreLedger(state)) as ledger:
        merged = merge(ledger, make_changed)
    assert (merged.added, merged.kept, merged.stranded) == (1, ("a", "b"), ())
    run(state)
    assert statuses(state) == {"a": "done", "b": "cancelled", "c": "done"}


def test_a_state_can_be_set_aside_but_not_under_its_jobs(state: Path) -> None:
    left_running(state, job("a", "sleep 60"))
    with pytest.raises(store.StoreError, match=r"jobs of .* still run"):
        set_aside(state)
    with client(state) as one:
        one.request([Request("cancel", "a")])
    run(state)
    place = set_aside(state)
    assert not state.exists()
    assert statuses(place) == {"a": "cancelled"}


def test_submitting_loads_nothing_heavy() -> None:
    code = (
        "import sys; import hetsched.executor.commands.submit, hetsched.executor.store_client, "
        "hetsched.executor.queue_file; heavy = {'torch', 'numpy', 'rich'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
