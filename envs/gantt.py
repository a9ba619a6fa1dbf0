"""Gantt charts: a picture for a paper or a page, and a page to hover over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.envs.gantt_layout import (
    GREY,
    LATE,
    LATE_HEIGHT,
    Layout,
    is_dark,
    make_layout,
    short_labels,
)
from hetsched.envs.gantt_page import make_page

if TYPE_CHECKING:
    from matplotlib.artist import Artist

    from hetsched.envs.checks import FloatArray
    from hetsched.envs.instance import Instance
    from hetsched.envs.schedule import Schedule

GAP = 0.08  # between a bar and the edge of its row, in rows


def draw_png(
    schedule: Schedule,
    instance: Instance,
    path: str | Path,
    title: str = "Schedule",
    planned: FloatArray | None = None,
) -> None:
    """Draw a schedule as PNG.

    Bars are coloured by family of jobs (names that differ only in their final number) or by job;
    set-ups are hatched, the initial occupation is grey, late jobs are underlined in red.  A machine
    with several units has one lane per unit.

    Args:
        schedule: need not be feasible; unscheduled jobs are left out and counted.
        instance: the problem that the schedule is for.
        path: of the file to write.
        title: above the chart.
        planned: (jobs,) time at which each job should have ended, drawn as an outline from its
            start; nan: not known.

    Raises:
        ValueError: the schedule, or `planned`, has another number of jobs.
        OSError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    layout = make_layout(schedule, instance, planned)
    rows = float(layout.tops[-1])
    size = (12.0, 1.7 + min(0.42 * rows, 40.0))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _draw_bars(axes, layout, instance, inches_per_time=10.5 / (layout.last - layout.first))
    axes.set_xlim(layout.first, layout.last + 0.01 * (layout.last - layout.first))
    axes.set_ylim(rows, 0.0)
    middles = (layout.tops[1:] + layout.tops[:-1]) / 2
    crowded = rows > 100  # names would overlap
    axes.set_yticks(
        [] if crowded else middles,
        [] if crowded else instance.machine_names,
        parse_math=False,  # a dollar sign would start a formula
    )
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("time")
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.8)
    for edge in layout.tops[1:-1]:
        axes.axhline(edge, color="#e6e6e6", linewidth=0.8, zorder=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_title(title, loc="left", pad=22, fontsize=13, weight="bold", parse_math=False)
    axes.annotate(
        layout.summary,
        xy=(0, 1),
        xytext=(0, 7),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=9,
        color="#666666",
    )
    _draw_legend(figure, layout, instance)
    figure.savefig(path, format="png", dpi=150)


def _draw_bars(axes: Any, layout: Layout, instance: Instance, inches_per_time: float) -> None:
    from matplotlib.patches import Rectangle

    # The limits are set elsewhere: add_patch would work them out once per bar.
    for machine, available in enumerate(instance.machine_available):
        top, bottom = layout.tops[machine] + GAP, layout.tops[machine + 1] - GAP
        if available > 0:
            axes.add_artist(Rectangle((0, top), available, bottom - top, color=GREY, linewidth=0))
    for bar in layout.bars:
        colour, duration = layout.colours[bar.job], bar.end - bar.start
        gap = min(GAP, 0.15 * (bar.high - bar.low))
        low, height = bar.low + gap, bar.high - bar.low - 2 * gap
        if bar.setup > 0:
            before = Rectangle((bar.start - bar.setup, low), bar.setup, height, linewidth=0)
            before.set(facecolor="white", edgecolor=colour, hatch="//////")
            axes.add_artist(before)
        block = Rectangle((bar.start, low), duration, height, facecolor=colour)
        block.set(edgecolor="white", linewidth=0.7)
        axes.add_artist(block)
        if layout.tardiness[bar.job] > 0:
            stripe = min(LATE_HEIGHT, 0.2 * height)
            corner = (bar.start, low + height - stripe)
            axes.add_artist(Rectangle(corner, duration, stripe, facecolor=LATE, linewidth=0))
        if layout.planned is not None and np.isfinite(layout.planned[bar.job]):
            plan = Rectangle((bar.start, low), layout.planned[bar.job] - bar.start, height)
            plan.set(fill=False, edgecolor="#222222", linewidth=1.1, linestyle=(0, (3, 2)))
            axes.add_artist(plan)
        room = duration * inches_per_time / 0.075  # characters at this font size
        fitting = [one for one in short_labels(instance.job_names[bar.job]) if len(one) <= room]
        if fitting and bar.high - bar.low > 0.4:
            axes.text(
                (bar.start + bar.end) / 2,
                (bar.low + bar.high) / 2,
                fitting[0],
                ha="center",
                va="center",
                fontsize=7.5,
                clip_on=True,
                in_layout=False,  # it lies inside the axes; measuring it takes long
                parse_math=False,
                color="white" if is_dark(colour) else "#222222",
            )


def _draw_legend(figure: Any, layout: Layout, instance: Instance) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    # matplotlib leaves out labels that start with an underscore.
    entries: list[Artist] = [
        Patch(facecolor=colour, label=f" {label}") for label, colour in layout.legend
    ]
    if any(bar.setup > 0 for bar in layout.bars):
        entries.append(
            Patch(facecolor="white", edgecolor="#888888", hatch="//////", label="set-up")
        )
    if layout.planned is not None and np.isfinite(layout.planned).any():
        dashed = Patch(facecolor="none", edgecolor="#222222", linestyle=(0, (3, 2)))
        dashed.set_label("planned")
        entries.append(dashed)
    if (instance.machine_available > 0).any():
        entries.append(Patch(facecolor=GREY, label="initial occupation"))
    if (layout.tardiness > 0).any():
        entries.append(Line2D([], [], color=LATE, linewidth=3, label="late"))
    if entries:
        columns = min(len(entries), 6)
        legend = figure.legend(
            handles=entries, loc="outside lower center", ncols=columns, frameon=False, fontsize=9
        )
        for text in legend.get_texts():
            text.set_parse_math(False)


def draw_html(
    schedule: Schedule,
    instance: Instance,
    path: str | Path,
    title: str = "Schedule",
    planned: FloatArray | None = None,
) -> None:
    """Draw a schedule as one HTML page that needs no network.

    A pointer over a bar shows job, machine, start, end, duration, weight and tardiness.  Colours
    and marks are those of `draw_png`.

    Args:
        schedule: need not be feasible; unscheduled jobs are left out and counted.
        instance: the problem that the schedule is for.
        path: of the file to write.
        title: above the chart.
        planned: (jobs,) time at which each job should have ended, drawn as an outline from its
            start; nan: not known.

    Raises:
        ValueError: the schedule, or `planned`, has another number of jobs.
        OSError: the file cannot be written.
    """
    layout = make_layout(schedule, instance, planned)
    page = make_page(layout, instance, title)
    # A lone surrogate in a name cannot be UTF-8.
    Path(path).write_bytes(page.encode("utf-8", errors="xmlcharrefreplace"))
