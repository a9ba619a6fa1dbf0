"""Ruin and recreate: optimal where all schedules can be listed, feasible and repeatable."""

from __future__ import annotations

import numpy as np
import pytest

from hetsched.agents.annealing import anneal
from hetsched.agents.annealing_loop import late, refresh
from hetsched.agents.ruin import RuinAndRecreate
from hetsched.agents.ruin_loop import best_place
from hetsched.tests.agents.small_plans import OBJECTIVES, all_schedules, rebuilt, small_plan


@pytest.mark.parametrize("seed", range(6))
def test_ruins_alone_find_the_best_of_all_schedules(seed: int) -> None:
    instance = small_plan(seed, jobs=5 - seed % 2, machines=2 + seed % 2)
    everything = list(all_schedules(instance))
    for objective in OBJECTIVES:
        least = min(one.cost(instance, objective) for one in everything)
        worst = max(everything, key=lambda one: one.cost(instance, objective))
        chain = RuinAndRecreate(instance, objective, seed, worst)
        chain.ruin(3000, 0.5, 0.001)
        assert chain.schedule().cost(instance, objective) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_schedules_are_feasible_and_cost_what_the_loop_says(seed: int) -> None:
    instance, objective = small_plan(seed, jobs=18, machines=4), OBJECTIVES[seed % len(OBJECTIVES)]
    chain = RuinAndRecreate(instance, objective, seed)
    for ruins in (0, 1, 10, 300, 1000):
        chain.ruin(ruins, 0.5, 0.01)
        found = chain.schedule()
        found.check(instance)
        divisor = instance.num_jobs if objective.per_job else 1
        assert chain.cost / divisor == pytest.approx(found.cost(instance, objective), rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_result_is_never_worse_than_the_start_nor_than_before(seed: int) -> None:
    instance, objective = small_plan(seed, jobs=12, machines=3), OBJECTIVES[seed]
    start = anneal(instance, objective, 20, seed)
    chain = RuinAndRecreate(instance, objective, seed, start)
    costs = [start.cost(instance, objective) * (1 + 1e-12)]
    for _ in range(8):
        chain.run_mixed(50, 1.0)
        costs.append(chain.schedule().cost(instance, objective))
    assert costs == sorted(costs, reverse=True)


def test_the_same_seed_gives_the_same_schedule() -> None:
    instance = small_plan(1, jobs=25, machines=4)
    chains = [RuinAndRecreate(instance, OBJECTIVES[3], seed) for seed in (3, 3, 4)]
    for chain in chains:
        assert chain.run_mixed(900, 0.1) == 900
    one, same, other = (chain.schedule() for chain in chains)
    assert np.array_equal(one.modes, same.modes)
    assert np.array_equal(one.starts, same.starts)
    assert not np.array_equal(one.starts, other.starts)


def test_moves_and_ruins_continue_one_another() -> None:
    instance, objective = small_plan(5, jobs=20, machines=3), OBJECTIVES[1]
    chain = RuinAndRecreate(instance, objective, 0)
    for _ in range(20):
        chain.run(20, 0.05, 0.05)
        before = chain.cost
        chain.ruin(20, 0.05, 0.05)
        assert chain.cost <= before
        found = chain.schedule()
        found.check(instance)
        assert found.cost(instance, objective) == pytest.approx(chain.cost, rel=1e-9)


def test_a_cost_that_is_low_enough_ends_the_ruins() -> None:
    chain = RuinAndRecreate(small_plan(2, jobs=10), OBJECTIVES[1], 0)
    assert chain.ruin(50, 0.1, 0.1, floor=chain.cost) == 0
    assert chain.run_mixed(50, 0.1, floor=chain.cost) == 0


@pytest.mark.parametrize("seed", range(12))
def test_the_best_place_is_the_cheapest_of_all_places(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = small_plan(seed, jobs=14, machines=2)
    for objective in (OBJECTIVES[1], OBJECTIVES[3], OBJECTIVES[4]):
        chain = RuinAndRecreate(instance, objective, seed)
        times, _, release, due, weight, available, machine_due, machine_weight, *rest = chain._data
        data = times, release, due, weight, *rest
        job, factors = int(rng.integers(instance.num_jobs)), rest[-1]
        rates = factors[2] * machine_weight
        order, lengths = chain._now.order, chain._now.lengths
        machines = instance.mode_machines[chain.schedule().modes]
        at = int(np.flatnonzero(order[machines[job]] == job)[0])
        order[machines[job], at:-1] = order[machines[job], at + 1 :].copy()
        lengths[machines[job]] -= 1
        frees, costs = np.zeros((2, 2, 15))
        frees[:, 0] = available
        totals = np.zeros(2)
        for k in range(2):
            own, end = refresh(data, k, 0, order, lengths[k], frees, costs, np.zeros(14, np.int64))
            totals[k] = own + late(end, machine_due[k], rates[k])
        finishes = frees[[0, 1], lengths]
        now, peak = (order, lengths, frees, costs, totals, finishes), finishes.max()
        sequences = [order[k, : lengths[k]].tolist() for k in range(2)]
        for k in np.flatnonzero(np.isfinite(times[job])):
            where = (data, k, job, now, machine_due[k], rates[k])
            draws = np.ones(1, np.uint64)
            cost, place = best_place(*where, np.inf, factors[0], peak, 0.0, draws)
            everywhere = []
            for position in range(lengths[k] + 1):
                longer = [list(one) for one in sequences]
                longer[k].insert(position, job)
                schedule = rebuilt(instance, longer)
                assert schedule is not None
                everywhere.append(schedule.cost(instance, objective))
            found = cost + totals[1 - k] + factors[0] * peak
            assert found == pytest.approx(min(everywhere), rel=1e-9)
            assert everywhere[place] == pytest.approx(min(everywhere), rel=1e-9)
            tight = cost * (1 - 1e-9)
            assert best_place(*where, tight, factors[0], peak, 0.0, draws)[1] == -1
