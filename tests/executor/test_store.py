"""What is in the state of a queue: jobs, requests, locks; and what clients add and see."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from hetsched.executor import store
from hetsched.executor.exits import Exits
from hetsched.executor.ledger import Request
from hetsched.executor.queue import Job, Mode, Queue, QueueError
from hetsched.executor.records import job_from_json, job_to_json
from hetsched.executor.store_client import Client
from hetsched.executor.store_ledger import StoreLedger
from hetsched.executor.store_merge import merge, set_aside
from hetsched.tests.executor.left_queues import (
    MACHINES,
    client,
    job,
    left_running,
    make,
    run,
    statuses,
)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


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


def test_a_request_for_what_cannot_be_does_not_end_the_queue(state: Path) -> None:
    make(state, job("a"))
    with client(state) as one:
        one.request([Request("priority", "a", str(10**30)), Request("weight", "a", "-1")])
    assert run(state).all_done


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
