"""What ``benchmarks/growth.py`` found: laws of growth, a table, a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetsched.benchmarks.growth import Grown

    Kept = Mapping[tuple[str, str, str], Grown]


@dataclass(frozen=True)
class Law:
    """How the CPU time of a whole schedule grows, fitted over all schedules of a contender.

    Attributes:
        scenario, contender: whose.
        by_decisions, by_edges: exponents of a power law in one of the two alone; as sizes grow in
            both at once, neither says what would happen if only one did.
        fixed_ms: of a decision, whatever there is to see.
        per_edge_us: of a decision, for every edge of a job that is still to be seen.
        schedules: that the fits rest on.
    """

    scenario: str
    contender: str
    by_decisions: float
    by_edges: float
    fixed_ms: float
    per_edge_us: float
    schedules: int


def laws(kept: Kept) -> list[Law]:
    """One of each contender that has schedules of two sizes at least."""
    found = []
    for scenario, contender in dict.fromkeys(
        (row.scenario, row.contender) for row in kept.values()
    ):
        some = [
            row
            for row in kept.values()
            if (row.scenario, row.contender) == (scenario, contender) and row.cost
        ]
        if len(some) < 2:
            continue
        # One point a size, so that the small sizes, of which there are many, do not rule.
        seconds, decisions, edges, seen = (
            np.array([np.mean(getattr(row, name)) for row in some])
            for name in ("cpu_seconds", "decisions", "edges", "open_edges")
        )
        fixed, per_edge = affine(seen, seconds / decisions)
        found.append(
            Law(
                scenario=scenario,
                contender=contender,
                by_decisions=round(exponent(decisions, seconds), 3),
                by_edges=round(exponent(edges, seconds), 3),
                fixed_ms=float(f"{1e3 * fixed:.3g}"),
                per_edge_us=float(f"{1e6 * per_edge:.3g}"),
                schedules=sum(len(row.cost) for row in some),
            )
        )
    return found


def exponent(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """b of y = a x^b, by least squares of logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def affine(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """a and b of y = a + b x, neither below zero, by least squares of relative errors."""
    from scipy.optimize import nnls

    found, _ = nnls(np.stack([1 / y, x / y], axis=1), np.ones(len(y)))
    return float(found[0]), float(found[1])


def ratios(scenario: str, size: str, kept: Kept) -> tuple[str, dict[str, NDArray[np.float64]]]:
    """The rule with the least mean cost, and cost over its cost, by contender and instance.

    A contender that did fewer instances is compared on those.  Empty without any rule.
    """
    rows = [row for row in kept.values() if (row.scenario, row.size) == (scenario, size)]
    rows = [row for row in rows if row.cost]
    rules = [row for row in rows if not row.checkpoint]
    if not rules:
        return "", {}
    most = max(len(row.cost) for row in rules)
    best = min((row for row in rules if len(row.cost) == most), key=lambda row: np.mean(row.cost))
    base = np.array(best.cost)
    return best.contender, {
        row.contender: np.array(row.cost[: len(base)]) / base[: len(row.cost)] for row in rows
    }


def table(scenario: str, kept: Kept, found: list[Law]) -> str:
    """Cost over the best rule's, milliseconds per decision and seconds per schedule."""
    lines = [f"\n{scenario}"]
    form = "{:9} {:28} {:>8} {:>7} {:>4} {:>10} {:>11} {:>10}"
    heads = ("size", "contender", "ratio", "±", "n", "decisions", "ms/decision", "CPU s")
    lines.append(form.format(*heads))
    for size in dict.fromkeys(row.size for row in kept.values() if row.scenario == scenario):
        _, over_best = ratios(scenario, size, kept)
        for row in kept.values():
            if (row.scenario, row.size) != (scenario, size):
                continue
            if not row.cost:
                lines.append(f"{size:9} {row.contender:28} given up after {row.limit:g} CPU s")
                continue
            ratio = over_best[row.contender]
            error = ratio.std(ddof=1) / np.sqrt(len(ratio)) if len(ratio) > 1 else np.nan
            seconds, decisions = np.mean(row.cpu_seconds), np.mean(row.decisions)
            cells = (f"{ratio.mean():.4f}", f"{error:.4f}", len(ratio), f"{decisions:.0f}")
            times = (f"{1e3 * seconds / decisions:.3f}", f"{seconds:.3f}")
            lines.append(form.format(size, row.contender, *cells, *times))
    for law in found:
        if law.scenario == scenario:
            lines.append(
                f"{law.contender}: time ~ decisions^{law.by_decisions:.2f}, ~ edges^"
                f"{law.by_edges:.2f}; a decision: {law.fixed_ms:g} ms + {law.per_edge_us:g} us "
                "for every open edge"
            )
    return "\n".join(lines)


def draw(kept: Kept, found: list[Law], path: Path) -> None:
    """For each scenario, cost over the best rule's and time against decisions."""
    from matplotlib.figure import Figure

    scenarios = list(dict.fromkeys(row.scenario for row in kept.values()))
    figure = Figure(figsize=(12, 4.2 * len(scenarios)), layout="constrained")
    axes = figure.subplots(len(scenarios), 2, squeeze=False)
    for (left, right), scenario in zip(axes, scenarios, strict=True):
        _draw_costs(left, scenario, kept)
        _draw_times(right, scenario, kept, found)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    figure.savefig(partial, format="png", dpi=110)
    partial.replace(path)


def _by_contender(scenario: str, kept: Kept) -> dict[str, list[Grown]]:
    groups: dict[str, list[Grown]] = {}
    for row in kept.values():
        if row.scenario == scenario and row.cost:
            groups.setdefault(row.contender, []).append(row)
    return groups


def _style(rows: list[Grown]) -> dict[str, Any]:
    ours = bool(rows[0].checkpoint)
    return {"linewidth": 2.2 if ours else 1.0, "linestyle": "-" if ours else "--"}


def _draw_costs(axis: Any, scenario: str, kept: Kept) -> None:
    sizes = list(dict.fromkeys(row.size for row in kept.values() if row.scenario == scenario))
    over_best = {size: ratios(scenario, size, kept)[1] for size in sizes}
    for name, rows in _by_contender(scenario, kept).items():
        points = [
            (sizes.index(row.size), over_best[row.size][name])
            for row in rows
            if name in over_best[row.size]
        ]
        axis.errorbar(
            [place for place, _ in points],
            [one.mean() for _, one in points],
            yerr=[one.std(ddof=1) / np.sqrt(len(one)) if len(one) > 1 else 0 for _, one in points],
            marker="o",
            markersize=4,
            capsize=2,
            label=name,
            **_style(rows),
        )
    axis.set_xticks(range(len(sizes)), sizes)
    axis.axhline(1, color="black", linewidth=0.5)
    axis.set(
        title=f"{scenario}: trained on at most some 30 jobs",
        xlabel="jobs x machines",
        ylabel="cost over that of the best rule of the size",
    )
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)


def _draw_times(axis: Any, scenario: str, kept: Kept, found: list[Law]) -> None:
    powers = {law.contender: law.by_decisions for law in found if law.scenario == scenario}
    for name, rows in _by_contender(scenario, kept).items():
        power = f"  (power {powers[name]:.2f})" if name in powers else ""
        axis.plot(
            [np.mean(row.decisions) for row in rows],
            [np.mean(row.cpu_seconds) for row in rows],
            marker="o",
            markersize=4,
            label=name + power,
            **_style(rows),
        )
    axis.set(
        title=f"{scenario}: time of a whole schedule",
        xlabel="decisions",
        ylabel="CPU seconds, one thread",
        xscale="log",
        yscale="log",
    )
    axis.grid(alpha=0.3, which="both")
    axis.legend(fontsize=8)
