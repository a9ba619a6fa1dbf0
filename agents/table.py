"""The table of results: costs relative to a reference, with standard errors, wins and speed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hetsched.agents.evaluation import Contender, Measurement

# References of a set that are good enough to divide by, best first: proven, then long searches.
PREFERRED = ("optimum", "best_known", "annealing")
BEST_OF_RULES = "best-of-rules"
HINDSIGHT = "*"
COLUMNS = (
    *("policy", "mean cost", "ratio", "ratio error", "ratio of means", "ratio of means error"),
    *("wins", "ms per decision"),
)


@dataclass(frozen=True)
class Row:
    """One line of the table; numbers that do not exist are NaN, wins of spectators None.

    Attributes:
        policy: name of the contender or of the set's reference.
        mean_cost: over the instances.
        ratio, ratio_error: mean over the instances of cost / reference, and its standard error.
        ratio_of_means, ratio_of_means_error: mean cost / mean reference, and its standard error.
        wins: instances on which no competitor is cheaper; equals all win.
        milliseconds: per decision.
        hindsight: it knew what lay ahead.
        from_file: a reference that the set brings along; nothing was run.
    """

    policy: str
    mean_cost: float
    ratio: float
    ratio_error: float
    ratio_of_means: float
    ratio_of_means_error: float
    wins: int | None
    milliseconds: float
    hindsight: bool = False
    from_file: bool = False

    def cells(self) -> tuple[Any, ...]:
        """Values in the order of ``COLUMNS``; None where there is no number."""
        values = (
            *(self.mean_cost, self.ratio, self.ratio_error),
            *(self.ratio_of_means, self.ratio_of_means_error, self.wins, self.milliseconds),
        )
        numbers = (None if value is None or not math.isfinite(value) else value for value in values)
        return (self.policy, *numbers)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows by mean cost, the reference they are divided by, and what a reader must know.

    Attributes:
        rows: cheapest first.
        reference: name of what the ratios divide by.
        base: (instances,) float64, its costs.
        notes: sentences below the table.
    """

    rows: tuple[Row, ...]
    reference: str
    base: NDArray[np.float64]
    notes: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of instances."""
        return len(self.base)

    def text(self) -> str:
        """Aligned columns and the notes, without a newline at the end."""
        head = ("policy", "mean cost", "ratio", "±", "of means", "±", f"wins/{self.count}", "ms")
        lines = [head, *(_printed(row) for row in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        out = [
            "  ".join(
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        out.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([*out, *(("", *self.notes) if self.notes else ())])


def build_table(
    measurements: Sequence[Measurement],
    references: Mapping[str, NDArray[Any]] | None = None,
    reference: str | None = None,
) -> Table:
    """Compare measurements on the same instances.

    Args:
        measurements: at least one.
        references: name -> (instances,) costs that came with the instances; each gets a row.  A
            boolean ``proven`` says where ``optimum`` is one; other booleans are left out.
        reference: what to divide by: a name of ``references``, of a measurement, or
            ``best-of-rules`` (on each instance the cheapest rule).  None chooses the
            first of ``PREFERRED`` among the references or the only one there is, else the rule
            with the least mean cost, else the first measurement.

    Raises:
        ValueError: no measurement, different numbers of instances, or an unknown reference.
    """
    if not measurements:
        raise ValueError("there is nothing to compare; name at least one policy or rule")
    given = {name: np.asarray(values) for name, values in (references or {}).items()}
    flags = {name: values for name, values in given.items() if values.dtype.kind == "b"}
    references = {
        name: values.astype(np.float64) for name, values in given.items() if name not in flags
    }
    count = len(measurements[0].costs)
    for name, costs in (
        *((one.name, one.costs) for one in measurements),
        *references.items(),
    ):
        if len(costs) != count:
            raise ValueError(f"{name} has {len(costs)} costs, want {count} as the others have")
    name, base = choose_reference(measurements, references, reference)
    wins = count_wins(measurements)
    rows = [
        Row(
            one.name,
            float(one.costs.mean()),
            *mean_ratio(one.costs, base),
            *ratio_of_means(one.costs, base),
            wins=wins.get(one.name),
            milliseconds=one.milliseconds_per_decision,
            hindsight=one.hindsight,
        )
        for one in measurements
    ]
    rows += [
        Row(
            ref,
            float(costs.mean()),
            *mean_ratio(costs, base),
            *ratio_of_means(costs, base),
            wins=None,
            milliseconds=math.nan,
            from_file=True,
        )
        for ref, costs in references.items()
    ]
    rows.sort(key=lambda row: (math.isnan(row.mean_cost), row.mean_cost))
    proven = flags.get("proven", np.ones(count, np.bool_))
    return Table(tuple(rows), name, base, tuple(_notes(rows, name, base, proven, measurements)))


def choose_reference(
    measurements: Sequence[Measurement],
    references: Mapping[str, NDArray[np.float64]],
    wanted: str | None = None,
) -> tuple[str, NDArray[np.float64]]:
    """Name and costs (instances,) of what ratios divide by; see ``build_table``.

    Raises:
        ValueError: nothing has the wanted name.
    """
    measured = {one.name: one.costs for one in measurements}
    rules = {one.name: one.costs for one in measurements if one.kind == "rule"}
    check_reference(measurements, references, wanted)
    if wanted is None:
        name = next((one for one in PREFERRED if one in references), None)
        if name is None and len(references) == 1:
            name = next(iter(references))
        if name is not None:
            return name, references[name]
        name = min(rules, key=lambda one: rules[one].mean()) if rules else next(iter(measured))
        return name, measured[name]
    if wanted in references:
        return wanted, references[wanted]
    if wanted in measured:
        return wanted, measured[wanted]
    return wanted, np.min(list(rules.values()), axis=0)


def check_reference(
    contenders: Sequence[Contender | Measurement],
    references: Mapping[str, NDArray[Any]],
    wanted: str | None,
) -> None:
    """Refuse an unknown reference, before anything is measured.

    Raises:
        ValueError: nothing has the wanted name.
    """
    names = [name for name, values in references.items() if np.asarray(values).dtype.kind != "b"]
    names += [one.name for one in contenders]
    if any(one.kind == "rule" for one in contenders):
        names.append(BEST_OF_RULES)
    if wanted is not None and wanted not in names:
        raise ValueError(f"no reference is called {wanted!r}; known: {', '.join(names)}")


def mean_ratio(costs: NDArray[np.float64], base: NDArray[np.float64]) -> tuple[float, float]:
    """Mean over the instances of cost / reference, and its standard error.

    Instances whose reference is zero or missing have no ratio and are left out.
    """
    usable = (base > 0) & np.isfinite(base)
    if not usable.any() or not np.isfinite(costs[usable]).all():
        return math.nan, math.nan
    ratios = costs[usable] / base[usable]
    return float(ratios.mean()), standard_error(ratios)


def ratio_of_means(costs: NDArray[np.float64], base: NDArray[np.float64]) -> tuple[float, float]:
    """Mean cost / mean reference, and its standard error.

    The error is that of the ratio estimator: the deviations cost - ratio * reference over the
    mean reference (Cochran, Sampling Techniques, 1977, section 2.11).
    """
    if base.mean() <= 0 or not np.isfinite([costs, base]).all():
        return math.nan, math.nan
    ratio = costs.mean() / base.mean()
    return float(ratio), standard_error(costs - ratio * base) / float(base.mean())


def standard_error(values: NDArray[np.float64]) -> float:
    """Of the mean of (n,) independent values; NaN for a single one."""
    if len(values) < 2:
        return math.nan
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def count_wins(measurements: Sequence[Measurement]) -> dict[str, int]:
    """Name -> instances on which no competitor is cheaper; hindsight does not compete."""
    rivals = [one for one in measurements if not one.hindsight]
    if not rivals:
        return {}
    costs = np.stack([one.costs for one in rivals])  # (rivals, instances)
    best = costs.min(0)
    won = np.isfinite(costs) & (costs <= best + 1e-9 * np.abs(best))  # rounding is no difference
    return {one.name: int(row.sum()) for one, row in zip(rivals, won, strict=True)}


def _printed(row: Row) -> tuple[str, ...]:
    def number(value: float, digits: str) -> str:
        return format(value, digits) if math.isfinite(value) else "-"

    return (
        row.policy + HINDSIGHT * row.hindsight + " (file)" * row.from_file,
        number(row.mean_cost, ",.2f"),
        number(row.ratio, ".4f"),
        number(row.ratio_error, ".4f"),
        number(row.ratio_of_means, ".4f"),
        number(row.ratio_of_means_error, ".4f"),
        "-" if row.wins is None else str(row.wins),
        number(row.milliseconds, ".3f"),
    )


def _notes(
    rows: Sequence[Row],
    name: str,
    base: NDArray[np.float64],
    proven: NDArray[np.bool_],
    measurements: Sequence[Measurement],
) -> list[str]:
    notes = [f"ratio: mean of cost / {name} and its standard error; of means: ratio of mean costs."]
    if any(row.hindsight for row in rows):
        notes.append(
            f"{HINDSIGHT} decided in hindsight, knowing releases and durations ahead: a bound on "
            "what is possible, not a way to dispatch; no wins."
        )
    unusable = int((~((base > 0) & np.isfinite(base))).sum())
    if unusable:
        notes.append(
            f"{name} is zero or missing on {unusable} instances, which the mean ratio leaves out."
        )
    for one in measurements:
        missing = int((~np.isfinite(one.costs)).sum())
        if missing:
            notes.append(f"{one.name} found no schedule in time on {missing} instances.")
        below = int((proven & (one.costs < base * (1 - 1e-6) - 1e-6)).sum())
        if below and name == "optimum":
            notes.append(
                f"{one.name} is below the optimum on {below} instances: the set's references "
                "belong to another objective; give the set's own with --objective."
            )
    return notes
