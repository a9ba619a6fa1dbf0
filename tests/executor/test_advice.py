"""What a policy would start now, on snapshots small enough to do by hand."""

from __future__ import annotations

import pytest

from hetsched.agents.checkpoint import load_policy
from hetsched.agents.rules import make_rule
from hetsched.executor.adapter import run_queue
from hetsched.executor.advice import Occupied, Placement, advise
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, Mode, Queue, QueueError
from hetsched.executor.simulated import SimulatedExecutor

FAST, SLOW = Machine("fast"), Machine("slow", capacity=4)


def job(name: str, fast: float, slow: float, units: int = 1, **more: object) -> Job:
    return Job(name, (Mode("fast", fast), Mode("slow", slow, units)), **more)


def test_jobs_go_where_they_end_first() -> None:
    jobs = [job("a", 2.0, 9.0), job("b", 3.0, 4.0)]
    assert advise(make_rule("ect"), [FAST, SLOW], jobs) == [
        Placement("a", "fast", 1, 2.0),
        Placement("b", "slow", 1, 4.0),
    ]


def test_what_runs_takes_its_place() -> None:
    jobs = [job("a", 2.0, 9.0), job("b", 9.0, 9.0, units=3)]
    occupied = [Occupied("fast", 1, 100.0), Occupied("slow", 2, 5.0)]
    said = advise(make_rule("ect"), [FAST, SLOW], jobs, occupied)
    assert said == [Placement("a", "slow", 1, 9.0)]


def test_a_rule_may_rather_wait_for_a_machine_that_is_soon_free() -> None:
    jobs = [job("a", 2.0, 900.0)]
    assert advise(make_rule("ect-wait"), [FAST, SLOW], jobs, [Occupied("fast", 1, 5.0)]) == []
    late = [Occupied("fast", 1, 5000.0)]
    assert advise(make_rule("ect-wait"), [FAST, SLOW], jobs, late)[0].machine == "slow"


def test_what_is_released_later_or_comes_after_another_is_not_started() -> None:
    jobs = [job("a", 2.0, 3.0, release=60.0), job("b", 2.0, 3.0), job("c", 1.0, 1.0, after=("b",))]
    assert [one.job for one in advise(make_rule("fifo"), [FAST, SLOW], jobs, now=50.0)] == ["b"]


def test_a_machine_that_gets_no_work_may_still_be_occupied() -> None:
    jobs = [Job("a", (Mode("fast", 1.0),))]
    assert len(advise(make_rule("fifo"), [FAST], jobs, [Occupied("gone", 8, 1.0)])) == 1


def test_without_a_waiting_job_or_room_there_is_nothing_to_do() -> None:
    assert advise(make_rule("fifo"), [FAST], []) == []
    full = [Occupied("fast", 1, -3.0)]  # its time is up, but it still runs
    assert advise(make_rule("fifo"), [FAST], [Job("a", (Mode("fast", 1.0),))], full) == []


def test_a_learned_policy_says_what_it_does_in_a_run_of_its_own() -> None:
    jobs = tuple(job(f"j{at}", 1.0 + at % 3, 2.0 + at % 5, 1 + at % 2) for at in range(8))
    policy = load_policy("gpu-cluster")
    said = advise(policy, [FAST, SLOW], jobs)
    run = run_queue(Queue(jobs, (FAST, SLOW)), policy, SimulatedExecutor((FAST, SLOW)))
    begun = {one.attempt.job: one.attempt.machine for one in run.outcomes if one.started == 0.0}
    assert {one.job: one.machine for one in said} == begun
    assert said


def test_a_snapshot_that_cannot_be_is_one_sentence() -> None:
    only_fast = [Job("a", (Mode("fast", 1.0),))]
    with pytest.raises(QueueError, match="job 'a': durations names 'fast', which is no"):
        advise(make_rule("fifo"), [SLOW], only_fast)
    with pytest.raises(ValueError, match="'fast' has fewer units than run on it"):
        advise(
            make_rule("fifo"), [FAST], [Job("a", (Mode("fast", 1.0),))], [Occupied("fast", 2, 1)]
        )
    with pytest.raises(ValueError, match="units is 0"):
        Occupied("fast", 0)
    with pytest.raises(ValueError, match="seconds is nan"):
        Occupied("fast", 1, float("nan"))
