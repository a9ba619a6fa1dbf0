"""The network: masks, sizes, gradients and edge cases."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from hetsched.envs.features import observe
from hetsched.envs.graph import Graph
from hetsched.envs.instance import Instance
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.gnn.config import NetworkConfig
from hetsched.gnn.network import SchedulingNetwork
from hetsched.tests.envs.decisions import EVERYTHING, state_after
from hetsched.tests.envs.instances import random_instance
from hetsched.tests.gnn.networks import DECIDING, KIND, assert_same, draw, lively_network, score


@DECIDING
def test_an_untrained_network_is_indifferent_between_legal_actions(deciding: str) -> None:
    torch.manual_seed(0)
    network = SchedulingNetwork()
    state = state_after(draw("lags", jobs=7), EVERYTHING, deciding, 3)
    scores, value = network(observe(state))
    assert (scores[state.mask()] == 0).all()
    assert value.tolist() == [0.0]


@DECIDING
@KIND
def test_exactly_the_illegal_actions_score_minus_infinity(deciding: str, kind: str) -> None:
    network = lively_network()
    instances = [draw(kind, seed, 1 + seed, 3) for seed in range(5)]
    state = State.initial(Problem.from_instances(instances), EVERYTHING, deciding)
    while not bool(state.done.all()):
        scores = score(network, state)
        assert torch.equal(scores == -torch.inf, ~state.mask())
        assert scores[state.mask()].isfinite().all()
        state.step(scores.argmax(1))


@DECIDING
@KIND
def test_scores_alone_are_those_that_come_with_values(deciding: str, kind: str) -> None:
    network = lively_network()
    instances = [draw(kind, seed, 1 + seed, 3) for seed in range(4)]
    for rows in (instances[3:], instances):
        state = State.initial(Problem.from_instances(rows), EVERYTHING, deciding)
        while not bool(state.done.all()):
            graph = observe(state)
            scores = network.scores(graph)
            assert torch.equal(scores, network(graph)[0])
            state.step(scores.argmax(1))


@pytest.mark.parametrize("way", ["load", "assign", "copy"])
def test_what_is_kept_at_hand_follows_loading_assigning_and_copying(way: str) -> None:
    network, other = lively_network(0), lively_network(1)
    network.keep_at_hand()
    state = state_after(draw("lags"), EVERYTHING, "plan")
    names = [name for name, _ in network.named_parameters()]
    assert not torch.equal(score(network, state), score(other, state))
    if way == "load":
        network.load_state_dict(other.state_dict())
    elif way == "assign":
        network.load_state_dict(other.state_dict(), assign=True)
        network.embed_jobs = other.embed_jobs
    else:
        network = copy.deepcopy(network)
        with torch.no_grad():
            for mine, theirs in zip(network.parameters(), other.parameters(), strict=True):
                mine.copy_(theirs)
    assert [name for name, _ in network.named_parameters()] == names
    assert torch.equal(score(network, state), score(other, state))


def test_scores_differ_between_modes_and_follow_what_changes() -> None:
    network = lively_network()
    instance = draw("plain")
    scores = score(network, state_after(instance, EVERYTHING, "plan"))
    assert len(scores[scores.isfinite()].unique()) == instance.num_modes
    for change in ("weights", "due_times", "machine_available", "processing_times"):
        values = getattr(instance, change).copy()
        values[0] = 77.0
        other = state_after(replace(instance, **{change: values}), EVERYTHING, "plan")
        assert not torch.allclose(score(network, other), scores), change


def test_the_direction_of_precedence_matters() -> None:
    network = lively_network()
    arcs = np.array([[0, 1], [1, 2]])
    instance = Instance.from_matrix(np.full((3, 2), 5.0), precedence=arcs)
    graph = observe(state_after(instance, EVERYTHING, "plan"))
    graph = replace(graph, legal=torch.ones_like(graph.legal))
    reverse = replace(graph, arcs=graph.arcs.flip(2))
    scores = network(graph)[0]
    assert not torch.allclose(network(reverse)[0], scores)
    before, after = network.from_predecessors, network.from_successors
    network.from_predecessors, network.from_successors = after, before
    assert_same(network(reverse)[0], scores)  # each relation hears one end of every arc


def test_the_number_of_parameters_is_small_and_fixed() -> None:
    count = sum(one.numel() for one in SchedulingNetwork().parameters())
    assert 20_000 <= count <= 80_000
    wide = sum(one.numel() for one in SchedulingNetwork(NetworkConfig(hidden=64)).parameters())
    assert wide > 2 * count


@pytest.mark.parametrize("layers", [1, 3])
def test_other_depths_and_widths_run(layers: int) -> None:
    network = lively_network(config=NetworkConfig(hidden=12, layers=layers, heads=3))
    state = state_after(draw("lags"), EVERYTHING, "plan")
    assert len(score(network, state)[state.mask()].unique()) > 1


def test_finished_rows_do_not_matter() -> None:
    network = lively_network()
    problem = Problem.from_instances([draw("plain", 0), draw("plain", 1, 1, 2)])
    state = State.initial(problem, EVERYTHING, "plan")
    state.step(torch.tensor([int(row.int().argmax()) for row in state.mask()]))
    assert state.done.tolist() == [False, True]
    graph = observe(state)
    scores, values = network(graph)
    alone = network(graph.rows(torch.tensor([0])))
    assert_same(scores[:1], alone[0])
    torch.testing.assert_close(values[:1], alone[1])
    assert scores[1, :-1].tolist() == [-torch.inf] * (problem.num_actions - 1)
    assert scores[1, -1].isfinite()


@pytest.mark.parametrize("kind", ["plain", "parallel"])
def test_a_batch_of_finished_rows_only_has_finite_values(kind: str) -> None:
    network = lively_network()
    for rows in (1, 2):
        problem = Problem.from_instances([draw(kind, 1, 1, 2)]).repeat(rows)
        state = State.initial(problem, EVERYTHING, "plan")
        state.step(state.mask().int().argmax(1))
        scores, values = network(observe(state))
        assert values.isfinite().all()
        assert (scores.argmax(1) == problem.num_actions - 1).all()


def gradients(network: SchedulingNetwork, states: Sequence[State]) -> dict[str, float]:
    """The largest gradient of each parameter, NaN where none has arrived."""
    network.zero_grad()
    for state in states:
        scores, values = network(observe(state))
        (scores[state.mask()].square().sum() + values.square().sum()).backward()
    return {
        name: float("nan") if one.grad is None else float(one.grad.abs().max())
        for name, one in network.named_parameters()
    }


def test_gradients_reach_every_parameter_and_those_of_precedence_only_with_arcs() -> None:
    network = lively_network()
    rng = np.random.default_rng(0)
    release = np.array([0.0, 0.0, 0.0, 0.0, 99.0])  # something runs, so WAIT is legal
    for arcs in ([[], []], [[1, 1], [2, 3]]):
        instance = Instance.from_matrix(
            rng.integers(1, 30, (5, 3)), precedence=arcs, release_times=release, due_times=[9.0] * 5
        )
        states = [state_after(instance, EVERYTHING, "dispatch", [mode]) for mode in (0, 1, 2)]
        assert all(bool(state.can_wait()) for state in states)
        for name, largest in gradients(network, states).items():
            of_arcs = name.startswith(("from_predecessors", "from_successors"))
            assert (largest > 1e-6) == (not of_arcs or bool(arcs[0])), name


def test_one_job_on_one_machine_is_no_special_case() -> None:
    network = lively_network()
    instance = Instance.from_matrix(np.array([[5.0]]))
    for deciding in ("plan", "dispatch"):
        scores, value = network(observe(state_after(instance, EVERYTHING, deciding)))
        assert scores.isfinite().tolist() == [[True, False]]
        assert value.isfinite().all()


@pytest.mark.parametrize("keep", [None, 1, 5])
def test_large_instances_run_whole_and_pruned(keep: int | None) -> None:
    network = lively_network()
    instance = random_instance(np.random.default_rng(0), jobs=200, machines=30)
    problem = Problem.from_instances([instance], keep_fastest=keep)
    state = State.initial(problem, EVERYTHING, "plan")
    scores, value = network(observe(state))
    assert problem.num_modes == (keep or 30)
    assert scores.shape == (1, problem.num_actions)
    assert torch.equal(scores.isfinite(), state.mask())
    assert value.isfinite().all()


def test_rows_of_a_graph_and_their_concatenation_give_the_same_scores() -> None:
    network = lively_network()
    problem = Problem.from_instances([draw("lags", seed) for seed in range(3)])
    graph = observe(State.initial(problem, EVERYTHING, "plan"))
    parts = [graph.rows(torch.tensor([row])) for row in range(3)]
    again = Graph.concatenate(parts)
    for field in fields(Graph):
        one, other = getattr(graph, field.name), getattr(again, field.name)
        assert torch.equal(one, other) if isinstance(one, Tensor) else one == other
    masked = graph.rows(torch.tensor([True, False, True]))
    assert_same(network(masked)[0], network(graph)[0][[0, 2]])
