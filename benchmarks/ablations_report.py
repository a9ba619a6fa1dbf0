"""What ``benchmarks/ablations.py`` found: curves of runs, a table, a picture."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hetsched.agents.metrics import read_curves

RATIO = "validation/ratio_to_rule"
COLUMNS = 5
LINEAR = 2.0  # percent


@dataclass(frozen=True)
class Curve:
    """One run.

    Attributes:
        variant, seed: whose.
        budget: decisions that the run was given.
        decisions, cpu_seconds, ratio: by validation; ratio is to the best rule.
    """

    variant: str
    seed: int
    budget: int
    decisions: list[int]
    cpu_seconds: list[float]
    ratio: list[float]

    @property
    def best(self) -> float:
        return min(self.ratio)


def read_curve(folder: Path, variant: str, seed: int, budget: int) -> Curve:
    """From ``metrics.csv`` and ``cpu_seconds.csv`` of a run folder."""
    steps, ratio = read_curves(folder / "metrics.csv")[RATIO]
    with (folder / "cpu_seconds.csv").open(encoding="utf-8") as rows:
        clock = {0: 0.0} | {int(step): float(seconds) for step, seconds in csv.reader(rows)}
    known = sorted(clock)
    # A validation at the end of a stage may lie between two rounds.
    seconds = np.interp(steps, known, [clock[step] for step in known])
    return Curve(
        variant=variant,
        seed=seed,
        budget=budget,
        decisions=steps,
        cpu_seconds=[float(f"{one:.4g}") for one in seconds],
        ratio=[float(f"{one:.5g}") for one in ratio],
    )


def as_json(curves: Sequence[Curve]) -> str:
    """One run a line, so that differences can be read."""
    ordered = sorted(curves, key=lambda one: (one.variant, one.seed, one.budget))
    rows = ",\n".join(json.dumps(asdict(one)) for one in ordered)
    return f'{{"curves": [\n{rows}\n]}}\n'


@dataclass(frozen=True)
class Row:
    """A variant: means over trainings of the last validation, of the best one, of CPU seconds.

    The last one ranks: the best is the least of more numbers where more was validated.
    """

    variant: str
    last: float
    spread: float
    best: float
    cpu_seconds: float
    trainings: int


def rows(curves: Sequence[Curve]) -> list[Row]:
    """By variant, in the order of the last validation."""
    groups: dict[str, list[Curve]] = {}
    for one in curves:
        groups.setdefault(one.variant, []).append(one)
    found = [
        Row(
            variant=name,
            last=float(np.mean([one.ratio[-1] for one in some])),
            spread=float(np.std([one.ratio[-1] for one in some], ddof=1))
            if len(some) > 1
            else np.nan,
            best=float(np.mean([one.best for one in some])),
            cpu_seconds=float(np.mean([one.cpu_seconds[-1] for one in some])),
            trainings=len(some),
        )
        for name, some in groups.items()
    ]
    return sorted(found, key=lambda row: row.last)


def table(curves: Sequence[Curve], says: Mapping[str, str]) -> str:
    """For a terminal."""
    form = "{:30} {:>7} {:>7} {:>7} {:>7} {:>3}  {}"
    lines = [form.format("variant", "last", "±", "best", "CPU s", "n", "")]
    for row in rows(curves):
        spread = "-" if np.isnan(row.spread) else f"{row.spread:.4f}"
        numbers = (f"{row.last:.4f}", spread, f"{row.best:.4f}", f"{row.cpu_seconds:.0f}")
        lines.append(form.format(row.variant, *numbers, row.trainings, says.get(row.variant, "")))
    lines.append("validation cost over that of the best rule at the end; ±: between trainings")
    return "\n".join(lines)


def draw(curves: Sequence[Curve], path: Path) -> None:
    """Each variant beside the base, against decisions; the last panel against CPU seconds.

    Heights are percent above the best validation of all, linear below ``LINEAR``.
    """
    from matplotlib.figure import Figure

    names = [row.variant for row in rows(curves) if row.variant != "base"]
    base = [one for one in curves if one.variant == "base"]
    columns = min(COLUMNS, len(names) + 1)
    lines = -(-(len(names) + 1) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.8 * lines + 0.6), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, sharey=True).flatten()
    for axis in axes[len(names) + 1 :]:
        axis.set_visible(False)
    best = min(one.best for one in curves)
    for axis, name in zip(axes, names, strict=False):
        some = [one for one in curves if one.variant == name]
        _band(axis, base, best, "#969696", "base")
        _band(axis, some, best, "#762a83", name)
        axis.set_title(f"{name} ({len(some)} trainings)", fontsize=9)
        axis.legend(fontsize=7)
    last = axes[len(names)]
    for row in rows(curves):
        height, spread = _percent(row.last, best), 100 * np.nan_to_num(row.spread) / best
        last.errorbar(row.cpu_seconds, height, yerr=spread, fmt="o", capsize=2)
        label = last.annotate(
            row.variant, (row.cpu_seconds, height), (4, 2),
            textcoords="offset points", fontsize=6,
        )  # fmt: skip
        label.set_in_layout(False)
    last.margins(x=0.25)
    last.set_title("last against CPU seconds of the run", fontsize=9)
    for axis in axes[: len(names) + 1]:
        axis.grid(alpha=0.3)
        axis.tick_params(labelsize=8)
        axis.set_yscale("symlog", linthresh=LINEAR)
        axis.set_ylim(-0.2, 200)
        axis.yaxis.set_major_formatter("{x:g}")
    for axis in axes[: len(names)]:
        axis.xaxis.set_major_formatter(lambda steps, _: f"{steps / 1000:g}k")
    figure.supxlabel("decisions (last panel: CPU seconds)")
    figure.supylabel(f"% above the best validation of all ({best:.4f} of the best rule's cost)")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    figure.savefig(partial, format="png", dpi=110)
    partial.replace(path)


def _percent(ratio: Any, best: float) -> Any:
    return 100 * (np.asarray(ratio) / best - 1)


def _band(axis: Any, curves: Sequence[Curve], best: float, colour: str, label: str) -> None:
    """Mean over trainings and all of them behind it; validations fall together but for the last."""
    if not curves:
        return
    for one in curves:
        axis.plot(one.decisions, _percent(one.ratio, best), color=colour, alpha=0.3, linewidth=0.8)
    steps = curves[0].decisions
    mean = np.mean([np.interp(steps, one.decisions, one.ratio) for one in curves], axis=0)
    axis.plot(steps, _percent(mean, best), color=colour, linewidth=1.8, label=label)
