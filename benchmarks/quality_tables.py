"""Tables of ``benchmarks/quality.py``: mean cost over the reference of the set, and its spread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hetsched.benchmarks.quality_results import Result, read
from hetsched.benchmarks.quality_sets import Bench, base_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetsched.envs.files import InstanceSet


@dataclass(frozen=True)
class Point:
    """A contender on a set.

    Attributes:
        name: of the contender.
        ratio: mean of cost / reference; of several training seeds, the mean over them all.
        error: its standard error over instances.
        between: standard deviation between training seeds; NaN where there is but one.
        trainings: how many; 0 where the contender was not trained, or is the policy that ships.
        seconds: mean per instance, decided one by one.
        batched: mean per instance in one batch; NaN where that makes no sense.
        count: instances.
    """

    name: str
    ratio: float
    error: float
    between: float
    trainings: int
    seconds: float
    batched: float
    count: int


@dataclass(frozen=True)
class Panel:
    """A set, what was measured on it, and the mean ratios of its other references."""

    bench: Bench
    base: str
    points: tuple[Point, ...]
    others: dict[str, float]


def panel(
    bench: Bench, some: InstanceSet, results: Path, shipped: str | None, threads: int = 1
) -> Panel:
    """What is kept of a set, best first.

    Args:
        shipped: fingerprint of the policy that ships; what an earlier one did is left out.
        threads: what was measured with another number of them is left out.
    """
    name = base_of(some)
    base = some.references[name].astype(float)
    groups: dict[str, list[Result]] = defaultdict(list)
    for path in sorted((results / bench.name).glob("*.json")):
        one = read(path)
        if one is None or not one.count or one.threads != threads:
            continue
        if one.checkpoint and one.seed is None and one.checkpoint != shipped:
            continue
        groups[one.contender].append(one)
    points = [_point(contender, group, base) for contender, group in groups.items()]
    points.sort(key=lambda point: (np.isnan(point.ratio), point.ratio))
    others = {
        other: float((costs / base).mean())
        for other, costs in some.references.items()
        if costs.dtype.kind != "b" and other != name
    }
    return Panel(bench, name, tuple(points), others)


def _point(contender: str, group: Sequence[Result], base: NDArray[np.float64]) -> Point:
    count = min(min(one.count for one in group), len(base))
    ratios = np.stack([_costs(one)[:count] / base[:count] for one in group])  # (seeds, instances)
    by_instance, by_seed = ratios.mean(0), ratios.mean(1)
    batched = [np.nan if one.batched_seconds is None else one.batched_seconds for one in group]
    return Point(
        name=contender,
        ratio=float(ratios.mean()),
        error=float(by_instance.std(ddof=1) / np.sqrt(count)) if count > 1 else np.nan,
        between=float(by_seed.std(ddof=1)) if len(group) > 1 else np.nan,
        trainings=sum(one.seed is not None for one in group),
        seconds=float(np.mean([np.mean(one.seconds[:count]) for one in group])),
        batched=float(np.mean(batched)),
        count=count,
    )


def _costs(result: Result) -> NDArray[np.float64]:
    return np.array([np.nan if one is None else one for one in result.cost])


HEADER = ("contender", "ratio", "±", "trainings", "± of those", "s alone", "s in a batch", "n")


def rows(shown: Panel) -> list[tuple[str, ...]]:
    """The cells of a table; a dash where there is no such number."""
    measured = [
        (
            *(one.name, _cell(one.ratio, ".4f"), _cell(one.error, ".4f")),
            *(str(one.trainings or "-"), _cell(one.between, ".4f")),
            *(_cell(one.seconds, ".4f"), _cell(one.batched, ".4f"), str(one.count)),
        )
        for one in shown.points
    ]
    of_file = [
        (f"{name} (file)", f"{value:.4f}", *"------") for name, value in shown.others.items()
    ]
    return measured + of_file


def _cell(value: float, form: str) -> str:
    return "-" if np.isnan(value) else format(value, form)


def text(shown: Panel) -> str:
    """For a terminal."""
    table = [HEADER, *rows(shown)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADER))]
    lines = [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]
    return "\n".join([f"{shown.bench.name}, over {shown.base}", *lines])


def markdown(panels: Sequence[Panel]) -> str:
    """All tables as a page."""
    parts = [
        "# Quality and time\n\nMade by `benchmarks/quality.py`. Ratio: mean of cost over the named "
        "reference of the set, with its standard error over instances; where several checkpoints "
        "of a kind were given, also the standard deviation between these trainings. Seconds: per "
        "instance, decided alone, and as its share of one batch.\n"
    ]
    for one in panels:
        parts.append(f"## {one.bench.name}, over `{one.base}`\n")
        table = [HEADER, ("---",) * len(HEADER), *rows(one)]
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in table) + "\n")
    return "\n".join(parts)
