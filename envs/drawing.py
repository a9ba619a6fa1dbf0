"""Random instances that fit into an extent which others of their kind have been measured for.

The sizes of some scenarios vary from instance to instance: operations of a job shop, arcs of a
graph.  An extent measured on a sample holds almost all of them; the rare one that is larger is
drawn again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.envs.observation import Extent
from hetsched.envs.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from hetsched.envs.instance import Instance
    from hetsched.envs.scenarios import Scenario

PATIENCE = 1000  # draws of one instance


def extent_of(instances: Sequence[Instance]) -> Extent:
    """The smallest extent that holds each of the instances."""
    return Extent.around([Extent.of(Problem.from_instances([one])) for one in instances])


def draw_within(
    extent: Extent,
    scenario: Scenario,
    rng: np.random.Generator,
    jobs: int | None,
    machines: int | None,
) -> Instance:
    """An instance of the scenario that fits.

    Args:
        jobs, machines: the size; the scenario's default.

    Raises:
        ValueError: none of PATIENCE draws does.
    """
    for _ in range(PATIENCE):
        instance = scenario.generate(rng, jobs, machines)
        if extent.holds(Extent.of(Problem.from_instances([instance]))):
            return instance
    raise ValueError(
        f"{scenario.name}: {PATIENCE} instances of {jobs} x {machines} did not fit into {extent}; "
        "measure it on that size"
    )
