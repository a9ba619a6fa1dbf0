"""Padding, pruning, and heads and tails by hand."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch
from torch import Tensor

from hetsched.envs.instance import Instance
from hetsched.envs.problem import Problem
from hetsched.tests.envs.instances import random_instance

INF = np.inf


def test_one_mode_per_machine_gives_slots_that_are_machines() -> None:
    one = Instance.from_matrix(np.array([[5.0, INF], [2.0, 9.0]]))
    problem = Problem.from_instances([one])
    assert problem.dense
    assert not problem.noisy
    assert problem.processing_times[0].tolist() == [[5.0, INF], [2.0, 9.0]]
    assert problem.mode_mask[0].tolist() == [[True, False], [True, True]]
    assert problem.mode_machines[0].tolist() == [[0, 1], [0, 1]]
    assert problem.mode_index[0].tolist() == [[0, -1], [1, 2]]
    assert problem.num_actions == 5
    assert problem.time_scale.tolist() == [3.5]


def test_parallel_modes_are_listed_in_slots() -> None:
    one = Instance(
        num_jobs=2,
        num_machines=3,
        mode_jobs=np.array([0, 0, 1]),
        mode_machines=np.array([2, 2, 0]),
        processing_times=np.array([4.0, 6.0, 5.0]),
        capacity=np.array([1, 1, 2]),
        demand=np.array([2, 1, 1]),
    )
    problem = Problem.from_instances([one])
    assert not problem.dense
    assert problem.num_modes == 2
    assert problem.processing_times[0].tolist() == [[4.0, 6.0], [5.0, INF]]
    assert problem.mode_machines[0, 0].tolist() == [2, 2]
    assert problem.demand[0].tolist() == [[2, 1], [1, 1]]
    assert problem.mode_index[0].tolist() == [[0, 1], [2, -1]]


def test_padding_is_marked_and_neutral() -> None:
    small = Instance.from_matrix(np.array([[4.0]]), weights=[3.0], due_times=[7.0])
    large = Instance.from_matrix(np.array([[1.0, 2.0], [3.0, 8.0]]), precedence=[[0], [1]])
    problem = Problem.from_instances([small, large])
    assert problem.job_mask.tolist() == [[True, False], [True, True]]
    assert problem.machine_mask.tolist() == [[True, False], [True, True]]
    assert problem.arc_mask.tolist() == [[False], [True]]
    assert problem.processing_times[0].tolist() == [[4.0, INF], [INF, INF]]
    assert problem.weights[0].tolist() == [3.0, 0.0]
    assert problem.due_times[0].tolist() == [7.0, INF]
    assert problem.machine_weights[0].tolist() == [1.0, 0.0]
    assert problem.time_scale.tolist() == [4.0, 2.0]


def test_setups_of_a_small_instance_keep_the_idle_start_in_the_last_row() -> None:
    setups = np.arange(1.0, 3.0).reshape(2, 1, 1)  # after itself: 1; from the idle start: 2
    small = Instance.from_matrix(np.array([[4.0]]), setup_times=setups)
    large = Instance.from_matrix(np.ones((3, 2)))
    problem = Problem.from_instances([small, large])
    assert problem.setup_times is not None
    assert problem.setup_times.shape == (2, 4, 3, 2)
    assert problem.setup_times[0, 3, 0, 0] == 2.0
    assert problem.setup_times[0].sum() == 3.0
    assert problem.setup_times[1].sum() == 0.0


def test_pruning_keeps_each_jobs_fastest_modes_in_their_order() -> None:
    one = Instance.from_matrix(np.array([[5.0, 1.0, 3.0], [2.0, INF, INF]]))
    problem = Problem.from_instances([one], keep_fastest=2)
    assert not problem.dense
    assert problem.processing_times[0].tolist() == [[1.0, 3.0], [2.0, INF]]
    assert problem.mode_machines[0, 0].tolist() == [1, 2]
    assert problem.mode_index[0].tolist() == [[1, 2], [3, -1]]
    assert problem.num_machines == 3
    single = Problem.from_instances([one], keep_fastest=1)
    assert single.processing_times[0].tolist() == [[1.0], [2.0]]


def test_keeping_as_many_modes_as_there_are_machines_prunes_nothing() -> None:
    one = random_instance(np.random.default_rng(0), jobs=5, machines=3)
    whole, kept = Problem.from_instances([one]), Problem.from_instances([one], keep_fastest=3)
    assert kept.dense
    assert torch.equal(whole.processing_times, kept.processing_times)


def test_pruning_changes_neither_the_unit_of_time_nor_heads_and_tails() -> None:
    rng = np.random.default_rng(1)
    one = random_instance(rng, jobs=6, machines=4, precedence=True, releases=True)
    whole, kept = Problem.from_instances([one]), Problem.from_instances([one], keep_fastest=1)
    for name in ("time_scale", "heads", "tails"):
        assert torch.equal(getattr(whole, name), getattr(kept, name))


def diamond(**others: object) -> Instance:
    """0 before 1 and 2, both before 3; the fastest durations are 4, 2, 7 and 1."""
    return Instance.from_matrix(
        np.array([[4.0, 9.0], [3.0, 2.0], [7.0, 8.0], [INF, 1.0]]),
        release_times=np.array([1.0, 9.0, 0.0, 2.0]),
        precedence=np.array([[0, 0, 1, 2], [1, 2, 3, 3]]),
        **others,
    )


def test_heads_and_tails_of_a_diamond() -> None:
    problem = Problem.from_instances([diamond()])
    assert problem.heads[0].tolist() == [1.0, 9.0, 5.0, 12.0]
    assert problem.tails[0].tolist() == [8.0, 1.0, 1.0, 0.0]


def test_heads_follow_true_durations_and_tails_expected_ones() -> None:
    actual = np.array([[6.0, 9.0], [3.0, 2.0], [10.0, 8.0], [INF, 5.0]])
    problem = Problem.from_instances([diamond(actual_times=actual)])
    assert problem.noisy
    assert problem.heads[0].tolist() == [1.0, 9.0, 7.0, 15.0]
    assert problem.tails[0].tolist() == [8.0, 1.0, 1.0, 0.0]


def test_without_precedence_heads_are_release_times() -> None:
    one = Instance.from_matrix(np.ones((2, 1)), release_times=[3.0, 0.0])
    problem = Problem.from_instances([one])
    assert problem.heads[0].tolist() == [3.0, 0.0]
    assert problem.tails[0].tolist() == [0.0, 0.0]


def test_repeated_rows_lie_side_by_side() -> None:
    instances = [Instance.from_matrix([[one]]) for one in (1.0, 2.0)]
    problem = Problem.from_instances(instances).repeat(3)
    assert problem.batch_size == 6
    assert problem.processing_times.flatten().tolist() == [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]
    assert problem.instances == (instances[0],) * 3 + (instances[1],) * 3


def test_selected_rows_come_in_the_order_asked_for() -> None:
    rng = np.random.default_rng(2)
    instances = [
        random_instance(rng, setups=True, precedence=True, lags=True, noisy=True) for _ in range(4)
    ]
    problem = Problem.from_instances(instances)
    rows = torch.tensor([3, 1, 1])
    selected = problem.select(rows)
    assert selected.instances == (instances[3], instances[1], instances[1])
    for field in fields(Problem):
        value = getattr(problem, field.name)
        if isinstance(value, Tensor):
            assert torch.equal(getattr(selected, field.name), value[rows]), field.name
    assert (selected.dense, selected.noisy) == (problem.dense, problem.noisy)


def test_a_batch_of_nothing_and_pruning_to_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one instance"):
        Problem.from_instances([])
    with pytest.raises(ValueError, match="keep_fastest must be at least 1, got 0"):
        Problem.from_instances([diamond()], keep_fastest=0)
