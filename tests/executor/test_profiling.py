"""Short real runs: what counts, what is stopped, what is said when nothing can be measured."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from hetsched.executor.discovery_nvml import Nvml
from hetsched.executor.profiling import (
    Measurement,
    ProfileRun,
    Settings,
    Subject,
    measure,
    summary,
)
from hetsched.executor.profiling_clocks import ClockWatch
from hetsched.executor.profiling_steps import Steady
from hetsched.executor.profiling_table import SpeedRow
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, Mode
from hetsched.tests.executor.fake_nvml import FakeGpu, FakeNvml

CPU = Machine("cpu", capacity=2)
GPU = Machine("gpu", "h200", "gpu", ("GPU-a", "GPU-b"), capacity=2)
QUICK = Settings(repeats=2, warmup=0.1, seconds=0.4, limit=20.0, grace=1.0)
ENDLESS = "i=0; while :; do i=$((i+1)); echo {} ; sleep 0.02; done"
TO_FILE = ENDLESS.format('$i >> "$HETSCHED_PROGRESS"')
TO_OUTPUT = ENDLESS.format('"epoch 1 step $i"')


def subject(command: str, machine: Machine = CPU, steps: float = 0.0, **fields: Any) -> Subject:
    mode = Mode(machine.name, 1.0, fields.pop("demand", 1))
    return Subject("net", Job("job", (mode,), command, **fields), 0, machine, steps)


def measured(
    tmp_path: Path, command: str, settings: Settings = QUICK, **fields: Any
) -> Measurement:
    result = measure(subject(command, **fields), settings, tmp_path, ClockWatch())
    assert result is not None
    return result


def test_a_job_that_reports_steps_is_stopped_when_it_was_steady_long_enough(
    tmp_path: Path,
) -> None:
    result = measured(tmp_path, TO_FILE)
    assert result.problem == ""
    assert 2 < result.speed <= 50  # a step takes 0.02 s, and longer on a busy computer
    assert result.seconds is None
    assert len(result.runs) == 2
    assert all(run.seconds < QUICK.limit for run in result.runs)
    assert result.row().gpus == 1
    assert result.row().runs == "2"


def test_progress_can_be_found_in_the_output(tmp_path: Path) -> None:
    settings = Settings(1, 0.1, 0.3, 20.0, pattern=re.compile(r"step (\d+)"), grace=1.0)
    result = measured(tmp_path, TO_OUTPUT, settings)
    assert 2 < result.speed <= 50


def test_a_job_that_reports_nothing_is_timed_as_a_whole_after_a_first_run(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    # The first run takes longer than the others and must not count.
    command = f"[ -e {marks} ] || sleep 1; echo run >> {marks}; sleep 0.1"
    result = measured(tmp_path, command, steps=50.0)
    assert marks.read_text(encoding="utf-8") == "run\n" * 3
    assert result.seconds is not None
    assert 0.1 <= result.seconds < 1.0
    assert result.speed == pytest.approx(50.0 / result.seconds, rel=0.5)
    assert result.notes[0] == "whole runs, start-up included"


def test_a_short_job_is_measured_by_the_reports_that_it_made(tmp_path: Path) -> None:
    command = 'for i in 1 2 3 4; do echo $i >> "$HETSCHED_PROGRESS"; sleep 0.1; done'
    result = measured(tmp_path, command, Settings(1, warmup=60.0, seconds=60.0, limit=20.0))
    assert 1 < result.speed <= 10
    assert result.seconds is None


@pytest.mark.parametrize(
    ("command", "limit", "problem"),
    [
        ("exit 3", 20.0, "exit status 3"),
        ("sleep 60", 0.3, "it neither ended nor reported progress often enough within 0.3 s"),
    ],
)
def test_a_job_that_fails_or_hangs_is_not_measured(
    tmp_path: Path, command: str, limit: float, problem: str
) -> None:
    result = measured(tmp_path, command, Settings(limit=limit, grace=0.5))
    assert result.problem == problem
    with pytest.raises(ValueError, match="'net' was not measured"):
        result.row()


def test_a_request_to_stop_ends_the_run_and_gives_nothing(tmp_path: Path) -> None:
    calls: list[int] = []

    def stops() -> int:
        calls.append(1)
        return int(len(calls) > 3)

    assert measure(subject("sleep 60"), QUICK, tmp_path, ClockWatch(), stops) is None


def test_jobs_know_that_they_are_profiled_and_see_the_gpus_of_their_units(tmp_path: Path) -> None:
    command = 'echo "$CUDA_VISIBLE_DEVICES $HETSCHED_PROFILE $COLOUR" > ' + str(tmp_path / "seen")
    measured(
        tmp_path, command, Settings(1, warmup_runs=0), machine=GPU, demand=2, env={"COLOUR": "red"}
    )
    assert (tmp_path / "seen").read_text(encoding="utf-8") == "GPU-a,GPU-b 1 red\n"


def run_of(speed: float, blocks: tuple[float, ...], slowdown: tuple[str, ...] = ()) -> ProfileRun:
    return ProfileRun(9.0, Steady(speed, blocks, 2.0 * speed, 1.0), frozenset(slowdown))


def test_medians_count_and_what_varies_is_said() -> None:
    runs = [
        run_of(10.0, (9.0, 11.0), ("power cap",)),
        run_of(20.0, (20.0, 20.0)),
        run_of(11.0, (11.0, 11.0)),
    ]
    result = summary(subject("true"), runs)
    assert (result.speed, result.startup) == (11.0, 22.0)
    # Sorted blocks 9 11 11 11 20 20: quartiles 11 and 17.75, median 11.
    assert result.spread == pytest.approx(6.75 / 11)
    assert result.notes == (
        "clocks held down: power cap", "varies by 61%", "runs differ by 91%",
    )  # fmt: skip
    assert result.row() == SpeedRow(
        "net", "cpu", 11.0, 1, 22.0, "0.614", "3", "; ".join(result.notes)
    )


def test_steady_runs_have_no_remarks() -> None:
    assert summary(subject("true"), [run_of(10.0, (10.0, 10.1))] * 3).notes == ()


def test_slow_clocks_and_other_processes_are_seen() -> None:
    nvml = FakeNvml(
        FakeGpu(uuid="GPU-a", reasons=0x45, processes=[(17, None)]),
        FakeGpu(uuid="GPU-b", reasons=0x08),
    )
    watch = ClockWatch(Nvml(nvml))
    assert watch.watch(("GPU-a",)) == (17,)
    watch.look()
    assert watch.slowdown() == {"power cap", "hardware thermal slowdown"}
    assert watch.slowdown() == frozenset()  # forgotten
    assert watch.watch(("1", "GPU-absent")) == ()
    watch.look()
    assert watch.slowdown() == {"hardware slowdown"}


def test_a_gpu_that_others_use_is_remarked_upon(tmp_path: Path) -> None:
    nvml = FakeNvml(FakeGpu(uuid="GPU-a", reasons=0x20, processes=[(17, None), (os.getpid(), 1)]))
    result = measure(
        subject("sleep 0.1", machine=GPU),
        Settings(1, warmup_runs=0),
        tmp_path,
        ClockWatch(Nvml(nvml)),
    )
    assert result is not None
    assert result.notes == (
        "clocks held down: software thermal slowdown",
        "whole runs",
        f"shared with process 17, {os.getpid()}",
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"repeats": 0}, "repeats is 0; it must be at least 1."),
        ({"seconds": 0.0}, "seconds is 0.0; it must be above 0."),
        ({"warmup": float("nan")}, "warmup is nan; it must be at least 0."),
        ({"pattern": re.compile("step")}, "the pattern 'step' has no group"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Settings(**fields)
