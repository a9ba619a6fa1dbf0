"""hitzges: occupied machines, due times of jobs and of machines (Hitzges & Sagnol, ICMLA 2025)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

LATEST_DUE = 30  # the same at every size, as published: big instances are mostly late
LARGEST_WEIGHT = 10
SHORTEST_P, LONGEST_P = 10, 45


def sample(rng: np.random.Generator, num_jobs: int, num_machines: int) -> Instance:
    """One instance; all numbers are integers and all bounds inclusive.

    P ~ U{10..45} and A ~ U{round(P/3)..P} are drawn once per instance, then
    p ~ U{1..P}, d and delta ~ U{0..30}, w and omega ~ U{1..10}, a ~ U{0..A}; where no machine
    is free at 0, one of them, drawn evenly, becomes so.
    """
    longest = int(rng.integers(SHORTEST_P, LONGEST_P, endpoint=True))
    latest = int(rng.integers(round(longest / 3), longest, endpoint=True))
    processing = rng.integers(1, longest, (num_jobs, num_machines), endpoint=True)
    due = rng.integers(0, LATEST_DUE, num_jobs, endpoint=True)
    machine_due = rng.integers(0, LATEST_DUE, num_machines, endpoint=True)
    weights = rng.integers(1, LARGEST_WEIGHT, num_jobs, endpoint=True)
    machine_weights = rng.integers(1, LARGEST_WEIGHT, num_machines, endpoint=True)
    available = rng.integers(0, latest, num_machines, endpoint=True)
    if available.all():
        available[rng.integers(num_machines)] = 0
    return Instance.from_matrix(
        processing,
        due_times=due,
        weights=weights,
        machine_available=available,
        machine_due_times=machine_due,
        machine_weights=machine_weights,
    )


def build(name: str, options: Mapping[str, str]) -> Scenario:
    del options  # takes none
    return Scenario(
        name=name,
        description="occupied machines, due times of jobs and machines, weights; all known",
        objective=Objective(makespan=1.0, weighted_tardiness=1.0, machine_tardiness=1.0),
        deciding="plan",
        sampler=sample,
        default_jobs=20,
        default_machines=4,
        rules=("atc", "allox", "min-min", "wspt"),
        sizes=((8, 4), (20, 4), (30, 6)),
    )
