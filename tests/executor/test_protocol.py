"""Machines, attempts, outcomes, and the rules that the executors share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched.executor.local import LocalExecutor
from hetsched.executor.protocol import Attempt, Executor, Machine, Occupancy, Outcome
from hetsched.executor.simulated import SimulatedExecutor

MACHINES = (Machine("one"), Machine("two", capacity=2))


@pytest.fixture(params=["simulated", "local"])
def executor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Executor]:
    made: Executor = (
        SimulatedExecutor(MACHINES)
        if request.param == "simulated"
        else LocalExecutor(MACHINES, tmp_path, grace=5.0)
    )
    yield made
    made.close()


def sleep(job: str, machine: str, seconds: float, **fields: object) -> Attempt:
    return Attempt(
        job,
        machine,
        command=("sleep", str(seconds)),
        expected=seconds,
        **fields,  # type: ignore[arg-type]
    )


def test_an_attempt_starts_now_and_ends_once(executor: Executor) -> None:
    before = executor.now()
    started = executor.start(sleep("a", "one", 0.1))
    (outcome,) = executor.poll()
    assert (outcome.attempt.job, outcome.status) == ("a", "done")
    assert before <= started == outcome.started
    assert 0.1 <= outcome.seconds < 3.0
    assert executor.poll() == []


def test_what_ends_first_is_reported_first(executor: Executor) -> None:
    executor.start(sleep("slow", "two", 0.8))
    executor.start(sleep("fast", "two", 0.1))
    assert [one.attempt.job for one in executor.poll()] == ["fast"]
    assert [one.attempt.job for one in executor.poll()] == ["slow"]


def test_poll_returns_empty_handed_at_its_deadline(executor: Executor) -> None:
    executor.start(sleep("a", "one", 20))
    until = executor.now() + 0.1
    assert executor.poll(until) == []
    assert until <= executor.now() < until + 3.0
    executor.stop("a")
    assert len(executor.poll()) == 1


def test_poll_waits_for_its_deadline_also_when_nothing_runs(executor: Executor) -> None:
    until = executor.now() + 0.05
    assert executor.poll(until) == []
    assert executor.now() >= until


def test_a_timeout_ends_the_attempt(executor: Executor) -> None:
    executor.start(sleep("a", "one", 20, timeout=0.1))
    (outcome,) = executor.poll()
    assert outcome.status == "timeout"
    assert "timeout of 0.1 s" in outcome.reason
    assert 0.1 <= outcome.seconds < 5.0


def test_a_stopped_attempt_is_reported_as_cancelled(executor: Executor) -> None:
    executor.start(sleep("a", "one", 20))
    executor.stop("a")
    (outcome,) = executor.poll()
    assert outcome.status == "cancelled"
    executor.stop("a")  # has ended: no error
    executor.stop("never seen")


def test_a_machine_holds_as_many_attempts_as_it_has_room_for(executor: Executor) -> None:
    executor.start(sleep("a", "two", 0.2))
    executor.start(sleep("b", "two", 0.2))
    with pytest.raises(ValueError, match=r"job 'c' needs 1 units of 'two', which has 0 free"):
        executor.start(sleep("c", "two", 0.2))
    ended: list[Outcome] = []
    while len(ended) < 2:
        ended += executor.poll()
    executor.start(sleep("c", "two", 0.01, demand=2))
    assert executor.poll()[0].status == "done"


def test_an_unknown_machine_and_a_running_job_are_refused(executor: Executor) -> None:
    with pytest.raises(ValueError, match=r"job 'a': there is no machine 'three'"):
        executor.start(sleep("a", "three", 1))
    executor.start(sleep("a", "one", 20))
    with pytest.raises(ValueError, match=r"job 'a' already runs on 'one'"):
        executor.start(sleep("a", "two", 1))


def test_an_executor_can_be_closed_while_jobs_run_and_twice(executor: Executor) -> None:
    executor.start(sleep("a", "one", 20))
    executor.close()
    executor.close()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "machine: name is empty"),
        ({"name": "a", "type": ""}, "machine 'a': type is empty"),
        ({"name": "a", "kind": "tpu"}, "machine 'a': kind is 'tpu'"),
        ({"name": "a", "capacity": 0}, "machine 'a': slots is 0"),
        ({"name": "a", "devices": ("0",)}, "machine 'a': a cpu machine has no device"),
        ({"name": "a", "kind": "gpu"}, "machine 'a': 0 devices for 1 slots"),
        (
            {"name": "a", "kind": "gpu", "devices": ("0", "1"), "capacity": 3},
            "machine 'a': 2 devices for 3 slots",
        ),
        (
            {"name": "a", "kind": "gpu", "devices": ("0", "0"), "capacity": 2},
            "machine 'a': a device is listed twice",
        ),
    ],
)
def test_a_machine_that_makes_no_sense_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Machine(**fields)


def test_an_attempt_that_makes_no_sense_is_refused() -> None:
    for fields, message in (
        ({"job": ""}, "job is empty"),
        ({"number": 0}, "number must be at least 1"),
        ({"demand": 0}, "demand is 0"),
        ({"timeout": 0.0}, "timeout is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            Attempt(**{"job": "a", "machine": "m", **fields})  # type: ignore[arg-type]


def test_an_outcome_cannot_end_before_it_started() -> None:
    with pytest.raises(ValueError, match="is before started"):
        Outcome(Attempt("a", "m"), "done", started=2.0, ended=1.0)
    with pytest.raises(ValueError, match="status is 'fine'"):
        Outcome(Attempt("a", "m"), "fine", started=1.0, ended=1.0)  # type: ignore[arg-type]


def test_units_are_devices_of_their_own_or_shares_of_one() -> None:
    node = Machine("node", "v100", "gpu", ("a", "b", "c"), capacity=3)
    shared = Machine("shared", "v100", "gpu", ("a",), capacity=3)
    occupancy = Occupancy((node,))
    assert node.visible_devices(occupancy.take(Attempt("x", "node", demand=2))) == "a,b"
    assert node.visible_devices(occupancy.take(Attempt("y", "node"))) == "c"
    occupancy.release("x")
    assert node.visible_devices(occupancy.take(Attempt("z", "node"))) == "a"
    assert shared.visible_devices((1, 2)) == "a"
    assert Machine("cpu").visible_devices((0,)) == ""


def test_two_machines_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two have the same name"):
        Occupancy((Machine("a"), Machine("a")))


def test_infinite_deadlines_with_nothing_to_wait_for_return_at_once(executor: Executor) -> None:
    assert executor.poll(math.inf) == []
