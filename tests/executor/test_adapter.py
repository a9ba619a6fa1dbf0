"""The loop around a policy: failures, retries, dependants, interruption, waiting."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from hetsched.agents.rules import make_rule
from hetsched.executor.adapter import Run, run_queue
from hetsched.executor.local import LocalExecutor
from hetsched.executor.protocol import Attempt, Machine, Outcome
from hetsched.executor.queue import Job, Mode, Queue
from hetsched.executor.signals import StopSignals
from hetsched.executor.simulated import Fault, SimulatedExecutor

if TYPE_CHECKING:
    from torch import Tensor

    from hetsched.envs.simulator import State

ONE = (Machine("m"),)


def job(name: str, seconds: float = 1.0, machine: str = "m", **fields: object) -> Job:
    return Job(name, (Mode(machine, seconds),), **fields)  # type: ignore[arg-type]


def run(
    jobs: Sequence[Job],
    machines: tuple[Machine, ...] = ONE,
    rule: str = "fifo",
    fault: Callable[[Attempt], Fault | None] = lambda attempt: None,
    **options: object,
) -> Run:
    queue = Queue(tuple(jobs), machines)
    executor = SimulatedExecutor(machines, fault=fault)
    return run_queue(queue, make_rule(rule), executor, **options)  # type: ignore[arg-type]


def told(done: Run) -> list[tuple[str, str, float, float]]:
    return [(one.attempt.job, one.status, one.started, one.ended) for one in done.outcomes]


def test_jobs_run_one_after_the_other_on_one_machine() -> None:
    done = run([job("a", 2.0), job("b", 3.0)])
    assert told(done) == [("a", "done", 0.0, 2.0), ("b", "done", 2.0, 5.0)]
    assert done.all_done
    assert (done.ended, len(done.decisions), done.not_run) == (5.0, 2, {})


def test_a_failed_job_is_retried_as_often_as_it_may() -> None:
    def twice(attempt: Attempt) -> Fault | None:
        failing = attempt.job == "a" and attempt.number <= 2
        return Fault("failed", 0.5, exit_code=1) if failing else None

    done = run([job("a", retries=2), job("b")], fault=twice)
    assert [(one.attempt.job, one.attempt.number, one.status) for one in done.outcomes] == [
        ("a", 1, "failed"),
        ("a", 2, "failed"),
        ("a", 3, "done"),
        ("b", 1, "done"),
    ]
    assert done.all_done
    done = run([job("a", retries=1), job("b")], fault=twice)
    assert [one.status for one in done.outcomes] == ["failed", "failed", "done"]
    assert not done.all_done


@pytest.mark.parametrize("status", ["failed", "lost", "timeout"])
def test_what_comes_after_a_failed_job_never_runs_and_says_why(status: str) -> None:
    done = run(
        [job("a", moves=0), job("b", after=("a",)), job("c", after=("b",)), job("d")],
        fault=lambda one: Fault(status, 0.5) if one.job == "a" else None,  # type: ignore[arg-type]
    )
    assert told(done) == [("a", status, 0.0, 0.5), ("d", "done", 0.5, 1.5)]
    assert done.not_run == {
        "b": "comes after 'a', which was not done",
        "c": "comes after 'b', which was not done",
    }
    assert not done.all_done


def test_a_job_that_exceeds_its_timeout_frees_its_machine() -> None:
    done = run([job("a", 100.0, timeout=2.0), job("b")])
    assert told(done) == [("a", "timeout", 0.0, 2.0), ("b", "done", 2.0, 3.0)]


def test_the_clock_waits_for_a_release_when_nothing_runs() -> None:
    done = run([job("a", release=7.0)])
    assert told(done) == [("a", "done", 7.0, 8.0)]


def test_a_gang_waits_until_its_units_are_free_together() -> None:
    machines = (Machine("m", capacity=4),)
    jobs = [
        Job("small", (Mode("m", 5.0, 1),)),
        Job("gang", (Mode("m", 1.0, 4),)),
        Job("other", (Mode("m", 2.0, 3),)),
    ]
    done = run(jobs, machines)
    assert told(done) == [
        ("other", "done", 0.0, 2.0),
        ("small", "done", 0.0, 5.0),
        ("gang", "done", 5.0, 6.0),
    ]


def test_a_policy_may_wait_for_the_faster_machine() -> None:
    machines = (Machine("fast"), Machine("slow"))
    both = (Mode("fast", 1.0), Mode("slow", 50.0))
    done = run([Job("a", both), Job("b", both)], machines, rule="ect-wait")
    assert [one.attempt.machine for one in done.outcomes] == ["fast", "fast"]
    assert done.ended == 2.0


class Stopper:
    """Asks to stop once the simulated clock has reached a time."""

    def __init__(self, executor: SimulatedExecutor, at: float) -> None:
        self.executor, self.at = executor, at

    def __call__(self) -> int:
        return int(self.executor.now() >= self.at)


def test_an_interruption_stops_what_runs_and_says_why_the_rest_did_not() -> None:
    machines = (Machine("m"), Machine("n", capacity=2))
    jobs = (
        job("short", 1.0),
        job("long", 50.0),
        job("next", 1.0),
        job("after", 1.0, after=("long",)),
        job("late", 1.0, release=99.0),
        Job("half", (Mode("n", 50.0, 1),)),
        Job("gang", (Mode("n", 50.0, 2),)),
    )
    executor = SimulatedExecutor(machines)
    queue = Queue(jobs, machines)
    done = run_queue(queue, make_rule("fifo"), executor, stops=Stopper(executor, 1.0))
    assert done.interrupted
    # At 1 s "short" has ended and nobody was asked about its machine any more.
    assert told(done) == [("short", "done", 0.0, 1.0), ("half", "cancelled", 0.0, 1.0)]
    assert done.not_run == {
        "long": "the queue was stopped first; it was kept waiting by the policy",
        "next": "the queue was stopped first; it was kept waiting by the policy",
        "after": "the queue was stopped first; it comes after 'long', which had not ended",
        "late": "the queue was stopped first; it is released only in about 98 s",
        "gang": "the queue was stopped first; it needs 2 of 'n' together; 1 free; "
        "next in about 49 s",
    }


class Recorder:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def started(self, attempt: Attempt, at: float) -> None:
        self.lines.append(("start", attempt.job))

    def ended(self, outcome: Outcome, again: bool) -> None:
        self.lines.append((outcome.status + (" again" if again else ""), outcome.attempt.job))

    def noted(self, text: str, at: float) -> None:
        self.lines.append(("note", text))


def test_an_observer_is_told_of_every_start_and_end() -> None:
    recorder = Recorder()
    run(
        [job("a", moves=1)],
        fault=lambda one: Fault("lost", 1.0) if one.number == 1 else None,
        observer=recorder,
    )
    assert recorder.lines == [("start", "a"), ("lost again", "a"), ("start", "a"), ("done", "a")]


def test_another_set_of_machines_is_refused() -> None:
    queue = Queue((job("a"),), ONE)
    with pytest.raises(ValueError, match="the executor has other machines than the queue"):
        run_queue(queue, make_rule("fifo"), SimulatedExecutor((Machine("n"),)))


class Broken:
    name = "broken"

    def scores(self, state: State) -> Tensor:
        return torch.full((1, state.problem.num_actions), math.nan)


def test_a_policy_without_numbers_is_no_policy() -> None:
    with pytest.raises(ValueError, match="gave NaN"):
        run_queue(Queue((job("a"),), ONE), Broken(), SimulatedExecutor(ONE))


def test_a_thousand_jobs_are_decided_quickly() -> None:
    machines = tuple(Machine(f"m{at}") for at in range(8))
    modes = tuple(Mode(machine.name, 1.0 + at) for at, machine in enumerate(machines))
    queue = Queue(tuple(Job(f"j{at}", modes) for at in range(1000)), machines)
    executor = SimulatedExecutor(machines)
    stop = Stopper(executor, 3.0)
    done = run_queue(queue, make_rule("spt"), executor, stops=stop)
    assert sum(done.decisions) / len(done.decisions) < 0.3  # some 20 ms on an idle machine


def test_asking_twice_kills_what_still_uses_its_grace(tmp_path: Path) -> None:
    stubborn = "trap '' TERM; touch ready; while :; do sleep 0.05; done"
    jobs = (Job("a", (Mode("m", 60.0),), stubborn, workdir=str(tmp_path)),)
    queue = Queue(jobs, ONE, grace=60.0)

    def ask_twice() -> None:
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    with StopSignals() as signals:
        executor = LocalExecutor(ONE, tmp_path / "logs", grace=60.0, wake=signals.descriptor)
        asking = threading.Thread(target=ask_twice)
        asking.start()
        with contextlib.closing(executor):
            done = run_queue(queue, make_rule("fifo"), executor, stops=lambda: signals.count)
        asking.join()
    assert [one.status for one in done.outcomes] == ["cancelled"]
    assert done.ended < 10.0
