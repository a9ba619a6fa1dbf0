"""What must not matter to the scores: order, units, layout, and who else is in the batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from hetsched.envs.features import observe
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.tests.envs.decisions import (
    EVERYTHING,
    by_mode,
    random_decisions,
    replay,
    state_after,
)
from hetsched.tests.gnn.networks import DECIDING, KIND, assert_same, draw, lively_network, score

if TYPE_CHECKING:
    from hetsched.envs.instance import Instance

WEIGHTED = Objective(weighted_tardiness=2.0, machine_tardiness=0.5, weighted_completion=0.25)


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
    together = State.initial(Problem.from_instances(instances), EVERYTHING, deciding)
    scores = score(network, replay(together, taken))
    for row, state in enumerate(alone):
        expected = by_mode(state.problem, 0, score(network, state))
        assert_same(by_mode(together.problem, row, scores), expected, least=0)


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
    both = State.initial(Problem.from_instances([instance, beside]), EVERYTHING, deciding)
    assert not both.problem.dense
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
