"""Layout of a Gantt chart: which rectangle goes where and in which colour, for any canvas."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hetsched.envs.feasibility import machine_sequence

if TYPE_CHECKING:
    from hetsched.envs.checks import BoolArray, FloatArray, IntArray
    from hetsched.envs.instance import Instance
    from hetsched.envs.schedule import Schedule

PALETTE = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#b07aa1",
    "#76b7b2",
    "#edc948",
    "#d37295",
    "#9c755f",
    "#a0cbe8",
    "#8cd17d",
)
GREY, LATE = "#c9c9c9", "#c1121f"
LATE_HEIGHT = 0.08  # of the line under a late job, in rows
MOST_FAMILIES = 8  # more would need a legend nobody reads
TALLEST_ROW = 4.0  # rows of a machine with one unit


@dataclass(frozen=True)
class Bar:
    """A rectangle: some neighbouring units of a machine, occupied by a job.

    Attributes:
        job: index of the job.
        machine: index of the machine.
        low, high: in rows from the top of the chart.
        start, end: time of processing.
        setup: time just before the start.
    """

    job: int
    machine: int
    low: float
    high: float
    start: float
    end: float
    setup: float


@dataclass(frozen=True)
class Layout:
    """Everything a canvas needs.

    Attributes:
        bars: rectangles of scheduled jobs.
        tops: (machines + 1,) top edge of each machine's row, and the bottom of the last.
        first, last: limits of the time axis.
        colours: colour of each job, as ``#rrggbb``.
        legend: (label, colour) of each family of jobs; empty where every job has its own colour.
        tardiness: (jobs,) time, 0 where on time.
        summary: a line of text below the title.
        planned: (jobs,) time at which each should have ended, nan: not known; None: of none.
    """

    bars: tuple[Bar, ...]
    tops: FloatArray
    first: float
    last: float
    colours: tuple[str, ...]
    legend: tuple[tuple[str, str], ...]
    tardiness: FloatArray
    summary: str
    planned: FloatArray | None = None


def make_layout(
    schedule: Schedule, instance: Instance, planned: FloatArray | None = None
) -> Layout:
    """Place the scheduled jobs; others are left out and counted in the summary.

    Args:
        planned: see `Layout`.

    Raises:
        ValueError: the schedule, or `planned`, has another number of jobs.
    """
    if planned is not None and planned.shape != (instance.num_jobs,):
        raise ValueError(
            f"planned has shape {planned.shape}; give a time for each of {instance.num_jobs} jobs."
        )
    machines = schedule.machines(instance)
    drawn = (machines >= 0) & np.isfinite(schedule.starts) & np.isfinite(schedule.ends)
    machines = np.where(drawn, machines, -1)
    heights = np.clip(instance.capacity * 0.5, 1.0, TALLEST_ROW)  # (M,)
    tops = np.append(0.0, np.cumsum(heights))
    bars: list[Bar] = []
    for machine in range(instance.num_machines):
        unit = heights[machine] / instance.capacity[machine]
        for job, units in _place(machine, machines, schedule, instance):
            for low, high in _runs(units):
                bars.append(
                    Bar(
                        job=job,
                        machine=machine,
                        low=float(tops[machine] + low * unit),
                        high=float(tops[machine] + high * unit),
                        start=float(schedule.starts[job]),
                        end=float(schedule.ends[job]),
                        setup=float(schedule.setups[job]),
                    )
                )
    ends = np.concatenate([schedule.ends[drawn], instance.machine_available, [0.0]])
    last = np.append(ends, [] if planned is None else planned[np.isfinite(planned)]).max()
    begins = np.concatenate([(schedule.starts - schedule.setups)[drawn], [0.0]])
    late = np.maximum(np.where(drawn, schedule.ends, 0.0) - instance.due_times, 0.0)
    colours, legend = _colours(instance.job_names)
    return Layout(
        bars=tuple(bars),
        tops=tops,
        first=float(begins.min()),
        last=float(last) or 1.0,
        colours=colours,
        legend=legend,
        tardiness=late,
        summary=_summary(instance, drawn, float(ends.max()), late),
        planned=planned,
    )


def is_dark(colour: str) -> bool:
    """Whether white text reads better than black on a colour ``#rrggbb``."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140


def short_labels(name: str) -> tuple[str, ...]:
    """What to write on a bar, longest first: the name, or the number that it ends with."""
    number = re.search(r"\d+$", name)
    return (name, number.group()) if number else (name,)


def _place(
    machine: int, machines: IntArray, schedule: Schedule, instance: Instance
) -> list[tuple[int, IntArray]]:
    """Units of the machine for each of its jobs, neighbouring ones where possible."""
    free_at = np.full(instance.capacity[machine], -np.inf)  # (U,)
    placed = []
    for job in machine_sequence(machine, machines, schedule.starts).tolist():
        demand = int(instance.demand[schedule.modes[job]])
        free = free_at <= schedule.starts[job] + 1e-9 * abs(schedule.starts[job])
        # Jobs that overlap against the rules are drawn over those that end first.
        units = np.argsort(np.where(free, -np.inf, free_at), kind="stable")[:demand]
        window = np.lib.stride_tricks.sliding_window_view(free, demand).all(axis=1)
        if window.any():
            units = np.arange(demand) + int(window.argmax())
        free_at[units] = schedule.ends[job]
        placed.append((job, np.sort(units)))
    return placed


def _runs(units: IntArray) -> list[tuple[int, int]]:
    """Neighbouring units as (first, last + 1)."""
    groups = np.split(units, np.flatnonzero(np.diff(units) > 1) + 1)
    return [(int(group[0]), int(group[-1]) + 1) for group in groups]


def _colours(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Colour by family (the name without its final number) if there are few, else by job."""
    stems = [re.sub(r"[\s_\-#.:/]*\d+$", "", name) or name for name in names]
    families = list(dict.fromkeys(stems))
    if not (1 < len(families) <= MOST_FAMILIES):
        return tuple(PALETTE[job % len(PALETTE)] for job in range(len(names))), ()
    colour = dict(zip(families, PALETTE, strict=False))
    return tuple(colour[stem] for stem in stems), tuple(colour.items())


def _summary(instance: Instance, drawn: BoolArray, last: float, late: FloatArray) -> str:
    jobs, machines = (
        f"{number} {what}{'s' * (number > 1)}"
        for number, what in ((instance.num_jobs, "job"), (instance.num_machines, "machine"))
    )
    parts = [f"{jobs} on {machines}", f"makespan {last:.6g}"]
    if np.isfinite(instance.due_times).any():
        parts.append(f"{int((late > 0).sum())} late")
    if not drawn.all():
        parts.append(f"{int((~drawn).sum())} not scheduled")
    return ", ".join(parts)
