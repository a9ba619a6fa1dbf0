"""Injected faults: where they come from, and that nothing is lost or told twice."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from pathlib import Path

import pytest

from hetsched.executor.faults import Faults, FaultyExecutor
from hetsched.executor.local import LocalExecutor
from hetsched.executor.protocol import Attempt, Machine, Outcome
from hetsched.executor.simulated import SimulatedExecutor
from hetsched.tests.executor.conformance_processes import is_alive, numbers_in, wait_until

MACHINES = (Machine("m", capacity=2), Machine("n", capacity=2))


def simulated(faults: Faults, seed: int = 0) -> FaultyExecutor:
    return FaultyExecutor(SimulatedExecutor(MACHINES), faults, seed)


def attempt(job: str = "a", seconds: float = 10.0, **fields: object) -> Attempt:
    return Attempt(job, "m", expected=seconds, **fields)  # type: ignore[arg-type]


def end_of(executor: FaultyExecutor, one: Attempt) -> Outcome:
    executor.start(one)
    (outcome,) = executor.poll()
    return outcome


@pytest.mark.parametrize(
    ("faults", "status", "code"),
    [(Faults(crash=1.0), "failed", 1), (Faults(lost=1.0), "lost", -9)],
)
def test_a_crash_and_a_loss_come_at_some_time_of_the_run(
    faults: Faults, status: str, code: int
) -> None:
    executor = simulated(faults)
    ends = [end_of(executor, attempt(f"job {number}")) for number in range(50)]
    assert {(one.status, one.exit_code) for one in ends} == {(status, code)}
    assert not any(one.machine_failed for one in ends)  # the job's fault, not the machine's
    assert 4.0 < sum(one.seconds for one in ends) / 50 < 6.0  # uniform in 0 to 10
    assert max(one.seconds for one in ends) <= 10.0


def test_a_hang_lasts_until_the_timeout_and_holds_its_machine() -> None:
    executor = simulated(Faults(hang=1.0))
    executor.start(attempt(demand=2, timeout=100.0))
    assert executor.poll(50.0) == []  # its time was up after 10
    with pytest.raises(ValueError, match="has 0 free"):
        executor.start(attempt("b"))
    (outcome,) = executor.poll()
    assert (outcome.status, outcome.ended) == ("timeout", 100.0)
    executor.start(attempt("b", timeout=20.0))


def test_a_hang_can_be_stopped_and_preempted() -> None:
    for how, status in (("stop", "cancelled"), ("preempt", "preempted")):
        executor = simulated(Faults(hang=1.0))
        executor.start(attempt(timeout=100.0))
        assert executor.poll(50.0) == []
        getattr(executor, how)("a")
        (outcome,) = executor.poll()
        assert (outcome.status, outcome.ended) == (status, 50.0)
        assert executor.poll() == []


def test_what_nothing_would_end_does_not_hang() -> None:
    assert end_of(simulated(Faults(hang=1.0)), attempt()).status == "done"


def test_a_slow_start_is_part_of_the_run_and_of_its_timeout() -> None:
    executor = simulated(Faults(slow=1.0, slow_seconds=5.0))
    one = attempt(timeout=30.0)
    outcome = end_of(executor, one)
    assert (outcome.attempt, outcome.started, outcome.ended) == (one, 0.0, 15.0)
    assert end_of(executor, attempt(timeout=12.0)).seconds == 12.0
    assert end_of(executor, attempt(timeout=3.0)).seconds == 3.0
    executor.start(attempt())
    executor.stop("a")
    (outcome,) = executor.poll()
    assert (outcome.status, outcome.seconds) == ("cancelled", 0.0)
    assert executor.poll(executor.now() + 20.0) == []  # it does not start after all


def test_a_machine_goes_away_with_all_its_attempts_and_comes_back() -> None:
    executor = simulated(Faults(outages=(("m", 4.0, 9.0),)))
    executor.start(attempt("a"))
    executor.start(attempt("b", 2.0))
    executor.start(Attempt("c", "n", expected=6.0))
    assert [(one.attempt.job, one.status) for one in executor.poll()] == [("b", "done")]
    assert executor.poll() == []  # woken: something has changed
    assert executor.down() == {"m"}
    (outcome,) = executor.poll()
    assert (outcome.attempt.job, outcome.status, outcome.ended) == ("a", "lost", 4.0)
    assert outcome.machine_failed
    assert outcome.reason == "machine 'm' went away"
    executor.start(attempt("a", number=2))
    (again,) = executor.poll()
    assert (again.machine_failed, again.seconds) == (True, 0.0)
    assert [one.attempt.job for one in executor.poll()] == ["c"]
    assert executor.poll(20.0) == []  # woken by the return
    assert (executor.now(), executor.down()) == (9.0, frozenset())
    assert end_of(executor, attempt("a", number=3)).status == "done"


def test_a_stopped_attempt_is_cancelled_also_when_its_machine_goes(tmp_path: Path) -> None:
    faults = Faults(outages=(("m", 0.3, 30.0),))
    executor = FaultyExecutor(LocalExecutor(MACHINES, tmp_path, grace=20.0), faults)
    with contextlib.closing(executor):
        ready = tmp_path / "ready"
        command = f"trap '' TERM; echo $$ > {ready}; sleep 60; sleep 60"
        executor.start(Attempt("a", "m", command=command))
        numbers_in(ready, 1)
        executor.stop("a")
        outcomes: list[Outcome] = []
        while not outcomes:
            outcomes = executor.poll(executor.now() + 10.0)
        assert [one.status for one in outcomes] == ["cancelled"]
        assert executor.down() == {"m"}


def test_a_process_dies_with_its_machine_before_it_is_reported(tmp_path: Path) -> None:
    faults = Faults(outages=(("m", 0.5, 30.0),))
    executor = FaultyExecutor(LocalExecutor(MACHINES, tmp_path, grace=20.0), faults)
    with contextlib.closing(executor):
        ready = tmp_path / "ready"
        executor.start(Attempt("a", "m", command=f"echo $$ > {ready}; sleep 60 & wait"))
        outcomes: list[Outcome] = []
        while not outcomes:
            outcomes = executor.poll(executor.now() + 10.0)
        assert [one.machine_failed for one in outcomes] == [True]
        assert outcomes[0].log is not None
        (pid,) = numbers_in(ready, 1)
        assert wait_until(lambda: not is_alive(pid))


def fates(faults: Faults, seed: int, jobs: list[str]) -> dict[str, tuple[str, float]]:
    executor = simulated(faults, seed)
    ends: dict[str, tuple[str, float]] = {}
    for job in jobs:
        outcome = end_of(executor, attempt(job, timeout=50.0))
        ends[job] = outcome.status, round(outcome.seconds, 9)
    return ends


def test_the_seed_decides_and_the_order_does_not() -> None:
    faults = Faults(crash=0.3, lost=0.2, hang=0.2, slow=0.3)
    jobs = [f"job {number}" for number in range(40)]
    assert fates(faults, 1, jobs) == fates(faults, 1, jobs[::-1])
    assert fates(faults, 1, jobs) != fates(faults, 2, jobs)


def test_faults_come_as_often_as_asked_for() -> None:
    faults = Faults(crash=0.05, lost=0.1, hang=0.02)
    jobs = [f"job {number}" for number in range(2000)]
    count = Counter(status for status, _ in fates(faults, 3, jobs).values())
    for status, share in (("failed", 0.05), ("lost", 0.1), ("timeout", 0.02)):
        spread = math.sqrt(share * (1 - share) / 2000)
        assert abs(count[status] / 2000 - share) < 4 * spread


@pytest.mark.parametrize("seed", range(5))
def test_in_all_the_trouble_every_attempt_ends_exactly_once(seed: int) -> None:
    """500 jobs with every fault there is, retried until they are done."""
    faults = Faults(
        crash=0.05, lost=0.05, hang=0.02, slow=0.1, slow_seconds=3.0, away=60.0, back=20.0
    )
    executor = simulated(faults, seed)
    waiting = {f"job {number}": 1 for number in range(500)}
    free = {"m": 2, "n": 2}
    running: dict[str, Attempt] = {}
    done: set[str] = set()
    down_seen, clock = set(), 0.0
    while waiting or running:
        for machine in sorted(set(free) - executor.down()):
            while waiting and free[machine]:
                job, number = waiting.popitem()
                running[job] = Attempt(job, machine, number, expected=5.0, timeout=40.0)
                free[machine] -= 1
                executor.start(running[job])
        for outcome in executor.poll(executor.now() + 100.0):
            job = outcome.attempt.job
            assert running.pop(job) == outcome.attempt  # ran, and has not been reported yet
            assert clock <= outcome.ended <= executor.now()
            clock = outcome.ended
            free[outcome.attempt.machine] += 1
            if outcome.status == "done":
                done.add(job)
            else:
                waiting[job] = outcome.attempt.number + 1
        down_seen |= executor.down()
    assert len(done) == 500
    assert down_seen == {"m", "n"}
    assert executor.poll() == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"crash": 1.5}, "crash is 1.5; use 0 to 1"),
        ({"crash": 0.6, "lost": 0.3, "hang": 0.2}, "add up to more than 1"),
        ({"slow_seconds": 0.0}, "slow_seconds is 0.0; it must be above 0"),
        ({"away": -1.0}, "away is -1.0"),
        ({"outages": (("m", 5.0, 4.0),)}, "outage of 'm' from 5.0 to 4.0"),
    ],
)
def test_trouble_that_makes_no_sense_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Faults(**fields)
