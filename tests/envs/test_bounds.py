"""The bound against hand-made numbers and against every schedule of tiny instances."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hetsched.envs.instance import Instance
from hetsched.envs.objective import TERMS, Objective
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.tests.envs.decisions import EVERYTHING, random_decisions, state_after
from hetsched.tests.envs.instances import random_instance

OPTIONS: list[dict[str, bool]] = [
    {},
    {"releases": True},
    {"setups": True},
    {"precedence": True, "lags": True},
    {"shared": True},
    {"parallel": True},
    {"shared": True, "releases": True, "precedence": True},
]


def least_cost(state: State) -> float:
    """The least cost of any way to go on, with the bound checked at every state on the way."""
    if bool(state.done):
        cost = float(state.cost())
        schedule, instance = state.schedules()[0], state.problem.instances[0]
        assert float(state.bound) == pytest.approx(cost)
        assert schedule.cost(instance, state.objective) == pytest.approx(cost)
        return cost
    least = float("inf")
    for action in state.mask()[0].nonzero().flatten():
        after = state.clone()
        reward = after.step(action[None])
        assert float(after.bound) >= float(state.bound) - 1e-9, "the bound fell"
        assert float(reward) == pytest.approx(float(state.bound - after.bound))
        least = min(least, least_cost(after))
    assert float(state.bound) <= least + 1e-9, "the bound lies above the optimal cost"
    return least


@pytest.mark.parametrize("deciding", ["plan", "dispatch"])
@pytest.mark.parametrize("options", OPTIONS, ids="-".join)
def test_the_bound_never_exceeds_the_least_cost_and_never_falls(
    deciding: str, options: dict[str, bool]
) -> None:
    rng = np.random.default_rng(17)
    for _ in range(2):
        jobs = 2 if options.get("parallel") else 3
        instance = random_instance(rng, jobs=jobs, machines=2, **options)
        least_cost(state_after(instance, EVERYTHING, deciding))


def test_the_bound_holds_where_durations_are_uncertain() -> None:
    rng = np.random.default_rng(19)
    for _ in range(3):
        instance = random_instance(rng, jobs=3, machines=2, releases=True, noisy=True)
        least_cost(state_after(instance, EVERYTHING, "dispatch"))


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("per_job", [False, True])
def test_the_bound_holds_for_each_term_alone(term: str, per_job: bool) -> None:
    objective = Objective(**{term: 2.0}, per_job=per_job)
    instance = random_instance(np.random.default_rng(23), jobs=3, machines=2, setups=True)
    least_cost(state_after(instance, objective, "plan"))


HAND = Instance.from_matrix(
    np.array([[4.0, 9.0], [6.0, 5.0]]),
    machine_available=[1.0, 3.0],
    release_times=[2.0, 0.0],
    due_times=[5.0, 100.0],
    weights=[3.0, 1.0],
    machine_due_times=[100.0, 2.0],
    machine_weights=[1.0, 7.0],
)


@pytest.mark.parametrize(
    ("term", "first", "later", "cost"),
    [
        # job 0 ends at 2 + 4 at least, job 1 at 1 + 6, then behind job 0 (6 + 6) or at 3 + 5
        ("makespan", 7.0, 8.0, 12.0),
        ("weighted_tardiness", 3.0, 3.0, 3.0),  # job 0: 3 * (6 - 5)
        ("machine_tardiness", 7.0, 7.0, 7.0),  # machine 1 is busy until 3: 7 * (3 - 2)
        ("weighted_completion", 3 * 6.0 + 7.0, 3 * 6.0 + 8.0, 3 * 6.0 + 12.0),
        ("flow_time", 4.0 + 7.0, 4.0 + 8.0, 4.0 + 12.0),
    ],
)
def test_the_bound_by_hand(term: str, first: float, later: float, cost: float) -> None:
    state = state_after(HAND, Objective(**{term: 1.0}), "plan")
    assert float(state.bound) == float(state.initial_bound) == first
    state.step(torch.tensor([0]))  # job 0 on machine 0: 2..6
    assert float(state.bound) == later
    state.step(torch.tensor([2]))  # job 1 behind it: 6..12
    assert float(state.cost()) == cost


def test_set_ups_count_once_they_are_paid() -> None:
    setups = np.zeros((3, 2, 1))
    setups[2, 0], setups[0, 1] = 5.0, 2.0
    instance = Instance.from_matrix([[4.0], [4.0]], setup_times=setups)
    state = state_after(instance, Objective(setup_time=1.0), "plan")
    bounds = [float(state.bound)]
    for action in (0, 1):
        state.step(torch.tensor([action]))
        bounds.append(float(state.bound))
    assert bounds == [0.0, 5.0, 7.0]


def test_waiting_costs_what_the_clock_takes() -> None:
    instance = Instance.from_matrix(np.array([[5.0, 8.0], [2.0, 9.0]]))
    state = state_after(instance, Objective(makespan=1.0), "dispatch", [2])  # job 1: 0..2
    assert float(state.bound) == 7.0
    assert float(state.step(torch.tensor([4]))) == 0.0  # job 0 waits for machine 0: 2..7
    assert (float(state.now), float(state.bound)) == (2.0, 7.0)


def test_padding_adds_nothing() -> None:
    rng = np.random.default_rng(29)
    instances = [random_instance(rng, jobs=n, machines=m) for n, m in ((1, 1), (4, 3), (2, 4))]
    together = State.initial(Problem.from_instances(instances), EVERYTHING, "plan")
    for row, instance in enumerate(instances):
        alone = state_after(instance, EVERYTHING, "plan")
        assert float(together.bound[row]) == pytest.approx(float(alone.bound))


def test_unfinished_rows_have_no_cost() -> None:
    state = state_after(HAND, EVERYTHING, "plan")
    assert state.cost().isnan().all()
    random_decisions(state, 2)
    assert float(state.cost()) == float(state.bound)


def test_the_makespan_is_no_less_than_the_path_behind_a_job_that_starts_late() -> None:
    # Job 0 must wait for machine 0 until 10, and job 1 for job 0.
    nowhere = np.inf
    instance = Instance.from_matrix(
        [[2, nowhere], [nowhere, 3]], machine_available=[10, 0], precedence=[[0], [1]]
    )
    problem = Problem.from_instances([instance])
    state = State.initial(problem, Objective(makespan=1.0), "plan")
    assert state.bound.tolist() == [15.0]
