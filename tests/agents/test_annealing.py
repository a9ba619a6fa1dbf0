"""Simulated annealing: optimal where all schedules can be listed, feasible everywhere."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hetsched.agents.annealing import anneal, can_anneal
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.scenarios import get_scenario, sample_instances
from hetsched.tests.agents.small_plans import OBJECTIVES, all_schedules, small_plan

MAKESPAN = Objective(makespan=1.0)


@pytest.mark.parametrize("seed", range(6))
def test_it_finds_the_best_of_all_schedules(seed: int) -> None:
    instance = small_plan(seed, jobs=5 - seed % 2, machines=2 + seed % 2)
    everything = list(all_schedules(instance))
    for objective in OBJECTIVES:
        least = min(one.cost(instance, objective) for one in everything)
        found = anneal(instance, objective, moves=5000, seed=seed)
        found.check(instance)
        assert found.cost(instance, objective) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_schedules_are_feasible_whatever_the_instance_asks_for(seed: int) -> None:
    instance = small_plan(seed, jobs=15, machines=4)
    for moves in (0, 1, 300):
        anneal(instance, OBJECTIVES[seed % len(OBJECTIVES)], moves, seed).check(instance)


def test_the_same_seed_gives_the_same_schedule() -> None:
    instance = small_plan(1, jobs=20, machines=3)
    one, same, other = (anneal(instance, OBJECTIVES[3], 500, seed) for seed in (3, 3, 4))
    assert np.array_equal(one.modes, same.modes)
    assert np.array_equal(one.starts, same.starts)
    assert not np.array_equal(one.starts, other.starts)


@pytest.mark.parametrize("seed", range(5))
def test_the_result_is_never_worse_than_the_start(seed: int) -> None:
    instance, objective = small_plan(seed, jobs=12, machines=3), OBJECTIVES[seed]
    start = anneal(instance, objective, 20, seed)
    before = start.cost(instance, objective)
    for moves in (0, 1, 5, 50, 500):
        cost = anneal(instance, objective, moves, seed + 1, start).cost(instance, objective)
        assert cost <= before * (1 + 1e-12)


def test_without_moves_the_start_comes_back() -> None:
    instance = small_plan(3, jobs=9, machines=3)
    start = anneal(instance, MAKESPAN, 200, 0)
    again = anneal(instance, MAKESPAN, 0, 1, start)
    assert np.array_equal(start.modes, again.modes)
    assert np.array_equal(start.starts, again.starts)


@pytest.mark.parametrize("factor", [2.0**-40, 2.0**40])
def test_the_unit_of_time_changes_nothing(factor: float) -> None:
    instance = small_plan(1, jobs=12, machines=3)
    one = anneal(instance, OBJECTIVES[3], 2000, 0)
    other = anneal(instance.scaled(factor), OBJECTIVES[3], 2000, 0)
    assert np.array_equal(one.modes, other.modes)
    assert np.array_equal(one.starts * factor, other.starts)


def test_more_moves_find_better_schedules() -> None:
    scenario = get_scenario("hitzges")
    instances = sample_instances(scenario, 10, 0, 20, 4)
    few, many = (
        sum(anneal(one, scenario.objective, moves, 0).cost(one, scenario.objective) for one in
            instances)
        for moves in (100, 20_000)
    )  # fmt: skip
    assert many < 0.9 * few


def test_a_job_takes_its_fastest_mode_on_a_machine() -> None:
    instance = Instance(
        num_jobs=1,
        num_machines=1,
        mode_jobs=np.array([0, 0, 0]),
        mode_machines=np.array([0, 0, 0]),
        processing_times=np.array([4.0, 2.0, 3.0]),
    )
    schedule = anneal(instance, MAKESPAN, 10, 0)
    assert schedule.modes.tolist() == [1]
    assert schedule.ends.tolist() == [2.0]


def test_a_cost_of_zero_is_kept() -> None:
    instance = Instance.from_matrix([[2.0, 3.0], [3.0, 2.0]], due_times=[100.0, 100.0])
    objective = Objective(weighted_tardiness=1.0)
    assert anneal(instance, objective, 500, 0).cost(instance, objective) == 0.0


PLAIN = Instance.from_matrix([[1.0, 2.0], [2.0, 1.0]])


@pytest.mark.parametrize(
    "instance",
    [
        dataclasses.replace(
            PLAIN, precedence=np.array([[0], [1]]), precedence_lags=np.array([0.0])
        ),
        dataclasses.replace(PLAIN, capacity=np.array([1, 2])),
        dataclasses.replace(PLAIN, actual_times=PLAIN.processing_times * 1.1),
    ],
    ids=["precedence", "capacity", "actual times"],
)
def test_what_it_cannot_do_is_refused(instance: Instance) -> None:
    assert can_anneal(PLAIN)
    assert not can_anneal(instance)
    with pytest.raises(ValueError, match="annealing needs capacity 1, no precedence and no actual"):
        anneal(instance, MAKESPAN, 10, 0)
