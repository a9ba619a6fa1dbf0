"""rcmax: jobs on unrelated machines, the makespan alone (Fanjul-Peyro and Ruiz, 2010)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

LONGEST = 100


def sample(rng: np.random.Generator, num_jobs: int, num_machines: int) -> Instance:
    """One instance of the class U(1, 100): p ~ U{1..100}, independent."""
    return Instance.from_matrix(rng.integers(1, LONGEST, (num_jobs, num_machines), endpoint=True))


def build(name: str, options: Mapping[str, str]) -> Scenario:
    del options  # takes none
    return Scenario(
        name=name,
        description="independent jobs on unrelated machines; makespan",
        objective=Objective(makespan=1.0),
        deciding="plan",
        sampler=sample,
        default_jobs=100,
        default_machines=20,
        rules=("lpt", "sufferage", "min-min", "ect"),
        sizes=((20, 4), (30, 6), (30, 10), (40, 10)),
    )
