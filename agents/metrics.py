"""Metrics of a run on disk: a CSV that survives a kill, and the learning curve as a picture."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STEP = "step"


class MetricsFile:
    """A CSV with one row per report; the first column is the step.

    Every row reaches the file before ``write`` returns.  Metrics may appear late: the file is then
    rewritten once with the wider header, and rows without the metric leave its cell empty.

    Args:
        path: its folder exists.
        resume_step: None starts anew and replaces an old file.  A number continues the file: rows
            of later steps, which the continued run will write again, and a row that a kill cut
            short are dropped.
    """

    def __init__(self, path: str | Path, resume_step: int | None = None) -> None:
        self.path = Path(path)
        self._columns: list[str] = [STEP]
        rows: list[dict[str, str]] = []
        if resume_step is not None and self.path.is_file():
            rows = [row for row in read_rows(self.path) if int(row[STEP]) <= resume_step]
            for row in rows:
                self._add_columns(row)
        self._rewrite(rows)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append one row.

        Raises:
            ValueError: a metric is called ``step``.
        """
        if STEP in values:
            raise ValueError(f"a metric cannot be called {STEP!r}; give it another name")
        if self._add_columns(values):
            self._rewrite(read_rows(self.path))
        line = _line([step, *(values.get(name, "") for name in self._columns[1:])])
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(line)

    def _add_columns(self, names: Mapping[str, object]) -> bool:
        new = [name for name in names if name not in self._columns]
        self._columns += new
        return bool(new)

    def _rewrite(self, rows: Sequence[Mapping[str, str]]) -> None:
        temporary = self.path.with_name(self.path.name + ".partial")
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(_line(self._columns))
            file.writelines(_line([row.get(name, "") for name in self._columns]) for row in rows)
        os.replace(temporary, self.path)


def _line(cells: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def read_rows(path: str | Path) -> list[dict[str, str]]:
    """The rows of a metrics file as text, without a last row that has no end of line."""
    text = Path(path).read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return [dict(row) for row in csv.DictReader(io.StringIO(whole)) if row.get(STEP)]


def read_curves(path: str | Path) -> dict[str, tuple[list[int], list[float]]]:
    """Metric -> (steps, values), from the rows in which the metric was reported."""
    curves: dict[str, tuple[list[int], list[float]]] = {}
    for row in read_rows(path):
        for name, cell in row.items():
            if name != STEP and cell:
                steps, values = curves.setdefault(name, ([], []))
                steps.append(int(row[STEP]))
                values.append(float(cell))
    return curves


def draw_learning_curve(
    csv_path: str | Path,
    png_path: str | Path,
    panels: Mapping[str, Sequence[str]],
    title: str = "",
    step_label: str = "decisions",
) -> None:
    """Draw metrics over steps, one panel below the other; the picture appears whole or not at all.

    Args:
        panels: label of the vertical axis -> names of the metrics drawn in that panel.  Metrics
            that were never reported are left out, and so is a panel without any.
    """
    from matplotlib.figure import Figure  # half a second to import; needed only here

    curves = read_curves(csv_path)
    kept = {label: [name for name in names if name in curves] for label, names in panels.items()}
    kept = {label: names for label, names in kept.items() if names}
    figure = Figure(figsize=(8, 1.0 + 2.6 * max(1, len(kept))), layout="constrained")
    axes = figure.subplots(max(1, len(kept)), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (label, names) in zip(axes, kept.items(), strict=False):
        for name in names:
            steps, values = curves[name]
            axis.plot(steps, values, marker="." if len(steps) < 40 else "", label=name)
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
        if len(names) > 1:
            axis.legend(fontsize="small")
    axes[-1].set_xlabel(step_label)
    if title:
        figure.suptitle(title)
    png_path = Path(png_path)
    temporary = png_path.with_name(png_path.name + ".partial")
    figure.savefig(temporary, format="png", dpi=120)
    os.replace(temporary, png_path)
