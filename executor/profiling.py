"""Measures how fast jobs run on machines: short real runs, one at a time.

A job that reports progress (`profiling_steps`) runs until it has been steady for some seconds and
is stopped; its speed is that of the steady part, and what its start costs is kept apart. One that
reports none is run to its end and its whole duration is the measure.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from hetsched.executor.local import LocalExecutor
from hetsched.executor.profiling_steps import (
    ProgressReader,
    Steady,
    after_warmup,
    spread_of,
    steady,
)
from hetsched.executor.profiling_table import SpeedRow

if TYPE_CHECKING:
    import re

    from hetsched.executor.profiling_clocks import ClockWatch
    from hetsched.executor.protocol import Attempt, Machine, Outcome
    from hetsched.executor.queue import Job

LOOK_SECONDS = 0.01  # how often progress is looked for: the error of a report's time
CLOCK_SECONDS = 0.5  # how often the GPU's clocks are asked for
ENOUGH_REPORTS = 3  # after the warm-up, also where this takes longer than it should
VARIES = 0.1  # relative spread from which a measurement is remarked upon


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Args:
        repeats: runs that count (>= 1).
        warmup: seconds after a run's first report that do not count (>= 0).
        seconds: length of the measured part of a run that reports progress (> 0).
        limit: seconds after which any run is given up (> 0).
        warmup_runs: first runs that do not count, of a job that reports no progress (>= 0).
        pattern: finds the work done so far in a line of output; None: HETSCHED_PROGRESS is read.
        grace: seconds between SIGTERM and SIGKILL.

    Raises:
        ValueError: naming the field.
    """

    repeats: int = 3
    warmup: float = 5.0
    seconds: float = 20.0
    limit: float = 600.0
    warmup_runs: int = 1
    pattern: re.Pattern[str] | None = None
    grace: float = 10.0

    def __post_init__(self) -> None:
        for name, least in (("repeats", 1), ("warmup", 0), ("warmup_runs", 0), ("grace", 0)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}.")
        for name in ("seconds", "limit"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0.")
        if self.pattern is not None and not self.pattern.groups:
            raise ValueError(
                f"the pattern {self.pattern.pattern!r} has no group; put the number in parentheses."
            )


@dataclass(frozen=True)
class Subject:
    """A job on a machine: what one row of the table is about.

    Args:
        model: the row's name: the job's model, or its own name.
        job: whose mode number `mode` is on `machine`.
        steps: work of the whole job in the units of its model; 0: not known.
    """

    model: str
    job: Job
    mode: int
    machine: Machine
    steps: float = 0.0

    @property
    def gpus(self) -> int:
        """Units of the machine."""
        return self.job.modes[self.mode].demand

    @property
    def label(self) -> str:
        """One phrase for people."""
        several = f" x{self.gpus}" if self.gpus > 1 else ""
        return f"{self.model} on {self.machine.type}{several} ({self.machine.name})"


@dataclass(frozen=True)
class ProfileRun:
    """One run: its length, its steady part if it reported progress, and what went wrong."""

    seconds: float
    steady: Steady | None
    slowdown: frozenset[str] = frozenset()
    problem: str = ""


@dataclass(frozen=True)
class Measurement:
    """What the runs of a subject say.

    Args:
        runs: those that count.
        speed: median, units of work per second; of a job that reports none, jobs per second,
            or its steps per second where it says them.
        startup: median seconds besides.
        seconds: median length of a whole run; None for runs that were stopped.
        spread: interquartile range over the median.
        notes: what to know before believing it.
        problem: why there is no measurement; empty if there is one.
    """

    subject: Subject
    runs: tuple[ProfileRun, ...] = ()
    speed: float = 0.0
    startup: float = 0.0
    seconds: float | None = None
    spread: float = 0.0
    notes: tuple[str, ...] = ()
    problem: str = ""

    def row(self) -> SpeedRow:
        """Its row in the table.

        Raises:
            ValueError: there is no measurement.
        """
        if self.problem:
            raise ValueError(f"{self.subject.model!r} was not measured: {self.problem}.")
        return SpeedRow(
            self.subject.model,
            self.subject.machine.type,
            self.speed,
            self.subject.gpus,
            self.startup,
            f"{self.spread:.3g}",
            str(len(self.runs)),
            "; ".join(self.notes),
        )


def measure(
    subject: Subject,
    settings: Settings,
    folder: Path,
    watch: ClockWatch,
    stops: Callable[[], int] = lambda: 0,
    wake: int | None = None,
) -> Measurement | None:
    """Run a subject as often as needed; None: somebody asked to stop.

    Args:
        folder: for the outputs of the runs.
        watch: told which devices to watch; it sees whether their clocks are held down.
        stops: how often somebody asked to stop; from the second time on without grace.
        wake: as of `LocalExecutor`.

    Raises:
        OSError: the folder cannot be made.
    """
    runs: list[ProfileRun] = []
    place = quote(f"{subject.model} on {subject.machine.type}", safe=" ")
    units = subject.gpus if len(subject.machine.devices) > 1 else 1
    busy = watch.watch(subject.machine.devices[:units])
    wanted = settings.repeats
    while len(runs) < wanted:
        where = folder / f"{place} x{subject.gpus}" / f"run {len(runs) + 1}"
        executor = LocalExecutor((subject.machine,), where, settings.grace, wake)
        with contextlib.closing(executor):
            run = _run(executor, subject, settings, where, watch, stops)
        if run is None:
            return None
        if run.problem:
            return Measurement(subject, problem=run.problem)
        if not runs and run.steady is None:
            wanted += settings.warmup_runs
        runs.append(run)
    measured = summary(subject, runs[len(runs) - settings.repeats :])
    if busy:
        note = f"shared with process {', '.join(map(str, busy))}"
        measured = replace(measured, notes=(*measured.notes, note))
    return measured


def _run(
    executor: LocalExecutor,
    subject: Subject,
    settings: Settings,
    folder: Path,
    watch: ClockWatch,
    stops: Callable[[], int],
) -> ProfileRun | None:
    progress = folder / "progress"
    progress.unlink(missing_ok=True)
    attempt = _attempt(subject, progress, settings.limit)
    watch.slowdown()  # forget what was before
    started = executor.start(attempt)
    source = progress if settings.pattern is None else _log(folder)
    reader = ProgressReader(source, settings.pattern)
    asked, next_clock = 0, 0.0
    while True:
        ended = executor.poll(executor.now() + LOOK_SECONDS)
        now = executor.now() - started
        reader.read(now)
        if now >= next_clock and not asked:
            watch.look()
            next_clock = now + CLOCK_SECONDS
        if ended:
            return None if stops() else _judge(ended[0], reader, settings, watch, asked > 0)
        if stops() > asked:
            executor.stop(attempt.job, grace=None if stops() == 1 else 0.0)
            asked = stops()
        elif not asked and _enough(reader, settings, now):
            executor.stop(attempt.job)
            asked = 1


def _attempt(subject: Subject, progress: Path, limit: float) -> Attempt:
    attempt = subject.job.attempt(subject.mode, 1)
    env = {
        "PYTHONUNBUFFERED": "1",  # else a Python job's lines come thousands of bytes at a time
        **attempt.env,
        "HETSCHED_PROFILE": "1",
        "HETSCHED_PROGRESS": os.fspath(progress.absolute()),
    }
    return replace(attempt, env=env, timeout=limit, expected=None)


def _log(folder: Path) -> Path:
    """The output of the only attempt in a folder."""
    return next(folder.glob("*.log"), folder / "none.log")


def _enough(reader: ProgressReader, settings: Settings, now: float) -> bool:
    if not reader.reports:
        return False
    end = reader.reports[0].time + settings.warmup + settings.seconds
    return now >= end and len(after_warmup(reader.reports, settings.warmup)) >= ENOUGH_REPORTS


def _judge(
    outcome: Outcome, reader: ProgressReader, settings: Settings, watch: ClockWatch, stopped: bool
) -> ProfileRun:
    """What a run that has ended is worth."""
    found = steady(reader.reports, settings.warmup)
    if found is None:  # a short job; its first report must do as warm-up
        found = steady(reader.reports, 1e-9)
    slowdown = watch.slowdown()
    whole = outcome.status == "done"
    if not (whole or stopped or (outcome.status == "timeout" and found is not None)):
        if outcome.status == "timeout":
            problem = (
                f"it neither ended nor reported progress often enough within {settings.limit:g} s"
            )
        else:
            problem = outcome.reason or outcome.status
        return ProfileRun(outcome.seconds, found, slowdown, problem)
    return ProfileRun(outcome.seconds, found, slowdown)


def summary(subject: Subject, runs: list[ProfileRun]) -> Measurement:
    """Medians and spread of runs: of those that reported progress, if any did."""
    parts = [run.steady for run in runs if run.steady is not None]
    notes: list[str] = []
    slowdown = sorted(set().union(*(run.slowdown for run in runs)))
    if slowdown:
        notes.append(f"clocks held down: {', '.join(slowdown)}")
    if parts:
        speeds = [part.speed for part in parts]
        spread = spread_of([speed for part in parts for speed in part.blocks])
        startup = statistics.median(part.startup for part in parts)
        seconds = None
    else:
        lengths = [run.seconds for run in runs]
        seconds, startup = statistics.median(lengths), 0.0
        speeds = [(subject.steps or 1.0) / length for length in lengths]
        spread = spread_of(lengths)
        notes.append("whole runs, start-up included" if subject.steps else "whole runs")
    speed = statistics.median(speeds)
    apart = (max(speeds) - min(speeds)) / speed
    if spread > VARIES:
        notes.append(f"varies by {spread:.0%}")
    if apart > VARIES:
        notes.append(f"runs differ by {apart:.0%}")
    return Measurement(subject, tuple(runs), speed, startup, seconds, spread, tuple(notes))
