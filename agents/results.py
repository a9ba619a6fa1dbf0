"""What an evaluation leaves behind: numbers of every instance as JSON, a schedule as pictures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hetsched.agents.evaluation import Measurement
    from hetsched.agents.table import Table
    from hetsched.envs.instance import Instance
    from hetsched.envs.objective import Objective


def as_json(
    scenario: str,
    objective: Objective,
    measurements: Sequence[Measurement],
    references: Mapping[str, NDArray[Any]],
    table: Table,
) -> dict[str, Any]:
    """Plain values for a JSON file.

    Returns:
        ``{"scenario", "objective", "count", "policies": {NAME: {"cost": [...], "seconds": [...]}},
        "reference": {NAME: [...]}}``, lists by instance.  ``reference`` holds what came with the
        instances and what the table divides by.  None stands where no schedule was found in time.
    """

    def numbers(values: NDArray[Any]) -> list[float | None]:
        return [value if math.isfinite(value) else None for value in values.tolist()]

    return {
        "scenario": scenario,
        "objective": str(objective),
        "count": table.count,
        "policies": {
            one.name: {"cost": numbers(one.costs), "seconds": numbers(one.seconds)}
            for one in measurements
        },
        "reference": {
            name: numbers(values)
            for name, values in {**references, table.reference: table.base}.items()
            if values.dtype.kind != "b"  # flags such as "proven" are no costs
        },
    }


def draw_first(
    prefix: str, measurements: Sequence[Measurement], instance: Instance, table: Table
) -> str | None:
    """Draw the first instance's schedule to ``prefix.png`` and ``prefix.html``.

    The first policy's greedy schedule is drawn; without a policy, that of the best row which did
    not know what lay ahead.

    Returns:
        Whose schedule was drawn; None, and nothing drawn, if nobody found one in time.
    """
    from hetsched.envs.gantt import draw_html, draw_png

    rank = {row.policy: place for place, row in enumerate(table.rows)}
    policies = [one for one in measurements if one.kind == "policy" and not one.hindsight]
    others = sorted(measurements, key=lambda one: (one.hindsight, rank[one.name]))
    for one in policies or others:
        schedule = one.schedules[0]
        if schedule is None:
            continue
        title = f"{one.name}: cost {one.costs[0]:,.2f}"
        draw_png(schedule, instance, f"{prefix}.png", title=title)
        draw_html(schedule, instance, f"{prefix}.html", title=title)
        return one.name
    return None


def describe_sizes(instances: Sequence[Instance]) -> str:
    """Such as ``100 instances of 20 x 4 (jobs x machines)``, with ranges where sizes differ."""
    sizes = []
    for name in ("num_jobs", "num_machines"):
        values = [getattr(one, name) for one in instances]
        low, high = min(values), max(values)
        sizes.append(f"{low}" if low == high else f"{low}..{high}")
    return f"{len(instances)} instances of {sizes[0]} x {sizes[1]} (jobs x machines)"
