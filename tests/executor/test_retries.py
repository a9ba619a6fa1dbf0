"""What a job's end says of its cause, and where the job goes then."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched.agents.rules import make_rule
from hetsched.executor.adapter import Run, run_queue
from hetsched.executor.causes import explain
from hetsched.executor.local import LocalExecutor
from hetsched.executor.protocol import Attempt, Machine, Outcome, Status
from hetsched.executor.queue import Job, Mode, Queue
from hetsched.executor.simulated import Fault, SimulatedExecutor

GB = 1024.0**3


def gpu(name: str, memory: float | None = None, slots: int = 1, type: str = "") -> Machine:
    return Machine(name, type or name, "gpu", (f"GPU-{name}",), slots, memory)


def ended(status: Status, code: int | None, text: str, tmp_path: Path) -> Outcome:
    log = tmp_path / "log"
    log.write_text("step 1\n" + text, encoding="utf-8")
    return Outcome(Attempt("a", "m"), status, 0.0, 1.0, code, f"exit status {code}", str(log))


@pytest.mark.parametrize(
    ("status", "code", "text", "cause"),
    [
        ("done", 0, "CUDA out of memory, but I coped", "none"),
        ("failed", 1, "ValueError: no such file", "job"),
        ("failed", 1, "torch.OutOfMemoryError: CUDA out of memory. Tried to ...", "memory"),
        ("failed", 1, "Traceback ...\nMemoryError", "memory"),
        ("lost", -6, "terminate called after throwing 'std::bad_alloc'", "memory"),
        ("failed", 1, "CUDA error: an illegal memory access was encountered", "machine"),
        ("failed", 1, "CUDA error: uncorrectable ECC error encountered", "machine"),
        ("lost", -9, "", "machine"),
        ("lost", -11, "", "job"),
        ("lost", None, "", "machine"),
        ("timeout", -15, "CUDA out of memory", "job"),
        ("cancelled", -15, "CUDA out of memory", "none"),
    ],
)
def test_the_cause_is_read_from_exit_code_and_log(
    status: Status, code: int | None, text: str, cause: str, tmp_path: Path
) -> None:
    outcome, found = explain(ended(status, code, text, tmp_path))
    assert found == cause
    assert outcome.status == ("memory" if cause == "memory" else status)


def test_only_the_end_of_a_log_is_read(tmp_path: Path) -> None:
    long = "CUDA out of memory\n" + "later, all was well\n" * 5000
    assert explain(ended("failed", 1, long, tmp_path))[1] == "job"
    assert explain(Outcome(Attempt("a", "m"), "failed", 0.0, 1.0, 1, "", "/absent"))[1] == "job"


def run(job: Job, machines: tuple[Machine, ...], fault: Callable[[Attempt], Fault | None]) -> Run:
    executor = SimulatedExecutor(machines, fault=fault)
    return run_queue(Queue((job,), machines), make_rule("ect"), executor)


def places(done: Run) -> list[tuple[str, int, str]]:
    return [(one.attempt.machine, one.attempt.demand, one.status) for one in done.outcomes]


def no_memory_on(*names: str) -> Callable[[Attempt], Fault | None]:
    return lambda one: Fault("memory", 0.5, 1) if one.machine in names else None


def test_want_of_memory_leads_to_a_machine_that_has_more() -> None:
    machines = (gpu("a", 16 * GB), gpu("b", 16 * GB), gpu("c", 24 * GB), gpu("d", 80 * GB))
    modes = tuple(Mode(one.name, 1.0 + at) for at, one in enumerate(machines))
    done = run(Job("j", modes), machines, no_memory_on("a", "b", "c"))
    assert places(done) == [("a", 1, "memory"), ("c", 1, "memory"), ("d", 1, "done")]


def test_a_job_that_fits_nowhere_ends_and_says_so() -> None:
    machines = (gpu("a", 16 * GB), gpu("b", 24 * GB))
    modes = (Mode("a", 1.0), Mode("b", 2.0))
    done = run(Job("j", modes), machines, no_memory_on("a", "b"))
    assert places(done) == [("a", 1, "memory"), ("b", 1, "memory")]


def test_machines_of_one_type_are_alike_where_their_memory_is_not_known() -> None:
    machines = (gpu("a", type="v100"), gpu("b", type="v100"), gpu("c", type="h200"))
    modes = tuple(Mode(one.name, 1.0 + at) for at, one in enumerate(machines))
    done = run(Job("j", modes), machines, no_memory_on("a", "b"))
    assert places(done) == [("a", 1, "memory"), ("c", 1, "done")]


def test_a_job_that_shares_a_device_is_given_a_larger_part() -> None:
    machines = (gpu("a", 80 * GB, slots=4),)

    def fault(one: Attempt) -> Fault | None:
        return Fault("memory", 0.5, 1) if one.demand < 4 else None

    done = run(Job("j", (Mode("a", 1.0),)), machines, fault)
    assert places(done) == [("a", 1, "memory"), ("a", 2, "memory"), ("a", 4, "done")]


def test_a_failure_of_the_machine_leads_elsewhere_and_uses_no_retry() -> None:
    machines = (Machine("a"), Machine("b"))
    done = run(
        Job("j", (Mode("a", 1.0), Mode("b", 5.0)), retries=0),
        machines,
        lambda one: Fault("lost", 0.5) if one.machine == "a" else None,
    )
    assert places(done) == [("a", 1, "lost"), ("b", 1, "done")]


def test_moves_are_bounded() -> None:
    done = run(Job("j", (Mode("a", 1.0),), moves=3), (Machine("a"),), lambda one: Fault("lost", 1))
    assert len(done.outcomes) == 4


def test_a_higher_priority_goes_first_and_keeps_its_machine_free() -> None:
    machines = (Machine("m", capacity=2),)
    jobs = (
        Job("runs", (Mode("m", 5.0, 1),)),
        Job("small", (Mode("m", 1.0, 1),), release=1.0),
        Job("gang", (Mode("m", 1.0, 2),), priority=1, release=1.0),
    )
    done = run_queue(Queue(jobs, machines), make_rule("fifo"), SimulatedExecutor(machines))
    assert [(one.attempt.job, one.started) for one in done.outcomes] == [
        ("runs", 0.0),
        ("gang", 5.0),
        ("small", 6.0),
    ]


def test_the_limit_of_memory_ends_a_job_and_is_doubled(tmp_path: Path) -> None:
    script = "x = bytearray(120_000_000)\nimport time\ntime.sleep(1.2)"
    machines = (Machine("m"),)
    job = Job("j", (Mode("m", 1.0),), (sys.executable, "-c", script), memory=80e6)
    executor = LocalExecutor(machines, tmp_path, grace=0.2)
    try:
        done = run_queue(Queue((job,), machines), make_rule("fifo"), executor)
    finally:
        executor.close()
    assert [one.status for one in done.outcomes] == ["memory", "done"]
    assert done.outcomes[0].reason.startswith("held ")
    assert "more than its limit of 76 MiB" in done.outcomes[0].reason
    assert [one.attempt.memory for one in done.outcomes] == [80e6, 160e6]
    assert math.isfinite(done.ended)
