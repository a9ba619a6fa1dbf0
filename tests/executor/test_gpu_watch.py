"""GPUs that the driver calls broken get no work and lose what they have, without anybody's help."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import pytest

from hetsched.agents.rules import make_rule
from hetsched.executor import scheduler, store
from hetsched.executor.discovery import Discovery, discover
from hetsched.executor.exits import Exits
from hetsched.executor.gpu_watch import Condition, GpuWatch, examine
from hetsched.executor.guard import Guard
from hetsched.executor.local import LocalExecutor
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, Mode, Queue
from hetsched.executor.restore import resume_queue
from hetsched.executor.store_client import Client
from hetsched.executor.store_ledger import StoreLedger
from hetsched.tests.executor.conformance_processes import wait_until
from hetsched.tests.executor.fake_nvml import FakeGpu, FakeNvml

A, B = "GPU-aaaa", "GPU-bbbb"
ONE = (Machine("a", "h200", "gpu", (A,)),)
TWO = (*ONE, Machine("b", "h200", "gpu", (B,)))


def gpus() -> tuple[FakeGpu, FakeGpu]:
    return FakeGpu(uuid=A, recovery=0), FakeGpu(uuid=B, recovery=0)


def condition(
    nvml: FakeNvml, machines: tuple[Machine, ...] = TWO, seen: set[str] | None = None
) -> Condition:
    found = examine(discover(nvml), machines, set() if seen is None else seen)
    assert found is not None
    return found


def watch(nvml: FakeNvml, machines: tuple[Machine, ...] = TWO) -> GpuWatch:
    return GpuWatch(machines, lambda: discover(nvml), every=0.02, confirm=0.01)


def test_well_gpus_are_said_to_be_well() -> None:
    assert condition(FakeNvml(*gpus())) == Condition({}, frozenset("ab"), {})


def test_a_gpu_that_needs_a_reset_or_cannot_replace_a_row_is_broken() -> None:
    first, second = gpus()
    first.recovery, second.rows = 1, (0, 0, 0, 1)
    assert condition(FakeNvml(first, second)).broken == {
        "a": f"GPU {A} needs gpu reset",
        "b": f"GPU {B} row remapping failed",
    }


def test_memory_errors_and_heat_are_told_but_cost_no_machine_its_work() -> None:
    first, second = gpus()
    first.uncorrected, second.reasons = 3, 0x40
    said = condition(FakeNvml(first, second))
    assert said.broken == {}
    assert said.well == {"a", "b"}
    assert said.suspect == {
        "a": f"GPU {A}: 3 uncorrected memory errors",
        "b": f"GPU {B}: hardware thermal slowdown",
    }


@pytest.mark.parametrize("gone", ["off the list", "refused", "silent"])
def test_a_gpu_that_was_there_and_does_not_answer_any_more_is_broken(gone: str) -> None:
    first, second = gpus()
    seen: set[str] = set()
    condition(FakeNvml(first, second), seen=seen)
    nvml = FakeNvml(second) if gone == "off the list" else FakeNvml(first, second)
    first.lost = gone == "refused"
    if gone == "silent":
        first.recovery = None
    said = condition(nvml, seen=seen)
    assert said.broken == {"a": f"GPU {A} does not answer any more"}
    assert said.well == {"b"}


def test_of_a_gpu_that_was_never_there_nothing_is_said() -> None:
    said = condition(FakeNvml(gpus()[1]))
    assert said == Condition({}, frozenset("b"), {})


def test_a_machine_of_several_gpus_is_broken_with_one_of_them() -> None:
    first, second = gpus()
    second.recovery = 1
    both = (Machine("node", "h200", "gpu", ("0", "1"), capacity=2),)
    assert condition(FakeNvml(first, second), both).broken == {"node": "GPU 1 needs gpu reset"}


def test_without_a_driver_nobody_looks_a_second_time() -> None:
    looks: list[Discovery] = []

    def look() -> Discovery:
        looks.append(discover(FakeNvml(driver=False)))
        return looks[-1]

    with contextlib.closing(GpuWatch(TWO, look, every=0.01)) as made:
        time.sleep(0.1)
        assert made.condition() is None
        assert made.news() == []
    assert len(looks) == 1


def test_machines_without_a_gpu_are_not_looked_at() -> None:
    def look() -> Discovery:
        raise AssertionError

    with contextlib.closing(GpuWatch((Machine("cpu"),), look)) as made:
        assert made.condition() is None


def test_one_look_alone_breaks_nothing() -> None:
    first, second = gpus()
    nvml = FakeNvml(first, second)
    looks = 0

    def look() -> Discovery:
        nonlocal looks
        looks += 1
        first.lost = looks == 3  # a hiccup
        return discover(nvml)

    with contextlib.closing(GpuWatch(TWO, look, every=0.01, confirm=0.001)) as made:
        seen = set()
        while looks < 8:
            one = made.condition()
            seen |= set() if one is None else set(one.broken)
    assert seen == set()


def test_it_goes_on_when_the_driver_is_gone_for_a_while() -> None:
    nvml = FakeNvml(*gpus())
    with contextlib.closing(watch(nvml)) as made:
        nvml.driver = False
        time.sleep(0.1)
        assert made.condition() == Condition({}, frozenset("ab"), {})
        nvml.driver, nvml.gpus[0].recovery = True, 1
        assert wait_until(lambda: "a" in (made.condition() or Condition()).broken)
    assert nvml.open == 0  # a GPU that is open cannot be reset


def test_what_is_suspect_is_said_once() -> None:
    first, second = gpus()
    first.uncorrected = 1
    nvml = FakeNvml(first, second)
    news: list[str] = []
    with contextlib.closing(watch(nvml)) as made:

        def hear() -> bool:
            news.extend(made.news())
            return bool(news)

        assert wait_until(hear)
        first.uncorrected = 2
        time.sleep(0.15)
        news += made.news()
    assert news == [f"machine 'a' goes on working, but GPU {A}: 1 uncorrected memory errors (NVML)"]


def test_a_driver_that_hangs_holds_up_neither_the_queue_nor_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hetsched.executor.gpu_watch.FIRST_SECONDS", 0.1)
    never = threading.Event()

    def look() -> Discovery:
        never.wait(30.0)
        return Discovery()

    began = time.monotonic()
    made = GpuWatch(TWO, look)
    assert made.condition() is None
    made.close()
    assert time.monotonic() - began < 5.0
    never.set()


def test_a_binding_that_raises_what_nobody_expects_is_told_and_left_alone() -> None:
    def look() -> Discovery:
        raise KeyError("odd")

    with contextlib.closing(GpuWatch(TWO, look)) as made:
        assert made.news() == ["the GPUs' health is watched no more (KeyError: 'odd')"]


def test_jobs_leave_a_gpu_that_breaks_and_it_gets_work_again_when_it_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "CHECK_SECONDS", 0.05)
    first, second = gpus()
    folder, ready = tmp_path / "state", tmp_path / "ready"
    script = (
        f"[ $HETSCHED_MACHINE = b ] && exit 0; trap 'exit 75' TERM; echo x > {ready}; "
        "while :; do sleep 0.02; done"
    )
    moves = Job("moves", (Mode("a", 1.0), Mode("b", 9.0)), script)
    stays = Job("stays", (Mode("a", 5.0),), "true", after=("moves",))
    store.create(folder, Queue((moves, stays), TWO, grace=5.0))

    said: list[str] = []

    def break_and_mend() -> None:
        try:
            assert wait_until(ready.exists)
            first.recovery = 1
            with contextlib.closing(Client(folder)) as client:
                assert wait_until(lambda: client.is_over("moves"))
                overview = client.overview(names=["stays"])
            said.extend((overview.machines[0].drained, overview.jobs[0].reason))
        finally:
            first.recovery = 0

    helper = threading.Thread(target=break_and_mend)
    helper.start()
    with contextlib.closing(StoreLedger(folder)) as ledger:
        exits = Exits(folder / store.EXITS, ledger.identity)
        executor = LocalExecutor(
            ledger.machines, folder / store.LOGS, 5.0, exits=exits, opened=ledger.clock()
        )
        with (
            contextlib.closing(executor),
            contextlib.closing(watch(FakeNvml(first, second))) as made,
        ):
            done = resume_queue(ledger, Guard(make_rule("ect")), executor, gpus=made)
    helper.join()
    told = [(one.attempt.job, one.attempt.machine, one.status) for one in done.outcomes]
    assert told == [("moves", "a", "preempted"), ("moves", "b", "done"), ("stays", "a", "done")]
    why = f"GPU {A} needs gpu reset (NVML)"
    assert said == [why, f"can only use machines that get no work: 'a' is drained: {why}"]
    assert done.notes == [f"machine 'a' is drained: {why}", "machine 'a' gets work again"]
