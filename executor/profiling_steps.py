"""Progress that a job reports, and the steady speed in it.

A job reports by appending lines ``STEP [UNITS]`` to the file that HETSCHED_PROGRESS names: steps
done so far, and optionally units of work done so far (images, tokens), which then count instead.
Where a job cannot be changed, a pattern finds the number in its output.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BLOCKS = 10  # parts of the measured time whose speeds are compared


@dataclass(frozen=True)
class Report:
    """`done` units of work, seen `time` seconds after the start."""

    time: float
    done: float


@dataclass(frozen=True)
class Steady:
    """What a run's reports say.

    Args:
        speed: units of work per second after the warm-up.
        blocks: the speeds of its parts.
        startup: seconds that the run takes besides ``work / speed``: imports, data, first steps.
        first: seconds until the first report.
    """

    speed: float
    blocks: tuple[float, ...]
    startup: float
    first: float


def steady(reports: Sequence[Report], warmup: float) -> Steady | None:
    """The speed of a run without its first steps; None: fewer than two reports after them.

    Args:
        reports: in the order of time, `done` increasing.
        warmup: seconds after the first report that do not count.
    """
    measured = after_warmup(reports, warmup)
    if len(measured) < 2:
        return None
    begin, end = measured[0], measured[-1]
    speed = (end.done - begin.done) / (end.time - begin.time)
    # A job that goes on from a checkpoint does not begin at 0: its first report is for as many
    # units as lie between two others.
    usual = statistics.median(b.done - a.done for a, b in itertools.pairwise(reports))
    work = begin.done - reports[0].done + min(reports[0].done, usual)
    return Steady(
        speed=speed,
        blocks=_blocks(measured),
        startup=max(0.0, begin.time - work / speed),
        first=reports[0].time,
    )


def after_warmup(reports: Sequence[Report], warmup: float) -> Sequence[Report]:
    """The reports from the end of the warm-up."""
    if not reports:
        return ()
    begin = reports[0].time + warmup
    return [report for report in reports if report.time >= begin]


def _blocks(reports: Sequence[Report]) -> tuple[float, ...]:
    """Speeds of parts of equal length, as nearly as reports allow: they begin and end at some."""
    least = (reports[-1].time - reports[0].time) / BLOCKS
    speeds, begin = [], reports[0]
    for report in reports[1:]:
        if report.time - begin.time >= least * (1 - 1e-9):
            speeds.append((report.done - begin.done) / (report.time - begin.time))
            begin = report
    return tuple(speeds)


def spread_of(values: Sequence[float]) -> float:
    """The interquartile range over the median; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle


class ProgressReader:
    """Reads what a job reports while it runs.

    Args:
        path: the file that grows; it may not be there yet.
        pattern: finds the work done so far in a line of output, in the group ``done`` or the
            first; None: lines ``STEP [UNITS]``.
    """

    def __init__(self, path: Path, pattern: re.Pattern[str] | None = None) -> None:
        self._path = path
        self._pattern = pattern
        self._at = 0
        self._rest = b""
        self.reports: list[Report] = []

    def read(self, now: float) -> None:
        """Take in what was written since the last call; it counts as written now."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                new = file.read()
        except FileNotFoundError:
            return
        self._at += len(new)
        # Progress bars end their lines with a carriage return.
        *lines, self._rest = re.split(rb"[\r\n]", self._rest + new)
        values = [self._value(line.decode(errors="replace")) for line in lines]
        numbers = [value for value in values if math.isfinite(value)]
        # Of several reports that came together only the last has its time. Less than before is a
        # repetition, or the beginning of a second count.
        if numbers and numbers[-1] > (self.reports[-1].done if self.reports else -math.inf):
            self.reports.append(Report(now, numbers[-1]))

    def _value(self, line: str) -> float:
        """The work done that a line tells; NaN for a line that tells none."""
        if self._pattern is None:
            words = line.split()
            text = words[-1] if len(words) in (1, 2) else ""
        else:
            match = self._pattern.search(line)
            named = "done" in self._pattern.groupindex
            text = "" if match is None else match["done" if named else 1] or ""
        try:
            return float(text)
        except ValueError:
            return math.nan
