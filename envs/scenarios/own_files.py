"""Reading one's own cluster: measured speeds, jobs and machines from CSV files."""

from __future__ import annotations

import csv
import difflib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


@dataclass(frozen=True)
class Speed:
    """``speed`` units of work per second of a model on ``gpus`` units of one machine.

    ``startup`` are the seconds that a run takes besides.
    """

    model: str
    machine: str
    speed: float
    gpus: int
    startup: float = 0.0

    def seconds(self, work: float) -> float:
        """How long a run of so much work takes."""
        return self.startup + work / self.speed


@dataclass(frozen=True)
class Job:
    """``work`` in the unit of the model's speeds; times in seconds, infinite due: none.

    ``gpus`` is 0 where any measured number will do.
    """

    name: str
    model: str
    work: float
    arrival: float
    due: float
    weight: float
    gpus: int


@dataclass(frozen=True)
class Machines:
    """``count`` machines of one type with ``capacity`` units each."""

    machine: str
    count: int
    capacity: int


class Row:
    """One line of a CSV file, whose errors name file, line and column."""

    def __init__(self, path: Path, line: int, values: dict[str, str]) -> None:
        self.path, self.line, self.values = path, line, values

    def error(self, column: str, what: str) -> ValueError:
        return ValueError(f"{self.path}, line {self.line}, column {column}: {what}")

    def text(self, column: str) -> str:
        value = self.values.get(column, "")
        if not value:
            raise self.error(column, "is empty, give a value")
        return value

    def number(self, column: str, default: float | None = None, above: bool = False) -> float:
        """A finite number of at least 0, or above 0 with ``above``; empty gives the default."""
        text = self.values.get(column, "")
        if not text and default is not None:
            return default
        if not text:
            raise self.error(column, "is empty, give a number")
        try:
            value = float(text)
        except ValueError as error:
            raise self.error(column, f"{text!r} is not a number") from error
        if not math.isfinite(value) or value < 0 or (above and value == 0):
            want = "above 0" if above else "of at least 0"
            raise self.error(column, f"must be a finite number {want}, got {text}")
        return value

    def whole(self, column: str, default: int) -> int:
        """A whole number of at least 1; empty gives the default."""
        value = self.number(column, default, above=True)
        if value != int(value):
            raise self.error(column, f"must be a whole number, got {self.values[column]}")
        return int(value)


def read_rows(path: Path, needed: Collection[str], optional: Collection[str]) -> Iterator[Row]:
    """The rows of a CSV file with a header line.

    Raises:
        ValueError: a missing file, a column missing or unknown, a row too long or too short.
    """
    try:
        # utf-8-sig: spreadsheets like to write a byte-order mark.
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise ValueError(f"cannot read {path}: {reason}") from error
    reader = csv.reader(text.splitlines())
    header = [name.strip() for name in next(reader, [])]
    known = [*needed, *optional]
    for name in needed:
        if name not in header:
            raise ValueError(f"{path}, line 1: column {name!r} is missing, got {', '.join(header)}")
    for name in header:
        if name not in known or header.count(name) > 1:
            what = "occurs twice" if name in known else f"is unknown; known: {', '.join(known)}"
            raise ValueError(f"{path}, line 1: column {name!r} {what}")
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        row = Row(path, reader.line_num, dict(zip(header, map(str.strip, cells), strict=False)))
        if len(cells) != len(header):
            where = header[min(len(cells), len(header) - 1)]
            raise row.error(where, f"has {len(cells)} values for {len(header)} columns")
        yield row


# What profiling writes besides, for people.
REMARKS = ("spread", "runs", "note")


