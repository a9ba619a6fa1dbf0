"""Exact schedules: against exhaustive enumeration, known optima and the other model."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from hetsched.agents.exact import solve_exact, timed_again
from hetsched.agents.exact_ticks import to_ticks
from hetsched.agents.policy import rollout
from hetsched.agents.rules import make_rule
from hetsched.envs.files import load_set
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.schedule import InfeasibleSchedule
from hetsched.envs.simulator import State
from hetsched.tests.envs.instances import random_instance

LIMIT = 30.0  # seconds; the instances here need a fraction of one
EVERYTHING = Objective(
    makespan=1,
    weighted_tardiness=2,
    machine_tardiness=0.5,
    weighted_completion=0.25,
    flow_time=1.5,
    setup_time=3,
)
HITZGES = Objective(makespan=1, weighted_tardiness=1, machine_tardiness=1)


def cheapest_of_all(instance: Instance, objective: Objective) -> float:
    """The least cost over all orders of picking jobs and all modes, by the simulator."""
    problem = Problem.from_instances([instance])
    slots = [torch.nonzero(mask).squeeze(1).tolist() for mask in problem.mode_mask[0]]
    sequences = [
        [job * problem.num_modes + slot for job, slot in zip(order, chosen, strict=True)]
        for order in itertools.permutations(range(instance.num_jobs))
        if all(order.index(a) < order.index(b) for a, b in instance.precedence.T)
        for chosen in itertools.product(*(slots[job] for job in order))
    ]
    state = State.initial(problem.repeat(len(sequences)), objective, "plan")
    for actions in torch.tensor(sequences).T:
        state.step(actions)
    return float(state.cost().min())


@pytest.mark.parametrize(
    "features",
    [
        {},
        {"releases": True, "precedence": True},
        {"releases": True, "setups": True},
        {"precedence": True, "lags": True, "setups": True, "releases": True},
        {"shared": True, "releases": True},
        {"shared": True, "parallel": True, "precedence": True, "lags": True},
    ],
    ids="-".join,
)
@pytest.mark.parametrize("factor", [1.0, 0.3717])
def test_no_schedule_costs_less_whatever_the_problem_has(features, factor):
    rng = np.random.default_rng(11)
    jobs = 3 if "parallel" in features else 4
    for _ in range(3):
        instance = random_instance(rng, jobs=jobs, machines=2, **features).scaled(factor)
        found = solve_exact(instance, EVERYTHING, LIMIT)
        assert found.status == "optimal"
        found.schedule.check(instance)
        assert found.cost == found.schedule.cost(instance, EVERYTHING)
        assert found.cost == pytest.approx(cheapest_of_all(instance, EVERYTHING), rel=1e-9)
        assert found.bound <= found.cost
        assert found.gap < 1e-4


@pytest.mark.parametrize(
    "objective",
    [
        Objective(makespan=1),
        Objective(weighted_tardiness=1, makespan=0.5),
        Objective(weighted_completion=2),
        Objective(flow_time=1, per_job=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("features", [(), ("release_times", "precedence"), ("setup_times",)])
def test_pyjobshop_and_our_own_model_agree(objective, features):
    rng = np.random.default_rng(5)
    jobs = 5 if "setup_times" in features else 7  # set-ups take longest to prove
    setups = rng.integers(0, 9, (jobs + 1, jobs, 2))
    setups[-1] = 0
    possible = {
        "release_times": rng.integers(0, 20, jobs),
        "precedence": [[0, 2], [1, 3]],
        "setup_times": setups,
    }
    instance = Instance.from_matrix(
        rng.integers(1, 30, (jobs, 2)),
        due_times=np.where(rng.random(jobs) < 0.7, rng.integers(5, 60, jobs), np.inf),
        weights=rng.integers(1, 5, jobs),
        **{name: possible[name] for name in features},
    )
    a = solve_exact(instance, objective, LIMIT, engine="pyjobshop")
    b = solve_exact(instance, objective, LIMIT, engine="direct")
    assert (a.engine, b.engine) == ("pyjobshop", "direct")
    assert a.status == b.status == "optimal"
    assert a.cost == pytest.approx(b.cost)
    a.schedule.check(instance)


def test_pyjobshop_is_chosen_where_it_can_express_the_problem():
    flow = Objective(flow_time=1)
    plain = Instance.from_matrix([[3, 4], [2, 5]])
    held = Instance.from_matrix([[3, 4], [2, 5]], machine_available=[1, 0])
    assert solve_exact(plain, flow, LIMIT).engine == "pyjobshop"
    assert solve_exact(held, flow, LIMIT).engine == "direct"
    with pytest.raises(ValueError, match="PyJobShop cannot express machines occupied at the start"):
        solve_exact(held, flow, LIMIT, engine="pyjobshop")


def test_where_only_loads_count_the_model_has_no_intervals():
    rng = np.random.default_rng(4)
    objective = Objective(makespan=1, machine_tardiness=2)
    instance = Instance.from_matrix(
        rng.integers(1, 30, (8, 3)),
        machine_available=[3, 0, 9],
        machine_due_times=[0, 20, 30],
        machine_weights=[1, 2, 3],
    )
    loads = solve_exact(instance, objective, LIMIT)
    intervals = solve_exact(instance, objective, LIMIT, engine="direct")
    assert (loads.engine, loads.status, intervals.status) == ("loads", "optimal", "optimal")
    assert loads.cost == intervals.cost
    loads.schedule.check(instance)
    hinted = solve_exact(instance, objective, LIMIT, hint=intervals.schedule)
    assert hinted.cost == loads.cost


def test_the_hitzges_optima_are_found_and_proven(data_dir):
    known = load_set(data_dir / "hitzges" / "8x4.npz")
    for index in range(6):
        found = solve_exact(known.instances[index], HITZGES, LIMIT)
        assert found.status == "optimal"
        assert found.cost == found.bound == known.references["optimum"][index]
        found.schedule.check(known.instances[index])


def test_a_makespan_optimum_is_found_and_proven(data_dir):
    known = load_set(data_dir / "rcmax" / "20x4.npz")
    found = solve_exact(known.instances[0], Objective(makespan=1), LIMIT)
    assert found.status == "optimal"
    assert found.cost == found.bound == known.references["optimum"][0]


def test_the_answer_is_never_worse_than_the_hint():
    rng = np.random.default_rng(0)
    instance = random_instance(rng, jobs=40, machines=4, setups=True, releases=True)
    state = State.initial(Problem.from_instances([instance]), EVERYTHING, "plan")
    hint = rollout(make_rule("atcs-r"), state).schedules()[0]
    found = solve_exact(instance, EVERYTHING, time_limit=0.05, hint=hint)
    assert found.status == "feasible"
    assert found.bound <= found.cost <= hint.cost(instance, EVERYTHING)
    found.schedule.check(instance)


@pytest.mark.parametrize("engine", ["pyjobshop", "direct"])
def test_a_hint_starts_either_model(engine):
    instance = Instance.from_matrix([[3.5, 4], [2, 5], [1, 1]], release_times=[0, 1, 0.5])
    objective = Objective(weighted_completion=1)
    hint = solve_exact(instance, objective, LIMIT).schedule
    again = solve_exact(instance, objective, LIMIT, hint=hint, engine=engine)
    assert again.cost == hint.cost(instance, objective)
    assert again.status == "optimal"


def test_no_schedule_in_time_is_unknown():
    rng = np.random.default_rng(0)
    instance = random_instance(rng, jobs=60, machines=4, setups=True, releases=True)
    found = solve_exact(instance, EVERYTHING, time_limit=1e-3)
    assert (found.schedule, found.cost, found.status) == (None, math.inf, "unknown")
    assert 0 <= found.bound < math.inf
    assert found.gap == 1.0


def test_true_durations_count_where_the_instance_has_them():
    instance = Instance.from_matrix([[1.0, 5.0]], actual_times=[[9.0, 5.0]])
    assert solve_exact(instance, Objective(makespan=1), LIMIT).cost == 5.0


def test_an_infeasible_hint_is_refused():
    instance = Instance.from_matrix([[3], [4]])
    other = Instance.from_matrix([[3], [1]])
    hint = solve_exact(other, Objective(makespan=1), LIMIT).schedule
    with pytest.raises(InfeasibleSchedule):
        solve_exact(instance, Objective(makespan=1), LIMIT, hint=hint)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"time_limit": 0}, "time_limit must be above 0 seconds, got 0"),
        ({"time_limit": math.nan}, "time_limit must be above 0 seconds, got nan"),
        ({"time_limit": 1, "workers": 0}, "workers must be at least 1, got 0"),
    ],
)
def test_limits_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        solve_exact(Instance.from_matrix([[3]]), Objective(makespan=1), **arguments)


def test_times_with_few_decimals_become_whole_and_others_are_rounded_down():
    instance = Instance.from_matrix([[0.25], [3.0]], release_times=[0, 1.5])
    ticks = to_ticks(instance, Objective(makespan=1))
    assert (ticks.per_time, ticks.whole) == (100.0, True)
    assert ticks.durations.tolist() == [25, 300]
    assert ticks.release.tolist() == [0, 150]
    third = to_ticks(Instance.from_matrix([[1 / 3], [3.0]]), Objective(makespan=1))
    assert not third.whole
    assert third.durations[0] <= third.per_time / 3 < third.durations[0] + 1


def test_weights_of_any_unit_count():
    instance = Instance.from_matrix([[3.0], [2.0]], due_times=[0, 0], weights=[1e-11, 3e-11])
    ticks = to_ticks(instance, Objective(weighted_tardiness=1))
    assert ticks.tardiness.tolist() == [1, 3]
    found = solve_exact(instance, Objective(weighted_tardiness=1), time_limit=10)
    assert found.cost == pytest.approx(2 * 3e-11 + 5 * 1e-11)


def test_timing_again_removes_idle_time_and_keeps_the_order():
    instance = Instance.from_matrix([[3, 9], [4, 9], [9, 2]], release_times=[1, 0, 5])
    schedule = timed_again(instance, np.array([0, 2, 5]), np.array([50, 70, 60]))
    assert schedule.starts.tolist() == [1, 4, 5]
    assert schedule.ends.tolist() == [4, 8, 7]
    schedule.check(instance)
