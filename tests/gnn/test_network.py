"""The network: what must not matter to its scores does not, and what must, does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from hetsched.envs.features import observe
from hetsched.envs.graph import Graph
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.gnn.config import NetworkConfig
from hetsched.gnn.network import SchedulingNetwork
from hetsched.tests.envs.decisions import by_mode, random_decisions, replay, state_after
from hetsched.tests.envs.instances import random_instance
from hetsched.tests.gnn.networks import lively_network

EVERYTHING = Objective(
    makespan=1.0,
    weighted_tardiness=2.0,
    machine_tardiness=0.5,
    weighted_completion=0.25,
    flow_time=1.5,
    setup_time=3.0,
)
WEIGHTED = Objective(weighted_tardiness=2.0, machine_tardiness=0.5, weighted_completion=0.25)
KINDS: dict[str, dict[str, bool]] = {
    "plain": {},
    "precedence": {"precedence": True},
    "lags": {"precedence": True, "lags": True, "releases": True},
    "capacity": {"shared": True, "releases": True},
    "parallel": {"parallel": True},
    "set-ups": {"setups": True, "releases": True},
}
DECIDING = pytest.mark.parametrize("deciding", ["plan", "dispatch"])
KIND = pytest.mark.parametrize("kind", KINDS)


def draw(kind: str, seed: int = 0, jobs: int = 6, machines: int = 3) -> Instance:
    """Some pairs of it are not eligible."""
    return random_instance(np.random.default_rng(seed), jobs=jobs, machines=machines, **KINDS[kind])


def score(network: SchedulingNetwork, state: State) -> Tensor:
    with torch.no_grad():
        return network(observe(state))[0]


def assert_same(found: Tensor, expected: Tensor, least: int = 2) -> None:
    """Equal, minus infinity and NaN included, and among them ``least`` different scores."""
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert len(expected[expected.isfinite()].unique()) >= least, "nothing to tell apart"


def permuted(
    instance: Instance, jobs: np.ndarray, machines: np.ndarray
) -> tuple[Instance, np.ndarray]:
    """The permuted instance, and the old index of each of its modes."""
    old = np.argsort(np.argsort(jobs)[instance.mode_jobs], kind="stable")
    return instance.permuted(jobs, machines), old


@DECIDING
@KIND
def test_permuting_jobs_and_machines_permutes_scores(deciding: str, kind: str) -> None:
    network = lively_network()
    for seed in range(3):
        instance, rng = draw(kind, seed), np.random.default_rng(seed)
        other, old = permuted(instance, rng.permutation(6), rng.permutation(3))
        new = np.argsort(old)
        state = state_after(instance, EVERYTHING, deciding)
        twin = state_after(other, EVERYTHING, deciding)
        for _ in range(3):
            found = by_mode(twin.problem, 0, score(network, twin))
            expected = by_mode(state.problem, 0, score(network, state))
            assert_same(found[np.append(new, -1)], expected)
            taken = random_decisions(state, 1)
            replay(twin, [[int(new[mode]) if mode >= 0 else mode for mode in taken]])


@DECIDING
def test_permuting_rows_permutes_scores_also_of_padded_instances(deciding: str) -> None:
    network = lively_network()
    instances = [draw("capacity", 0), draw("capacity", 1, 2, 1), draw("capacity", 2, 4, 4)]
    problem = Problem.from_instances(instances)
    order = torch.tensor([2, 0, 1])
    found = score(network, State.initial(problem.select(order), EVERYTHING, deciding))
    expected = score(network, State.initial(problem, EVERYTHING, deciding))
    assert_same(found, expected[order])


@DECIDING
@KIND
def test_multiplying_all_times_by_1000_changes_no_score(deciding: str, kind: str) -> None:
    network = lively_network()
    for seed in range(3):
        instance = draw(kind, seed)
        for count in (0, 2):
            state = State.initial(Problem.from_instances([instance]), EVERYTHING, deciding)
            taken = random_decisions(state, count, seed)
            for factor in (1000.0, 1 / 1024):  # without rounding
                twin = state_after(instance.scaled(factor), EVERYTHING, deciding, taken)
                assert_same(score(network, twin), score(network, state))


@DECIDING
@KIND
def test_multiplying_all_weights_by_10_changes_no_score(deciding: str, kind: str) -> None:
    network = lively_network()
    for seed in range(3):
        one = draw(kind, seed)
        ten = replace(one, weights=10 * one.weights, machine_weights=10 * one.machine_weights)
        state = State.initial(Problem.from_instances([one]), WEIGHTED, deciding)
        taken = random_decisions(state, 2, seed)
        twin = state_after(ten, WEIGHTED, deciding, taken)
        assert_same(score(network, twin), score(network, state))


def sees_arcs(state: State) -> bool:
    return bool(observe(state).arc_mask.any())


@DECIDING
@KIND
def test_instances_of_mixed_sizes_score_in_a_batch_as_alone(deciding: str, kind: str) -> None:
    network = lively_network()
    sizes = [(6, 3), (1, 1), (3, 4), (8, 2), (7, 3), (8, 1)]
    instances = [draw(kind, seed, *size) for seed, size in enumerate(sizes)]
    alone = [State.initial(Problem.from_instances([i]), EVERYTHING, deciding) for i in instances]
    taken = [random_decisions(state, 1, row) for row, state in enumerate(alone)]
    if any(map(sees_arcs, alone)):  # the others: see the next test
        rows = [row for row, state in enumerate(alone) if sees_arcs(state)]
        instances, alone, taken = ([one[row] for row in rows] for one in (instances, alone, taken))
    assert len(alone) >= 2
    together = State.initial(Problem.from_instances(instances), EVERYTHING, deciding)
    scores = score(network, replay(together, taken))
    for row, state in enumerate(alone):
        expected = by_mode(state.problem, 0, score(network, state))
        assert_same(by_mode(together.problem, row, scores), expected, least=0)


@pytest.mark.xfail(
    reason="the bias of the precedence relation reaches every job as soon as any row has an arc"
)
@DECIDING
def test_an_instance_without_precedence_scores_alike_beside_one_with_precedence(
    deciding: str,
) -> None:
    network = lively_network()
    plain, arcs = draw("plain", 0), draw("precedence", 0)
    together = State.initial(Problem.from_instances([plain, arcs]), EVERYTHING, deciding)
    alone = State.initial(Problem.from_instances([plain]), EVERYTHING, deciding)
    assert sees_arcs(together)
    assert_same(
        by_mode(together.problem, 0, score(network, together)),
        by_mode(alone.problem, 0, score(network, alone)),
    )


@DECIDING
@KIND
def test_the_dense_path_equals_the_sparse_path(deciding: str, kind: str) -> None:
    network = lively_network()
    sizes = [(6, 3), (2, 3), (5, 2)]
    for batch in (sizes[:1], sizes):
        instances = [draw(kind, seed, *size) for seed, size in enumerate(batch)]
        problem = Problem.from_instances(instances)
        assert problem.dense == (kind != "parallel")
        state = State.initial(problem, EVERYTHING, deciding)
        sparse = State.initial(replace(problem, dense=False), EVERYTHING, deciding)
        for _ in range(2):
            expected = score(network, state)
            assert_same(score(network, sparse), expected)
            assert_same(network(replace(observe(state), dense=False))[0], expected)
            for one in (state, sparse):
                one.step(one.mask().int().argmax(1))


@DECIDING
@KIND
def test_listed_slots_score_as_slots_that_are_machines(deciding: str, kind: str) -> None:
    """Beside an instance with parallel modes, another one's slots list its modes."""
    network = lively_network()
    instance = draw(kind, 1)
    beside = draw("parallel", 2)
    alone = State.initial(Problem.from_instances([instance]), EVERYTHING, deciding)
    if sees_arcs(alone):  # else: see the test that is expected to fail
        beside = replace(beside, precedence=[[0], [1]], precedence_lags=[0.0])
    both = State.initial(Problem.from_instances([instance, beside]), EVERYTHING, deciding)
    assert not both.problem.dense
    assert sees_arcs(both) == sees_arcs(alone)
    found = by_mode(both.problem, 0, score(network, both))
    assert_same(found, by_mode(alone.problem, 0, score(network, alone)))


