"""The fake clock and the injected faults."""

from __future__ import annotations

import math

import pytest

from hetsched.executor.protocol import Attempt, Machine
from hetsched.executor.simulated import Fault, SimulatedExecutor, durations_of

MACHINES = (Machine("m", capacity=4),)


def test_the_clock_jumps_to_the_ends_and_to_the_deadlines() -> None:
    executor = SimulatedExecutor(MACHINES)
    executor.start(Attempt("a", "m", expected=3600.0))
    assert executor.poll(until=10.0) == []
    assert executor.now() == 10.0
    (outcome,) = executor.poll()
    assert (outcome.started, outcome.ended, executor.now()) == (0.0, 3600.0, 3600.0)


def test_what_ends_at_one_instant_is_reported_together_in_order_of_start() -> None:
    executor = SimulatedExecutor(MACHINES)
    for job in ("b", "a", "c"):
        executor.start(Attempt(job, "m", expected=5.0))
    assert [one.attempt.job for one in executor.poll()] == ["b", "a", "c"]


def test_an_end_at_the_deadline_is_not_missed() -> None:
    executor = SimulatedExecutor(MACHINES)
    executor.start(Attempt("a", "m", expected=5.0))
    assert len(executor.poll(until=5.0)) == 1


def test_true_durations_may_differ_from_the_expected_ones() -> None:
    executor = SimulatedExecutor(MACHINES, durations_of({("a", 1): 7.0}))
    executor.start(Attempt("a", "m", mode=1, expected=5.0))
    assert executor.poll()[0].ended == 7.0


def test_a_fault_replaces_the_natural_end() -> None:
    executor = SimulatedExecutor(
        MACHINES,
        fault=lambda attempt: Fault("lost", 2.0, -9) if attempt.number == 1 else None,
    )
    executor.start(Attempt("a", "m", expected=5.0))
    (outcome,) = executor.poll()
    assert (outcome.status, outcome.ended, outcome.exit_code) == ("lost", 2.0, -9)
    executor.start(Attempt("a", "m", number=2, expected=5.0))
    assert executor.poll()[0].status == "done"


def test_without_an_expected_duration_there_is_nothing_to_simulate() -> None:
    executor = SimulatedExecutor(MACHINES)
    with pytest.raises(ValueError, match="job 'a': no expected duration"):
        executor.start(Attempt("a", "m"))


def test_a_stopped_attempt_ends_now_and_the_others_go_on() -> None:
    executor = SimulatedExecutor(MACHINES)
    executor.start(Attempt("a", "m", expected=5.0))
    executor.start(Attempt("b", "m", expected=9.0))
    executor.poll(until=2.0)
    executor.stop("b")
    (outcome,) = executor.poll()
    assert (outcome.attempt.job, outcome.status, outcome.ended) == ("b", "cancelled", 2.0)
    assert executor.poll()[0].ended == 5.0
    assert executor.poll(math.inf) == []
