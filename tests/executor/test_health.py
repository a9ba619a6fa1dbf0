"""Machines that fail twice in a row are drained; a job that fails everywhere is to blame."""

from __future__ import annotations

import math

from hetsched.agents.rules import make_rule
from hetsched.executor.adapter import Run, run_queue
from hetsched.executor.health import Health
from hetsched.executor.protocol import Attempt, Machine
from hetsched.executor.queue import Job, Mode, Queue
from hetsched.executor.simulated import Fault, SimulatedExecutor


def test_two_failures_in_a_row_drain_a_machine() -> None:
    health = Health(["m", "n"], probation=60.0)
    assert health.failed("m", "a", now=10.0) == []
    assert health.failed("m", "b", now=20.0) == ["m"]
    assert health.drained == {"m": "failed twice in a row, with 'a', 'b'"}
    assert health.next_trial() == 80.0


def test_a_success_between_two_failures_forgives_the_first() -> None:
    health = Health(["m"])
    health.failed("m", "a", now=0.0)
    health.succeeded("m")
    assert health.failed("m", "b", now=0.0) == []


def test_one_job_alone_drains_no_machine() -> None:
    health = Health(["m"])
    for _ in range(5):
        assert health.failed("m", "a", now=0.0) == []


def test_a_job_that_fails_elsewhere_too_takes_its_blame_along() -> None:
    health = Health(["m", "n"])
    health.failed("m", "a", now=0.0)
    health.failed("m", "b", now=0.0)
    assert health.failed("n", "b", now=0.0) == ["m"]  # works again
    assert health.drained == {}
    assert health.failed("n", "c", now=0.0) == []  # the failure of b does not count there


def test_probation_ends_by_itself_and_doubles_while_the_machine_goes_on_failing() -> None:
    health = Health(["m"], probation=60.0)
    health.failed("m", "a", now=0.0)
    health.failed("m", "b", now=0.0)
    assert health.end_probations(now=59.0) == []
    assert health.end_probations(now=60.0) == ["m"]
    assert health.failed("m", "c", now=61.0) == ["m"]  # one is enough now
    assert health.until("m") == 61.0 + 120.0


def test_a_machine_drained_by_hand_comes_back_by_hand() -> None:
    health = Health(["m"])
    health.drain("m", "by hand")
    assert health.next_trial() == math.inf
    assert health.end_probations(now=1e9) == []
    health.undrain("m")
    assert health.drained == {}


def run(jobs: tuple[Job, ...], broken: str, probation: float = 1000.0) -> Run:
    """A cluster of m and n in which attempts on the broken machine are lost after a second."""
    machines = (Machine("m"), Machine("n"))

    def fault(attempt: Attempt) -> Fault | None:
        return Fault("lost", 1.0) if attempt.machine == broken else None

    executor = SimulatedExecutor(machines, fault=fault)
    return run_queue(Queue(jobs, machines), make_rule("ect"), executor, probation=probation)


def test_the_jobs_of_a_broken_machine_are_done_elsewhere() -> None:
    jobs = tuple(Job(f"j{at}", (Mode("m", 5.0), Mode("n", 9.0))) for at in range(6))
    done = run(jobs, broken="m")
    assert done.all_done
    lost = [one.attempt.job for one in done.outcomes if one.status == "lost"]
    assert len(lost) == 2
    assert any("machine 'm' is drained: failed twice in a row" in note for note in done.notes)
    assert {one.attempt.machine for one in done.last.values()} == {"n"}


def test_a_job_that_can_run_nowhere_else_waits_for_the_trial_and_is_lost_in_the_end() -> None:
    jobs = tuple(Job(f"j{at}", (Mode("m", 5.0),)) for at in range(3))
    done = run(jobs, broken="m", probation=50.0)
    assert {one.status for one in done.last.values()} == {"lost"}
    assert max(one.attempt.number for one in done.outcomes) == 3  # the first and two moves
    assert done.ended > 50.0


def test_a_machine_that_the_driver_calls_broken_is_drained_until_it_calls_it_well() -> None:
    health = Health(["m", "n"], probation=60.0)
    assert health.inspected({"m": "GPU 0 needs gpu reset"}, ["n"]) == ["m"]
    assert health.drained == {"m": "GPU 0 needs gpu reset (NVML)"}
    assert health.end_probations(now=1e9) == []  # time alone mends no GPU
    assert health.inspected({}, []) == []  # nothing is said of it
    assert "m" in health.drained
    assert health.inspected({}, ["m", "n"]) == ["m"]
    assert health.drained == {}


def test_the_driver_does_not_undrain_what_was_drained_by_hand() -> None:
    health = Health(["m"])
    health.drain("m", "loud")
    assert health.inspected({"m": "broken"}, []) == []
    assert health.inspected({}, ["m"]) == []
    assert health.drained == {"m": "loud"}


def test_a_hand_overrules_the_driver_until_it_says_something_else() -> None:
    health = Health(["m"])
    health.inspected({"m": "broken"}, [])
    health.undrain("m")
    assert health.inspected({"m": "broken"}, []) == []
    assert health.drained == {}
    assert health.inspected({"m": "worse"}, []) == ["m"]


def test_what_the_driver_said_in_an_earlier_run_is_known_as_such() -> None:
    health = Health(["m"])
    health.drain("m", "broken (NVML)")  # as the state remembers it
    assert health.inspected({"m": "broken"}, []) == []  # no news
    assert health.inspected({}, ["m"]) == ["m"]


def test_a_machine_on_probation_is_no_more_tried_when_the_driver_calls_it_broken() -> None:
    health = Health(["m"], probation=60.0)
    health.failed("m", "a", now=0.0)
    health.failed("m", "b", now=0.0)
    assert health.inspected({"m": "broken"}, []) == ["m"]
    assert health.next_trial() == math.inf
