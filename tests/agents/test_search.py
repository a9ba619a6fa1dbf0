"""Search: never worse than its start, feasible, repeatable, on time."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from hetsched.agents.annealing import Annealing
from hetsched.agents.search import Budget, first_schedule, improve, least_cost
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.tests.agents.small_plans import OBJECTIVES, all_schedules, small_plan
from hetsched.tests.envs.instances import random_instance
from hetsched.tests.envs.list_schedule import draw, list_schedule

MAKESPAN = Objective(makespan=1.0)


@pytest.mark.parametrize("seed", range(12))
def test_it_is_feasible_and_never_worse_than_the_start_whatever_the_instance_has(seed: int) -> None:
    instance, start = draw(seed, shared=False)
    for objective in OBJECTIVES:
        before = start.cost(instance, objective)
        for moves in (0, 3, 500):
            found = improve(instance, objective, start, Budget(moves=moves), seed=seed)
            found.check(instance)
            assert found.cost(instance, objective) <= before


@pytest.mark.parametrize("seed", range(4))
def test_machines_of_several_units_are_searched_by_the_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = random_instance(rng, jobs=6, machines=4, shared=True, precedence=seed % 2 == 1)
    assert (instance.capacity > 1).any()
    start = list_schedule(instance, rng)
    found = improve(instance, MAKESPAN, start, Budget(seconds=0.3))
    found.check(instance)
    assert found.cost(instance, MAKESPAN) <= start.cost(instance, MAKESPAN)
    with pytest.raises(ValueError, match="give a budget of seconds"):
        improve(instance, MAKESPAN, start, Budget(moves=10))


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_the_best_of_all_schedules(seed: int) -> None:
    instance = small_plan(seed, jobs=5, machines=2, whole=seed % 2 == 0)
    everything = list(all_schedules(instance))
    for objective in OBJECTIVES:
        least = min(one.cost(instance, objective) for one in everything)
        start = max(everything, key=lambda one: one.cost(instance, objective))
        found = improve(instance, objective, start, Budget(moves=60_000), seed=seed)
        assert found.cost(instance, objective) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("precedence", [False, True])
def test_the_same_seed_and_moves_give_the_same_schedule(precedence: bool) -> None:
    rng = np.random.default_rng(3)
    instance = random_instance(rng, jobs=25, machines=4, setups=True, precedence=precedence)
    start, objective = list_schedule(instance, rng), OBJECTIVES[4]
    one, same, other = (
        improve(instance, objective, start, Budget(moves=2000), seed=seed) for seed in (5, 5, 6)
    )
    assert np.array_equal(one.starts, same.starts)
    assert not np.array_equal(one.starts, other.starts)


@pytest.mark.parametrize("seed", range(8))
def test_the_cost_kept_by_the_loop_is_the_cost_of_the_schedule(seed: int) -> None:
    instance, objective = small_plan(seed, jobs=18, machines=4), OBJECTIVES[seed % len(OBJECTIVES)]
    chain = Annealing(instance, objective, seed)
    for moves in (1, 10, 1000, 5000):
        chain.run(moves, 0.5, 0.01)
        cost = chain.schedule().cost(instance, objective)
        divisor = instance.num_jobs if objective.per_job else 1
        assert chain.cost / divisor == pytest.approx(cost, rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_no_schedule_costs_less_than_the_least_cost(seed: int) -> None:
    instance, schedule = draw(seed)
    for objective in OBJECTIVES:
        assert least_cost(instance, objective) <= schedule.cost(instance, objective)


def test_a_known_optimum_ends_the_search() -> None:
    instance = Instance.from_matrix(np.full((4, 2), 3.0))
    began = time.perf_counter()
    found = improve(instance, MAKESPAN, first_schedule(instance, MAKESPAN), Budget(seconds=60.0))
    assert found.cost(instance, MAKESPAN) == 6.0
    assert time.perf_counter() - began < 30


def test_a_makespan_that_only_rounding_separates_from_the_least_ends_the_search() -> None:
    """Two machines share 40 jobs so evenly that no target lies between the best and the floor."""
    for seed in range(6):
        times = np.random.default_rng(seed).uniform(1, 2, (40, 1)).repeat(2, axis=1)
        instance = Instance.from_matrix(times)
        start = first_schedule(instance, MAKESPAN)
        began = time.process_time()
        improve(instance, MAKESPAN, start, Budget(seconds=0.3), seed=seed)
        assert time.process_time() - began < 5


def test_a_start_that_holds_jobs_back_is_not_what_a_makespan_search_ends_with() -> None:
    times = np.random.default_rng(1).integers(1, 30, (12, 3)).astype(float)
    instance = Instance.from_matrix(times)
    start = first_schedule(instance, MAKESPAN)
    late = dataclasses.replace(start, starts=start.starts + 1000, ends=start.ends + 1000)
    budget = Budget(moves=2000)
    found = improve(instance, MAKESPAN, late, budget).cost(instance, MAKESPAN)
    assert found <= start.cost(instance, MAKESPAN)


def test_time_spent_before_a_search_counts_however_many_threads_search() -> None:
    instance = small_plan(1, jobs=60, machines=5)
    start = first_schedule(instance, OBJECTIVES[3])
    improve(instance, OBJECTIVES[3], start, Budget(moves=10))  # compiles
    budget = Budget(seconds=1.0)
    time.sleep(0.9)
    began = time.perf_counter()
    improve(instance, OBJECTIVES[3], start, budget, threads=2)
    assert time.perf_counter() - began < 0.9


def test_a_search_ends_soon_after_its_time() -> None:
    instance = small_plan(1, jobs=60, machines=5)
    start = first_schedule(instance, OBJECTIVES[3])
    improve(instance, OBJECTIVES[3], start, Budget(moves=10))  # compiles
    began = time.process_time()
    improve(instance, OBJECTIVES[3], start, Budget(seconds=0.2))
    assert time.process_time() - began < 0.3


def test_threads_search_side_by_side_and_the_best_counts() -> None:
    instance, objective = small_plan(2, jobs=30, machines=4), OBJECTIVES[3]
    start = first_schedule(instance, objective)
    alone = [
        improve(instance, objective, start, Budget(moves=3000), seed=seed).cost(instance, objective)
        for seed in (7, 8)
    ]
    both = improve(instance, objective, start, Budget(moves=3000), seed=7, threads=2)
    assert both.cost(instance, objective) == min(alone)


@pytest.mark.parametrize("seed", range(6))
def test_there_is_a_first_schedule_whatever_the_instance_has(seed: int) -> None:
    instance, _ = draw(seed + 50)
    first_schedule(instance, MAKESPAN).check(instance)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "moves or seconds"),
        ({"moves": 1, "seconds": 1.0}, "moves or seconds"),
        ({"moves": -1}, "moves must not be negative"),
        ({"seconds": float("nan")}, "seconds must be at least 0"),
    ],
)
def test_a_budget_is_one_of_two_things(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Budget(**arguments)
