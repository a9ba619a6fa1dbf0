"""Padded observations: nothing is lost on the way, and what does not fit is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from hetsched.envs.features import observe
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.observation import (
    Extent,
    arrays_from_graph,
    graph_from_tensors,
    observation_space,
)
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.tests.envs.decisions import state_after
from hetsched.tests.envs.instances import random_instance
from hetsched.tests.gnn.networks import lively_network

if TYPE_CHECKING:
    from hetsched.envs.graph import Graph

OBJECTIVE = Objective(makespan=1.0, weighted_tardiness=1.0)


def states(deciding: str, **options: bool) -> State:
    """Three instances of up to 5 jobs and 3 machines."""
    rng = np.random.default_rng(0)
    sizes = ((5, 3), (2, 3), (4, 2))
    instances = [random_instance(rng, jobs=n, machines=m, **options) for n, m in sizes]
    return State.initial(Problem.from_instances(instances), OBJECTIVE, deciding)


def there_and_back(graph: Graph, extent: Extent) -> Graph:
    arrays = arrays_from_graph(graph, extent)
    return graph_from_tensors({n: torch.from_numpy(a) for n, a in arrays.items()}, extent)


@pytest.mark.parametrize("deciding", ["plan", "dispatch"])
@pytest.mark.parametrize("options", [{}, {"precedence": True}, {"parallel": True}], ids=str)
def test_a_graph_comes_back_through_a_larger_extent_with_the_same_scores(
    deciding: str, options: dict[str, bool]
) -> None:
    network = lively_network()
    state = states(deciding, **options)
    own, graph = Extent.of(state.problem), observe(state)
    scores, values = network(graph)
    larger = Extent(own.jobs + 3, own.machines + 2, own.slots + 2, own.arcs + 4, own.dense)
    for extent in (own, larger, replace(larger, dense=False)):
        found, found_values = network(there_and_back(graph, extent))
        torch.testing.assert_close(found_values, values, rtol=1e-5, atol=1e-5)
        assert found.shape == (3, extent.num_actions)
        kept = found[:, :-1].view(3, extent.jobs, extent.slots)
        expected = scores[:, :-1].view(3, own.jobs, own.slots)
        torch.testing.assert_close(kept[:, : own.jobs, : own.slots], expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found[:, -1], scores[:, -1], rtol=1e-5, atol=1e-5)
        assert int(found.isfinite().sum()) == int(scores.isfinite().sum())


def test_through_its_own_extent_a_graph_comes_back_whole() -> None:
    for options in ({}, {"precedence": True, "parallel": True}):
        state = states("plan", **options)
        graph = observe(state)
        again = there_and_back(graph, Extent.of(state.problem))
        for name, value in graph.__dict__.items():
            other = getattr(again, name)
            assert torch.equal(other, value) if name != "dense" else other == value, name


def test_observations_belong_to_their_space() -> None:
    for options in ({}, {"precedence": True, "parallel": True}):
        state = states("plan", **options)
        own = Extent.of(state.problem)
        for extent in (own, replace(own, jobs=9, arcs=own.arcs + 1, dense=False)):
            space, arrays = observation_space(extent), arrays_from_graph(observe(state), extent)
            assert set(space.spaces) == set(arrays)
            for row in range(3):
                assert {name: value[row] for name, value in arrays.items()} in space


@pytest.mark.parametrize("smaller", ["jobs", "machines", "slots", "arcs"])
def test_too_small_an_extent_is_refused(smaller: str) -> None:
    state = states("plan", precedence=True)
    own = Extent.of(state.problem)
    tight = replace(own, **{smaller: getattr(own, smaller) - 1})
    with pytest.raises(ValueError, match=r"does not fit into Extent.*; widen it"):
        arrays_from_graph(observe(state), tight)


def test_listed_modes_are_refused_where_slots_are_machines() -> None:
    instance = Instance(
        num_jobs=1,
        num_machines=2,
        mode_jobs=np.array([0, 0]),
        mode_machines=np.array([1, 1]),
        processing_times=np.array([2.0, 3.0]),
    )
    graph = observe(state_after(instance, OBJECTIVE, "plan"))
    with pytest.raises(ValueError, match="lists modes in its slots"):
        arrays_from_graph(graph, Extent(jobs=1, machines=2, slots=2))


def test_an_extent_around_others_holds_instances_of_either_layout() -> None:
    listed = Instance(
        num_jobs=1,
        num_machines=3,
        mode_jobs=np.array([0, 0]),
        mode_machines=np.array([1, 1]),
        processing_times=np.array([2.0, 3.0]),
    )
    matrix = Instance.from_matrix([[2.0, np.inf, 1.0], [3.0, 4.0, np.inf]], precedence=[[0], [1]])
    for instances in ([listed, matrix], [matrix, listed]):
        graphs = [observe(state_after(one, OBJECTIVE, "plan")) for one in instances]
        extents = [Extent.of(Problem.from_instances([one])) for one in instances]
        extent = Extent.around(extents)
        assert extent == Extent(jobs=2, machines=3, slots=3, arcs=1, dense=False)
        for graph in graphs:
            arrays_from_graph(graph, extent)
    assert Extent.around(extents[:1]) == extents[0]


def test_actions_of_an_extent_are_translated_for_the_batch() -> None:
    problem = Problem.from_instances([Instance.from_matrix(np.ones((2, 3)))])
    extent = Extent(jobs=4, machines=5, slots=5)
    actions = torch.tensor([0, 2, 5 + 1, 4 * 5])  # jobs 0, 0, 1 and WAIT
    assert extent.to_problem(actions, problem).tolist() == [0, 2, 3 + 1, 2 * 3]


def test_legal_actions_of_an_observation_are_those_of_the_state() -> None:
    state = states("dispatch", precedence=True)
    own = Extent.of(state.problem)
    extent = replace(own, jobs=own.jobs + 2, slots=own.slots + 1, machines=own.machines + 1)
    legal = torch.from_numpy(arrays_from_graph(observe(state), extent)["legal"])
    row, action = legal.nonzero(as_tuple=True)
    translated = extent.to_problem(action, state.problem)
    expected = torch.zeros_like(state.mask()).index_put((row, translated), torch.tensor(True))
    assert torch.equal(expected, state.mask())
