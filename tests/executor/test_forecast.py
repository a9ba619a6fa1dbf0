"""When a queue should be over, on queues small enough to do by hand."""

from __future__ import annotations

import math

from hetsched.executor.forecast import finish_time
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, Mode
from hetsched.executor.waiting import Held

ONE, TWO = Machine("one"), Machine("two", capacity=2)


def job(name: str, *modes: Mode, **more: object) -> Job:
    return Job(name, modes, "true", **more)


def test_what_runs_ends_when_it_is_expected_and_what_is_late_ends_now() -> None:
    held = [Held("a", "one", 1, 30.0), Held("b", "two", 1, 5.0)]
    assert finish_time(10.0, [ONE, TWO], held, [], {}) == 30.0
    assert finish_time(40.0, [ONE, TWO], held, [], {}) == 40.0


def test_waiting_jobs_go_where_they_end_first() -> None:
    jobs = [job(name, Mode("one", 10.0), Mode("two", 15.0)) for name in "abcd"]
    # a: one 0-10; b, c: two 0-15; d: one 10-20
    assert finish_time(0.0, [ONE, TWO], [], jobs, {}) == 20.0


def test_a_gang_waits_until_enough_units_are_free_together() -> None:
    held = [Held("a", "two", 1, 7.0)]
    assert finish_time(0.0, [TWO], held, [job("g", Mode("two", 3.0, 2))], {}) == 10.0


def test_releases_and_predecessors_are_waited_for() -> None:
    jobs = [job("a", Mode("one", 2.0), release=9.0), job("b", Mode("two", 3.0), after=("a",))]
    assert finish_time(0.0, [ONE, TWO], [], jobs, {}) == 14.0


def test_a_higher_priority_goes_first() -> None:
    # b first: two 0-10, then a may have the other unit at once
    jobs = [job("a", Mode("two", 4.0)), job("b", Mode("two", 10.0, 2), priority=1)]
    assert finish_time(0.0, [TWO], [], jobs, {}) == 14.0


def test_a_machine_without_work_is_used_from_the_time_it_gets_some() -> None:
    jobs = [job("a", Mode("one", 2.0))]
    assert finish_time(0.0, [ONE], [], jobs, {"one": 50.0}) == 52.0
    assert finish_time(0.0, [ONE], [], jobs, {"one": math.inf}) is None


def test_without_an_estimate_nobody_knows() -> None:
    assert finish_time(0.0, [ONE], [Held("a", "one", 1, math.inf)], [], {}) is None


def test_jobs_that_are_not_seen_take_as_long_as_those_that_are() -> None:
    jobs = [job(name, Mode("one", 10.0)) for name in "ab"]
    assert finish_time(100.0, [ONE], [], jobs, {}, unseen=3.0) == 160.0
