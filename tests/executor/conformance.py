"""Every promise of `hetsched.executor.protocol.Executor` as a check for any executor.

`EVERYWHERE` holds for every executor, also for one whose jobs do not exist. In
`conformance_processes.py`, `PROCESSES` holds for those that run commands, and `OPENING` opens and
closes executors itself. `test_conformance.py` and `test_ray.py` run them all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hetsched.executor.protocol import Attempt, Executor, Machine, Outcome

MACHINES = (
    Machine("one"),
    Machine("two", capacity=2),
    Machine("gpu", "v100", "gpu", ("GPU-0a1b", "GPU-2c3d"), capacity=2),
)
GRACE = 0.4  # of every executor under test


@dataclass
class Subject:
    """What a check works on.

    Attributes:
        executor: open, with MACHINES; nothing runs, and whatever ran before has been reported.
        open: opens another one, with the given `wake`.
        folder: an empty one.
        processes: whether attempts are processes.
    """

    executor: Executor
    open: Callable[[int | None], Executor]
    folder: Path
    processes: bool = True


Check = Callable[[Subject], None]
EVERYWHERE: list[Check] = []


def check(kind: list[Check]) -> Callable[[Check], Check]:
    """Put a function into one of the lists."""

    def listed(function: Check) -> Check:
        kind.append(function)
        return function

    return listed


def sleep(job: str, machine: str, seconds: float, **fields: object) -> Attempt:
    """An attempt that takes so long, on a fake clock too."""
    return Attempt(
        job,
        machine,
        command=("sleep", str(seconds)),
        expected=seconds,
        **fields,  # type: ignore[arg-type]
    )


def drain(executor: Executor, count: int, seconds: float = 60.0) -> list[Outcome]:
    """The next so many outcomes; fails rather than wait for ever."""
    ended: list[Outcome] = []
    give_up = executor.now() + seconds
    while len(ended) < count and executor.now() < give_up:
        ended += executor.poll(give_up)
    assert len(ended) == count, f"{len(ended)} of {count} ended: {ended}"
    return ended


def nothing_more(executor: Executor) -> bool:
    """Whether nothing runs and nothing is left to be reported."""
    return executor.poll(executor.now()) == [] and executor.poll() == []


@check(EVERYWHERE)
def an_executor_names_its_machines_and_none_is_down(subject: Subject) -> None:
    assert tuple(machine.name for machine in subject.executor.machines) == ("one", "two", "gpu")
    assert subject.executor.down() == frozenset()


@check(EVERYWHERE)
def an_attempt_starts_now_and_ends_once(subject: Subject) -> None:
    executor = subject.executor
    attempt = sleep("a", "one", 0.1)
    before = executor.now()
    started = executor.start(attempt)
    (outcome,) = drain(executor, 1)
    assert outcome.attempt == attempt
    assert (outcome.status, outcome.reason, outcome.exit_code) == ("done", "", 0)
    assert before <= started == outcome.started <= outcome.ended <= executor.now()
    assert 0.1 <= outcome.seconds < 3.0
    assert nothing_more(executor)


@check(EVERYWHERE)
def starting_does_not_wait(subject: Subject) -> None:
    executor = subject.executor
    before = executor.now()
    executor.start(sleep("a", "one", 20))
    assert executor.now() - before < 2.0
    executor.stop("a")
    drain(executor, 1)


@check(EVERYWHERE)
def what_ends_first_is_reported_first(subject: Subject) -> None:
    executor = subject.executor
    for job, machine, seconds in (("slow", "two", 0.9), ("fast", "two", 0.1), ("then", "one", 0.5)):
        executor.start(sleep(job, machine, seconds))
    assert [one.attempt.job for one in drain(executor, 3)] == ["fast", "then", "slow"]


@check(EVERYWHERE)
def what_ended_while_nobody_looked_comes_at_once_and_in_order(subject: Subject) -> None:
    executor = subject.executor
    for number in range(2):
        executor.start(sleep(f"job {number}", "two", 0.1))
    ended = executor.poll(executor.now())  # something, on a very busy computer
    time.sleep(0.4)  # for executors whose clock is the one on the wall
    ended += drain(executor, 2 - len(ended))
    assert [one.ended for one in ended] == sorted(one.ended for one in ended)
    assert {one.attempt.job for one in ended} == {"job 0", "job 1"}


@check(EVERYWHERE)
def poll_returns_empty_handed_at_its_deadline(subject: Subject) -> None:
    executor = subject.executor
    executor.start(sleep("a", "one", 20))
    until = executor.now() + 0.1
    assert executor.poll(until) == []
    assert until <= executor.now() < until + 3.0
    assert executor.poll(executor.now()) == []
    assert executor.poll(-1.0) == []  # a deadline that is over
    executor.stop("a")
    assert len(drain(executor, 1)) == 1


@check(EVERYWHERE)
def poll_waits_for_its_deadline_also_when_nothing_runs(subject: Subject) -> None:
    executor = subject.executor
    until = executor.now() + 0.05
    assert executor.poll(until) == []
    assert executor.now() >= until


@check(EVERYWHERE)
def poll_without_a_deadline_and_a_job_returns_at_once(subject: Subject) -> None:
    before = subject.executor.now()
    assert subject.executor.poll(math.inf) == []
    assert subject.executor.now() - before < 2.0


@check(EVERYWHERE)
def poll_returns_before_its_deadline_when_something_ends(subject: Subject) -> None:
    executor = subject.executor
    executor.start(sleep("a", "one", 0.1))
    until = executor.now() + 30.0
    assert len(executor.poll(until)) == 1
    assert executor.now() < until - 20.0


@check(EVERYWHERE)
def the_clock_never_goes_back(subject: Subject) -> None:
    executor = subject.executor
    times = [executor.now(), executor.start(sleep("a", "one", 0.2)), executor.now()]
    for _ in range(5):
        executor.poll(executor.now() + 0.02)
        times.append(executor.now())
    executor.stop("a")
    drain(executor, 1)
    times.append(executor.now())
    executor.poll(0.0)  # long over
    times.append(executor.now())
    assert times == sorted(times)


@check(EVERYWHERE)
def a_timeout_ends_the_attempt(subject: Subject) -> None:
    executor = subject.executor
    executor.start(sleep("a", "one", 20, timeout=0.1))
    (outcome,) = drain(executor, 1)
    assert outcome.status == "timeout"
    assert "timeout of 0.1 s" in outcome.reason
    assert 0.1 <= outcome.seconds < 5.0


@check(EVERYWHERE)
def a_stopped_attempt_is_reported_as_cancelled_and_once(subject: Subject) -> None:
    executor = subject.executor
    executor.start(sleep("a", "one", 20))
    executor.stop("a")
    executor.stop("a")  # asked twice
    (outcome,) = drain(executor, 1)
    assert outcome.status == "cancelled"
    assert outcome.reason
    executor.stop("a")  # has ended: no error
    executor.stop("never seen")
    assert nothing_more(executor)


@check(EVERYWHERE)
def a_preempted_attempt_is_reported_as_such_and_once(subject: Subject) -> None:
    executor = subject.executor
    executor.start(sleep("a", "one", 20))
    executor.preempt("a")
    executor.preempt("a")
    (outcome,) = drain(executor, 1)
    assert outcome.status == "preempted"
    assert "leave its machine" in outcome.reason
    executor.preempt("a")
    executor.preempt("never seen")
    assert nothing_more(executor)
    executor.start(sleep("a", "one", 0.01, number=2))  # its machine is free
    assert drain(executor, 1)[0].status == "done"


@check(EVERYWHERE)
def a_stop_is_stronger_than_a_preemption(subject: Subject) -> None:
    executor = subject.executor
    for first, second in (("preempt", "stop"), ("stop", "preempt")):
        executor.start(sleep("a", "one", 20))
        getattr(executor, first)("a")
        getattr(executor, second)("a")
        assert drain(executor, 1)[0].status == "cancelled"


@check(EVERYWHERE)
def a_machine_holds_as_many_attempts_as_it_has_room_for(subject: Subject) -> None:
    executor = subject.executor
    executor.start(sleep("a", "two", 0.2))
    executor.start(sleep("b", "two", 0.2))
    with pytest.raises(ValueError, match=r"job 'c' needs 1 units of 'two', which has 0 free"):
        executor.start(sleep("c", "two", 0.2))
    with pytest.raises(ValueError, match=r"job 'c' needs 2 units of 'one', which has 1 free"):
        executor.start(sleep("c", "one", 0.2, demand=2))
    assert {one.attempt.job for one in drain(executor, 2)} == {"a", "b"}  # "c" never ran
    executor.start(sleep("c", "two", 0.01, demand=2))
    assert drain(executor, 1)[0].status == "done"


@check(EVERYWHERE)
def a_mistake_of_the_caller_starts_nothing_and_disturbs_nothing(subject: Subject) -> None:
    executor = subject.executor
    with pytest.raises(ValueError, match=r"job 'a': there is no machine 'three'"):
        executor.start(sleep("a", "three", 1))
    executor.start(sleep("a", "one", 0.3))
    for _ in range(3):
        with pytest.raises(ValueError, match=r"job 'a' already runs on 'one'"):
            executor.start(sleep("a", "two", 1))
    executor.start(sleep("b", "two", 0.1, demand=2))  # all of it is still free
    assert [one.attempt.job for one in drain(executor, 2)] == ["b", "a"]
    assert nothing_more(executor)


@check(EVERYWHERE)
def room_is_free_as_soon_as_an_end_is_reported(subject: Subject) -> None:
    executor = subject.executor
    for number in range(1, 6):
        executor.start(sleep("again", "one", 0.01, number=number))
        (outcome,) = drain(executor, 1)
        assert (outcome.attempt.number, outcome.status) == (number, "done")


@check(EVERYWHERE)
def of_many_short_jobs_each_is_reported_exactly_once(subject: Subject) -> None:
    executor = subject.executor
    free = {"one": 1, "two": 2, "gpu": 2}
    waiting = [f"job {number}" for number in range(80)]
    ended: list[Outcome] = []
    while len(ended) < 80:
        for machine in free:
            while waiting and free[machine]:
                free[machine] -= 1
                attempt = Attempt(waiting.pop(), machine, command=("true",), expected=0.01)
                executor.start(attempt)
        reported = executor.poll(executor.now() + 30.0)
        assert reported, f"only {len(ended)} have ended"
        for outcome in reported:
            free[outcome.attempt.machine] += 1
        ended += reported
    assert sorted(one.attempt.job for one in ended) == sorted(f"job {n}" for n in range(80))
    assert {one.status for one in ended} == {"done"}
    assert nothing_more(executor)