@DECIDING
def test_a_pruned_problem_scores_as_the_instance_that_has_only_those_modes(deciding: str) -> None:
    network = lively_network()
    instance = draw("capacity", 3, jobs=7, machines=4)
    problem = Problem.from_instances([instance], keep_fastest=2)
    kept = np.sort(problem.mode_index[problem.mode_mask].numpy())
    assert len(kept) < instance.num_modes
    names = ("mode_jobs", "mode_machines", "processing_times", "demand")
    fewer = replace(instance, **{name: getattr(instance, name)[kept] for name in names})
    pruned = by_mode(problem, 0, score(network, State.initial(problem, EVERYTHING, deciding)))
    other = State.initial(Problem.from_instances([fewer]), EVERYTHING, deciding)
    assert other.problem.dense
    expected = by_mode(other.problem, 0, score(network, other))
    assert_same(pruned[np.append(kept, -1)], expected)
    assert int(pruned.isnan().sum()) == instance.num_modes - len(kept)


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
    assert not torch.allclose(network(graph)[0], network(reverse)[0])


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


def test_a_batch_of_finished_rows_only_has_finite_values() -> None:
    network = lively_network()
    for rows in (1, 2):
        problem = Problem.from_instances([draw("plain", 1, 1, 2)]).repeat(rows)
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
            if name.endswith("attention.bias"):
                continue  # a softmax does not see what is added to all of its logits
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
