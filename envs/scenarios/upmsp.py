"""upmsp: releases, set-ups and eligibility, weighted tardiness (factors of the WSC 2025 study)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.scenarios.options import factorial_sampler, number
from hetsched.envs.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST = 100
LARGEST_WEIGHT = 10
# The factors' levels in the benchmark sets; one of each is drawn per instance.
LEVELS: dict[str, tuple[float, ...]] = {
    "tau": (0.2, 0.4, 0.6),
    "R": (0.2, 0.6, 1.0),
    "beta": (0.1, 0.25),
    "delta": (0.75, 1.0),
}
OPTIONS = tuple(LEVELS)


def sample_factors(
    rng: np.random.Generator,
    num_jobs: int,
    num_machines: int,
    tau: float,
    R: float,
    beta: float,
    delta: float,
) -> Instance:
    """One instance with given factors; all numbers are integers and all bounds inclusive.

    With p the mean of all durations, ineligible ones included, and q_j the mean of job j's
    durations over its own machines:
    p_jk ~ U{1..100}, w_j ~ U{1..10}, r_j ~ U{0..floor(jobs p / (2 machines))};
    s_ijk ~ U{0..floor(beta p)}, also before the first job;
    each job is eligible on ceil(delta machines) machines, drawn evenly;
    d_j = r_j + floor(U(q_j (1 - tau - R/2), q_j (1 - tau + R/2))), at least 0.
    """
    shape = (num_jobs, num_machines)
    processing = rng.integers(1, LONGEST, shape, endpoint=True)
    mean = processing.mean()
    latest = math.floor(num_jobs * mean / (2 * num_machines))
    release = rng.integers(0, latest, num_jobs, endpoint=True)
    longest_setup = math.floor(beta * mean)
    setups = rng.integers(0, longest_setup, (num_jobs + 1, *shape), endpoint=True)
    rank = rng.random(shape).argsort(axis=1).argsort(axis=1)
    eligible = rank < math.ceil(delta * num_machines)
    own = np.where(eligible, processing, 0).sum(axis=1) / eligible.sum(axis=1)  # q_j
    slack = np.floor(own * rng.uniform(1 - tau - R / 2, 1 - tau + R / 2, num_jobs))
    return Instance.from_matrix(
        processing,
        eligible,
        release_times=release,
        due_times=np.maximum(release + slack, 0),
        weights=rng.integers(1, LARGEST_WEIGHT, num_jobs, endpoint=True),
        setup_times=setups,
    )


def build(name: str, options: Mapping[str, str]) -> Scenario:
    fixed = {key: _factor(key, text) for key, text in options.items()}
    return Scenario(
        name=name,
        description="releases, set-ups that depend on the order, eligible machines; all known",
        objective=Objective(weighted_tardiness=1.0, setup_time=1.0),
        deciding="plan",
        sampler=factorial_sampler(LEVELS, fixed, sample_factors),
        default_jobs=20,
        default_machines=5,
        rules=("atcs-r", "atcs-r:k1=2,k2=0.2,k3=0.2", "atc", "min-min"),
        sizes=((12, 3), (20, 5), (30, 6)),
    )


def _factor(key: str, text: str) -> float:
    """A factor; delta is a share of the machines."""
    value = number(key, text, 0.0 if key == "delta" else None)
    if key in ("delta", "tau") and value > 1:
        raise ValueError(f"option {key!r} must be at most 1, got {text!r}")
    return value
