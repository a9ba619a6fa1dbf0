"""Instances whose sizes vary fit into a space that was measured on others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetsched.envs.drawing import draw_within, extent_of
from hetsched.envs.environment import SchedulingEnv
from hetsched.envs.observation import Extent, arrays_from_graph
from hetsched.envs.scenarios import get_scenario, sample_instances
from hetsched.envs.vector import VectorEnvironment

DAG, SIZE = get_scenario("dag"), (12, 3)


def some_arcs() -> Extent:
    """Holds about half of the graphs of the scenario."""
    instances = sample_instances(DAG, 41, 0, *SIZE)
    median = int(np.median([one.precedence.shape[1] for one in instances]))
    return replace(extent_of(instances), arcs=median)


def test_an_extent_holds_what_is_no_larger() -> None:
    extent = Extent(5, 3, 4, 6, dense=False)
    assert extent.holds(extent)
    assert extent.holds(Extent(5, 3, 3, 0, dense=True))
    for larger in ({"jobs": 6}, {"machines": 4}, {"slots": 5}, {"arcs": 7}):
        assert not extent.holds(replace(extent, **larger))
    assert not replace(extent, dense=True).holds(extent)


def test_what_does_not_fit_is_drawn_again() -> None:
    extent, rng = some_arcs(), np.random.default_rng(0)
    arcs = [draw_within(extent, DAG, rng, *SIZE).precedence.shape[1] for _ in range(20)]
    assert max(arcs) <= extent.arcs
    assert len(set(arcs)) > 3


def test_where_nothing_fits_an_error_says_so() -> None:
    with pytest.raises(ValueError, match="did not fit"):
        draw_within(Extent(5, 3, 3), DAG, np.random.default_rng(0), *SIZE)


def test_rollouts_side_by_side_fit_and_what_fits_is_kept() -> None:
    extent = some_arcs()
    free = VectorEnvironment(DAG, 8, 1, seed=3, sizes=[SIZE])
    bound = VectorEnvironment(DAG, 8, 1, seed=3, sizes=[SIZE], extent=extent)
    arrays_from_graph(bound.reset(), extent)  # would raise
    free.reset()
    kept = [one.precedence.shape[1] <= extent.arcs for one in free.state.problem.instances]
    assert 0 < sum(kept) < 8
    for same, one, other in zip(
        kept, free.state.problem.instances, bound.state.problem.instances, strict=True
    ):
        assert (one.precedence.tolist() == other.precedence.tolist()) == same


def test_an_environment_of_varying_sizes_never_leaves_its_space() -> None:
    environment = SchedulingEnv("fjsp", num_jobs=3, num_machines=2)
    environment.extent = replace(environment.extent, jobs=environment.extent.jobs - 1)
    for seed in range(30):
        observation, _ = environment.reset(seed=seed)
        assert len(observation["job_mask"]) == environment.extent.jobs