def read_speeds(path: Path) -> list[Speed]:
    """Columns ``model``, ``machine``, ``speed``; optional ``gpus`` (units taken, default 1).

    Optional too: ``startup`` (seconds, default 0); the columns of ``REMARKS`` are not read.

    Raises:
        ValueError: naming file, line and column.
    """
    speeds: list[Speed] = []
    seen: dict[tuple[str, str, int], int] = {}
    optional = ("gpus", "startup", *REMARKS)
    for row in read_rows(path, ("model", "machine", "speed"), optional):
        model, machine, gpus = row.text("model"), row.text("machine"), row.whole("gpus", 1)
        if row.values.get("speed") in ("0", "0.0"):
            raise row.error("speed", "is 0; leave the row out where the model does not fit")
        speed = row.number("speed", above=True)
        first = seen.setdefault((model, machine, gpus), row.line)
        if first != row.line:
            raise row.error("model", f"{model!r} on {machine!r} was given in line {first}")
        speeds.append(Speed(model, machine, speed, gpus, row.number("startup", 0.0)))
    if not speeds:
        raise ValueError(f"{path} has no rows, give one per model and machine type")
    return speeds


def read_jobs(path: Path, speeds: list[Speed], machines: list[Machines]) -> list[Job]:
    """Columns ``name``, ``model``, ``work``; optional ``arrival``, ``due``, ``weight``, ``gpus``.

    Raises:
        ValueError: naming file, line and column; also a job that no machine here can run.
    """
    jobs: list[Job] = []
    models = {speed.model for speed in speeds}
    capacity = {group.machine: group.capacity for group in machines}
    optional = ("arrival", "due", "weight", "gpus")
    for row in read_rows(path, ("name", "model", "work"), optional):
        job = Job(
            name=row.text("name"),
            model=row.text("model"),
            work=row.number("work", above=True),
            arrival=row.number("arrival", 0.0),
            due=row.number("due", math.inf),
            weight=row.number("weight", 1.0),
            gpus=row.whole("gpus", 1) if row.values.get("gpus") else 0,
        )
        if job.model not in models:
            near = difflib.get_close_matches(job.model, sorted(models), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "measure it or leave the job out"
            raise row.error("model", f"{job.model!r} has no measured speed; {hint}")
        if not any(fits(job, speed, capacity) for speed in speeds):
            column = "gpus" if job.gpus else "model"
            raise row.error(column, f"no machine of this cluster can run job {job.name!r}")
        jobs.append(job)
    if not jobs:
        raise ValueError(f"{path} has no rows, give one per job")
    return jobs


def fits(job: Job, speed: Speed, capacity: dict[str, int]) -> bool:
    """Whether the job can run at this measured speed on a machine type of the cluster."""
    right = speed.model == job.model and job.gpus in (0, speed.gpus)
    return right and speed.gpus <= capacity.get(speed.machine, 0)


def read_machines(spec: str, speeds: list[Speed]) -> list[Machines]:
    """``v100*2+k80*4``, or a CSV file with columns ``machine``, ``count``; optional ``capacity``.

    Raises:
        ValueError: a count that is no whole number above 0, a type without a measured speed or
            given twice.
    """
    groups: list[Machines] = []
    measured = sorted({speed.machine for speed in speeds})
    if spec.endswith(".csv"):
        for row in read_rows(Path(spec), ("machine", "count"), ("capacity",)):
            machine = row.text("machine")
            row.text("count")
            if machine not in measured:
                raise row.error("machine", _unmeasured(machine, measured))
            if any(group.machine == machine for group in groups):
                raise row.error("machine", f"{machine!r} is given twice, add the counts")
            groups.append(Machines(machine, row.whole("count", 1), row.whole("capacity", 1)))
    else:
        for part in spec.split("+"):
            machine, star, count = (piece.strip() for piece in part.partition("*"))
            if (star and not count.isdecimal()) or count == "0" or not machine:
                raise ValueError(f"machines: {part!r} must read TYPE*COUNT, like v100*2")
            if machine not in measured:
                raise ValueError(f"machines: {_unmeasured(machine, measured)}")
            if any(group.machine == machine for group in groups):
                raise ValueError(f"machines: {machine!r} is given twice, add the counts")
            groups.append(Machines(machine, int(count or 1), 1))
    if not groups:
        raise ValueError(f"{spec} has no rows, give one per machine type")
    return groups


def _unmeasured(machine: str, measured: list[str]) -> str:
    return f"{machine!r} has no measured speed; measured: {', '.join(measured)}"
