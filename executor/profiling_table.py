"""The table of speeds that profiling writes and that training and queues read.

It is the CSV of the scenario ``own`` (``model,machine,speed[,gpus][,startup]``) with columns for
people: ``spread`` (interquartile range over median), ``runs`` and ``note``.
"""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.envs.scenarios.own_files import read_rows, read_speeds

if TYPE_CHECKING:
    from hetsched.executor.estimates import Estimates

DIGITS = 6


@dataclass(frozen=True)
class SpeedRow:
    """A line of the table; the fields are its columns.

    Args:
        model, machine: names; the machine's is a type.
        speed: units of work per second, above 0.
        gpus: units of one machine that this takes.
        startup: seconds that a run takes besides.
        spread, runs, note: remarks; empty where not known.
    """

    model: str
    machine: str
    speed: float
    gpus: int = 1
    startup: float = 0.0
    spread: str = ""
    runs: str = ""
    note: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """What a table has at most one row of."""
        return self.model, self.machine, self.gpus


def read_table(path: str | Path) -> list[SpeedRow]:
    """The rows of a table; an absent file has none.

    Raises:
        ValueError: naming file, line and column.
    """
    path = Path(path)
    if not path.exists():
        return []
    speeds = read_speeds(path)  # checks the rows
    rows = read_rows(path, ("model", "machine", "speed"), [one.name for one in fields(SpeedRow)])
    remarks = ("spread", "runs", "note")
    return [
        SpeedRow(
            speed.model,
            speed.machine,
            speed.speed,
            speed.gpus,
            speed.startup,
            *(row.values.get(name, "") for name in remarks),
        )
        for speed, row in zip(speeds, rows, strict=True)
    ]


def merged(old: Iterable[SpeedRow], new: Iterable[SpeedRow]) -> list[SpeedRow]:
    """The old rows, each replaced by the new one of its key, and the other new ones at the end."""
    rows = {row.key: row for row in old}
    rows.update({row.key: row for row in new})  # an old key keeps its place
    return list(rows.values())


def write_table(path: str | Path, rows: Sequence[SpeedRow]) -> None:
    """Write a table; an interruption leaves the old file.

    Raises:
        OSError: it cannot be written.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, [one.name for one in fields(SpeedRow)], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        numbers = {name: f"{getattr(row, name):.{DIGITS}g}" for name in ("speed", "startup")}
        writer.writerow(asdict(row) | numbers)
    path = Path(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text.getvalue(), encoding="utf-8")
    draft.replace(path)


def corrected(rows: Sequence[SpeedRow], estimates: Estimates) -> list[SpeedRow]:
    """The rows as completed runs show them; the estimates forget the runs that they give away.

    Every row of a model that has run is corrected, those of machines where it has not run too, by
    as much as its runs elsewhere tell of it. Without forgetting, the same runs would correct the
    new rows a second time.
    """
    here = Counter((run.model, run.machine, run.gpus) for run in estimates.runs)
    models = {model for model, _, _ in here}
    factors = {row.key: estimates.factor(*row.key) for row in rows if row.model in models}
    for key in factors:
        estimates.forget(*key)
    changed = []
    for row in rows:
        factor = factors.get(row.key)
        if factor is None:
            changed.append(row)
            continue
        why = f"{here[row.key]} completed runs" if here[row.key] else "runs on other machines"
        note = f"corrected by {factor:.3g} after {why}"
        speed, startup = row.speed / factor, row.startup * factor
        changed.append(replace(row, speed=speed, startup=startup, note=note))
    return changed
