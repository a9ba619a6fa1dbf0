"""Annealing with precedence: optimal where all schedules can be listed, feasible everywhere."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hetsched.agents.annealing import anneal
from hetsched.agents.annealing_graph import anneal_graph, anneal_plan, can_anneal_graph
from hetsched.agents.exact import solve_exact
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.scenarios import get_scenario, sample_instances
from hetsched.tests.agents.small_graphs import all_schedules, small_graph
from hetsched.tests.agents.small_plans import OBJECTIVES, small_plan

MAKESPAN = Objective(makespan=1.0)


@pytest.mark.parametrize("seed", range(6))
def test_it_finds_the_best_of_all_schedules(seed: int) -> None:
    instance = small_graph(seed, jobs=4 + seed % 2, machines=2)
    everything = list(all_schedules(instance))
    for objective in OBJECTIVES:
        least = min(one.cost(instance, objective) for one in everything)
        found = anneal_graph(instance, objective, moves=4000, seed=seed)
        found.check(instance)
        assert found.cost(instance, objective) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_schedules_are_feasible_whatever_the_instance_asks_for(seed: int) -> None:
    instance = small_graph(seed, jobs=18, machines=4)
    for moves in (0, 1, 300):
        anneal_graph(instance, OBJECTIVES[seed % len(OBJECTIVES)], moves, seed).check(instance)


@pytest.mark.parametrize("seed", range(4))
def test_the_result_is_never_worse_than_the_start(seed: int) -> None:
    instance, objective = small_graph(seed, jobs=12, machines=3), OBJECTIVES[seed]
    start = anneal_graph(instance, objective, 20, seed)
    before = start.cost(instance, objective)
    for moves in (0, 1, 50, 500, 3000):
        found = anneal_graph(instance, objective, moves, seed + 1, start)
        assert found.cost(instance, objective) <= before * (1 + 1e-9)


def test_the_same_seed_gives_the_same_schedule() -> None:
    instance = small_graph(1, jobs=20, machines=3)
    one, same, other = (anneal_graph(instance, OBJECTIVES[3], 500, seed) for seed in (3, 3, 4))
    assert np.array_equal(one.modes, same.modes)
    assert np.array_equal(one.starts, same.starts)
    assert not np.array_equal(one.starts, other.starts)


@pytest.mark.parametrize("factor", [2.0**-40, 2.0**40])
def test_the_unit_of_time_changes_nothing(factor: float) -> None:
    instance = small_graph(1, jobs=12, machines=3)
    one = anneal_graph(instance, OBJECTIVES[3], 1500, 0)
    other = anneal_graph(instance.scaled(factor), OBJECTIVES[3], 1500, 0)
    assert np.array_equal(one.modes, other.modes)
    assert np.array_equal(one.starts * factor, other.starts)


def test_it_reaches_the_proven_optimum_of_a_job_shop() -> None:
    for instance in sample_instances(get_scenario("fjsp:set=sd2"), 2, 0, 4, 3):
        proven = solve_exact(instance, MAKESPAN, 20.0)
        assert proven.status == "optimal"
        found = anneal_graph(instance, MAKESPAN, 20_000, 0)
        assert found.cost(instance, MAKESPAN) == proven.cost


def test_without_precedence_the_other_loop_answers() -> None:
    instance = small_plan(2, jobs=8, machines=3)
    found = anneal_plan(instance, MAKESPAN, 200, 5)
    assert np.array_equal(found.starts, anneal(instance, MAKESPAN, 200, 5).starts)
    anneal_plan(small_graph(3, jobs=8), MAKESPAN, 200, 5).check(small_graph(3, jobs=8))


def test_both_loops_agree_where_there_is_no_precedence() -> None:
    instance = small_plan(1, jobs=5, machines=2)
    for objective in OBJECTIVES:
        one, other = (solve(instance, objective, 5000, 0) for solve in (anneal, anneal_graph))
        assert one.cost(instance, objective) == pytest.approx(other.cost(instance, objective))


PLAIN = Instance.from_matrix([[1.0, 2.0], [2.0, 1.0]])


@pytest.mark.parametrize(
    "instance",
    [
        dataclasses.replace(PLAIN, capacity=np.array([1, 2])),
        dataclasses.replace(PLAIN, actual_times=PLAIN.processing_times * 1.1),
    ],
    ids=["capacity", "actual times"],
)
def test_what_it_cannot_do_is_refused(instance: Instance) -> None:
    assert can_anneal_graph(PLAIN)
    assert not can_anneal_graph(instance)
    with pytest.raises(ValueError, match="annealing needs capacity 1 and no actual_times"):
        anneal_graph(instance, MAKESPAN, 10, 0)
