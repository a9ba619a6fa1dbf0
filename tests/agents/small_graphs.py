"""Plans with precedence small enough to look at all of their schedules."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import numpy as np

from hetsched.agents.exact import timed_again
from hetsched.tests.agents.small_plans import small_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.envs.instance import Instance
    from hetsched.envs.schedule import Schedule


def small_graph(
    seed: int, jobs: int = 4, machines: int = 2, whole: bool = False, lags: bool = True
) -> Instance:
    """As :func:`small_plan`, with arcs from earlier to later jobs, half of them with lags."""
    rng = np.random.default_rng([seed, 1])
    pairs = [pair for pair in itertools.combinations(range(jobs), 2) if rng.random() < 0.4]
    drawn = rng.integers(1, 5, len(pairs)) * (rng.random(len(pairs)) < 0.5) * lags
    renamed = rng.permutation(jobs)
    return dataclasses.replace(
        small_plan(seed, jobs, machines, whole),
        precedence=renamed[np.array(pairs, np.int64).reshape(-1, 2).T],
        precedence_lags=drawn.astype(np.float64),
    )


def all_schedules(instance: Instance) -> Iterator[Schedule]:
    """Every list that respects precedence, in every choice of modes: all semi-active ones."""
    arcs = instance.precedence.T.tolist()
    of_job = [np.flatnonzero(instance.mode_jobs == job) for job in range(instance.num_jobs)]
    for order in itertools.permutations(range(instance.num_jobs)):
        place = np.argsort(order)
        if any(place[before] > place[after] for before, after in arcs):
            continue
        for modes in itertools.product(*of_job):
            yield timed_again(instance, np.array(modes), place)
