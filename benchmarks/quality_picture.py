"""The picture of ``benchmarks/quality.py``: how far above the reference, against time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hetsched.benchmarks.quality_tables import Panel, Point

FAMILIES = (  # first match: pattern of the name, label, colour, whether the points are a line
    (r"^learned\+search", "policy + search", "#1b7837", True),
    (r"^learned\+cp-sat", "policy + CP-SAT", "#7fbf7b", True),
    (r"^learned.*\+beam", "policy: 16, 64 different", "#e7298a", True),
    (r"^learned", "policy: greedy, best of 16, of 64", "#762a83", True),
    (r"^annealing", "annealing", "#e08214", True),
    (r"^cp-sat", "CP-SAT", "#2166ac", True),
    (r"\+search", "rule + search", "#dfc27d", True),
    (r"\+cp-sat", "rule + CP-SAT", "#92c5de", True),
    (r"\+beam", "a rule: 16, 64 different", "#fbb4d2", True),
    (r"-grid", "rules over a grid", "#b2182b", False),
    (r"@", "a rule: best of 16, of 64", "#f4a582", True),
    (r"", "rules", "#969696", False),
)
OTHER_COLOURS = ("#c51b7d", "#8c510a", "#01665e", "#000000")  # policies that do not ship
COLUMNS = 5
LINEAR = 0.1  # percent: below, the axis is linear, so that zero and less have a place
PUBLISHED = "published_network"


def draw(panels: Sequence[Panel], path: Path) -> None:
    """One panel per set."""
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(max(7, 3.6 * columns), 3.2 * lines + 1.2), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).flatten()
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    others = sorted({_base(one.name) for each in panels for one in each.points if one.trainings})
    colours = dict(zip(others, OTHER_COLOURS * len(others), strict=False))
    handles: dict[str, Any] = {}
    for axis, shown in zip(axes, panels, strict=False):
        _draw_panel(axis, shown, colours, handles)
    figure.supxlabel("seconds per instance, decided alone")
    figure.supylabel("% above the reference of the set")
    order = [label for _, label, _, _ in FAMILIES if label in handles]
    order += [label for label in handles if label not in order]
    figure.legend(
        [handles[label] for label in order],
        order,
        loc="outside upper center",
        ncols=max(2, min(len(order), columns + 1)),
        fontsize=9,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    figure.savefig(partial, format="png", dpi=110)
    partial.replace(path)


def _draw_panel(axis: Any, shown: Panel, colours: dict[str, str], handles: dict[str, Any]) -> None:
    groups: dict[tuple[str, str, bool], list[Point]] = {}
    for one in shown.points:
        if not np.isnan(one.ratio):
            groups.setdefault(_family(one, colours), []).append(one)
    for (label, colour, joined), points in groups.items():
        points.sort(key=lambda point: point.seconds)
        handles[label] = axis.errorbar(
            [one.seconds for one in points],
            [100 * (one.ratio - 1) for one in points],
            yerr=[100 * np.nan_to_num(_spread(one)) for one in points],
            fmt="o-" if joined else "o",
            color=colour,
            markersize=4,
            linewidth=1.4,
            elinewidth=0.8,
            capsize=2,
        )
        for one in points if label == "rules" else ():
            place = one.seconds, 100 * (one.ratio - 1)
            axis.annotate(
                one.name.partition(":")[0],
                place,
                (4, 2),
                textcoords="offset points",
                fontsize=6,
                color=colour,
            )
    for name, label, style in (
        (PUBLISHED, "published network (not timed)", ":"),
        (f"{PUBLISHED}_exact_tail", "the same, last decisions exact", "--"),
    ):
        if name in shown.others:
            height = 100 * (shown.others[name] - 1)
            handles[label] = axis.axhline(height, color="black", linestyle=style, linewidth=1)
    axis.set_title(f"{shown.bench.name}  (0 = {shown.base})", fontsize=9)
    axis.set_xscale("log")
    axis.set_yscale("symlog", linthresh=LINEAR)
    heights = [100 * (one.ratio - 1) for one in shown.points if not np.isnan(one.ratio)]
    axis.set_ylim(bottom=min([-LINEAR / 2, *(1.5 * height for height in heights)]))
    axis.axhline(0, color="black", linewidth=0.5)
    axis.yaxis.set_major_formatter("{x:g}")
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)


def _family(one: Point, colours: dict[str, str]) -> tuple[str, str, bool]:
    if one.trainings:
        base = _base(one.name)
        return base, colours[base], True
    label, colour, joined = next(
        (label, colour, joined)
        for pattern, label, colour, joined in FAMILIES
        if re.search(pattern, one.name)
    )
    return label, colour, joined


def _base(name: str) -> str:
    """Of a policy beside the one that ships: without the number of samples."""
    return name.partition("@")[0]


def _spread(one: Point) -> float:
    """Half the length of an error bar: over instances, or between trainings where that is more."""
    return float(np.fmax(one.error, one.between))
