"""Schedules: costs known by hand, invariances, and the JSON form."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.envs.files import load_set
from hetsched.envs.instance import Instance
from hetsched.envs.objective import TERMS, Objective
from hetsched.envs.schedule import Schedule
from hetsched.tests.envs.list_schedule import draw, list_schedule, make

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = st.integers(0, 10_000)
EVERYTHING = Objective.from_dict({name: 1.0 + at for at, name in enumerate(TERMS)})


@pytest.fixture
def instance() -> Instance:
    """Two machines; machine 1 is occupied until 3.  Job 0 runs on both, 1 and 2 on machine 0."""
    return Instance.from_matrix(
        np.array([[4.0, 6.0], [2.0, np.inf], [3.0, np.inf]]),
        release_times=[0, 0, 1],
        due_times=[5, 3, np.inf],
        weights=[1, 2, 3],
        machine_available=[0, 3],
        machine_due_times=[4, 2],
        machine_weights=[1, 10],
    )


def test_terms_are_those_computed_by_hand(instance: Instance) -> None:
    # machine 0: job 1 [0, 2], job 2 [2, 5]; machine 1: job 0 [3, 9]
    schedule = make([1, 2, 3], [3, 0, 2], [9, 2, 5])
    schedule.check(instance)
    assert schedule.machines(instance).tolist() == [1, 0, 0]
    assert schedule.machine_finishes(instance).tolist() == [5, 9]
    assert schedule.terms(instance) == {
        "makespan": 9.0,
        "weighted_tardiness": 4.0,
        "machine_tardiness": 1 * 1 + 10 * 7,
        "weighted_completion": 9 + 2 * 2 + 3 * 5,
        "flow_time": 9 + 2 + 4,
        "setup_time": 0.0,
    }
    assert schedule.cost(instance, Objective(makespan=1, weighted_tardiness=2)) == 17.0
    assert schedule.cost(instance, Objective(flow_time=1, per_job=True)) == 5.0


def test_a_machine_without_jobs_still_finishes_after_its_initial_occupation() -> None:
    instance = Instance.from_matrix(
        [[1, 1]], machine_available=[0, 50], machine_due_times=[0, 20], machine_weights=[1, 2]
    )
    terms = make([0], [0], [1]).terms(instance)
    assert terms["makespan"] == 50.0
    assert terms["machine_tardiness"] == 1 + 2 * 30


def test_set_up_times_follow_the_order_on_the_machine() -> None:
    setups = np.zeros((3, 2, 1))
    setups[2, 1, 0], setups[1, 0, 0] = 5, 7  # idle start before job 1, then job 0 after job 1
    instance = Instance.from_matrix([[1], [2]], setup_times=setups)
    schedule = make([0, 1], [14, 5], [15, 7], setups=[7, 5])
    schedule.check(instance)
    assert schedule.required_setups(instance).tolist() == [7, 5]
    assert schedule.terms(instance)["setup_time"] == 12.0


def test_a_cost_needs_every_job_scheduled() -> None:
    with pytest.raises(ValueError, match="job 1 is not scheduled; give every job a mode"):
        make([0, -1], [0, 0], [2, 0]).terms(Instance.from_matrix([[2], [3]]))


def test_arrays_of_a_schedule_must_agree() -> None:
    with pytest.raises(ValueError, match=r"starts has shape \(1,\); give \(2,\), which is one per"):
        make([0, 1], [0], [2, 5])
    with pytest.raises(ValueError, match=r"modes\[1\] is 0.5; give a whole number"):
        make([0, 0.5], [0, 2], [2, 5])


@given(SEEDS)
def test_scaling_all_times_scales_every_term(seed: int) -> None:
    instance, schedule = draw(seed)
    scaled = Schedule(
        schedule.modes, schedule.starts * 1000, schedule.ends * 1000, schedule.setups * 1000
    )
    big = instance.scaled(1000.0)
    assert scaled.violations(big) == []
    terms = schedule.terms(instance)
    assert scaled.terms(big) == pytest.approx({name: terms[name] * 1000 for name in terms})


@given(SEEDS)
def test_permuting_jobs_and_machines_keeps_the_costs(seed: int) -> None:
    instance, schedule = draw(seed)
    rng = np.random.default_rng(seed)
    jobs, machines = rng.permutation(instance.num_jobs), rng.permutation(instance.num_machines)
    there = instance.permuted(jobs, machines)
    # Modes are sorted by their new job, in their old order within it.
    order = np.argsort(np.argsort(jobs)[instance.mode_jobs], kind="stable")
    moved = Schedule(
        modes=np.argsort(order)[schedule.modes[jobs]],
        starts=schedule.starts[jobs],
        ends=schedule.ends[jobs],
        setups=schedule.setups[jobs],
    )
    assert moved.violations(there) == []
    assert moved.terms(there) == pytest.approx(schedule.terms(instance))
    assert moved.cost(there, EVERYTHING) == pytest.approx(schedule.cost(instance, EVERYTHING))


@given(SEEDS)
def test_json_reads_back_the_same(seed: int) -> None:
    _, schedule = draw(seed)
    back = Schedule.from_json(schedule.to_json())
    for one in dataclasses.fields(Schedule):
        assert np.array_equal(getattr(back, one.name), getattr(schedule, one.name))


def test_unscheduled_jobs_survive_json() -> None:
    back = Schedule.from_json(make([0, -1], [0, np.nan], [2, np.inf]).to_json())
    assert back.modes.tolist() == [0, -1]
    assert back.starts.tolist() == [0, np.inf]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the schedule is not JSON; give what Schedule.to_json wrote"),
        ("[" * 100_000, "the schedule is not JSON"),
        ("[1]", 'the JSON has no "format": "hetsched schedule"'),
        ('{"format": "other"}', 'the JSON has no "format"'),
        ('{"format": "hetsched schedule", "version": 2}', "has version 2, this hetsched reads 1"),
        ('{"format": "hetsched schedule", "version": 1}', "the schedule has no list modes"),
        (
            '{"format": "hetsched schedule", "version": 1, "modes": ["x"], "starts": [0],'
            ' "ends": [0], "setups": [0]}',
            "modes holds something else than numbers",
        ),
    ],
)
def test_foreign_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule.from_json(text)


def best_cost(instance: Instance) -> float:
    """Optimum of C_max + weighted tardiness + machine tardiness, by dynamic programming.

    Per machine, the best order of every set of jobs (Held-Karp); then, for every possible
    makespan, the best split of the jobs over the machines.
    """
    jobs, times = instance.num_jobs, instance.matrix()
    sets = 1 << jobs
    member = (np.arange(sets)[:, None] >> np.arange(jobs)) & 1  # (S, J)
    ends, costs = [], []
    for machine in range(instance.num_machines):
        end = instance.machine_available[machine] + member @ times[:, machine]  # (S,)
        late = instance.weights * np.maximum(end[:, None] - instance.due_times, 0)  # (S, J)
        cost = np.zeros(sets)
        for subset in range(1, sets):
            last = np.flatnonzero(member[subset])
            cost[subset] = (cost[subset ^ (1 << last)] + late[subset, last]).min()
        tardy = np.maximum(end - instance.machine_due_times[machine], 0)
        ends.append(end)
        costs.append(cost + instance.machine_weights[machine] * tardy)
    inside = [[one for one in range(sets) if one & subset == one] for subset in range(sets)]
    part = np.concatenate([np.array(one) for one in inside])  # (3 ** J,)
    rest = np.concatenate([np.array(one) ^ subset for subset, one in enumerate(inside)])
    offsets = np.cumsum([0, *(len(one) for one in inside[:-1])])
    best = np.inf
    for makespan in np.unique(np.concatenate(ends)):
        if makespan < instance.machine_available.max() or makespan >= best:
            continue
        total = np.where(ends[0] <= makespan, costs[0], np.inf)
        for end, cost in zip(ends[1:], costs[1:], strict=True):
            allowed = np.where(end <= makespan, cost, np.inf)
            total = np.minimum.reduceat(allowed[part] + total[rest], offsets)
        best = min(best, makespan + total[-1])
    return float(best)


def test_the_cost_agrees_with_published_optima(data_dir: Path) -> None:
    optima = load_set(data_dir / "hitzges" / "8x4.npz")
    objective = Objective(makespan=1, weighted_tardiness=1, machine_tardiness=1)
    rng = np.random.default_rng(0)
    for instance, optimum in zip(optima.instances, optima.references["optimum"], strict=True):
        costs = [list_schedule(instance, rng).cost(instance, objective) for _ in range(3)]
        assert min(costs) >= optimum
    for index in range(10):
        assert best_cost(optima.instances[index]) == optima.references["optimum"][index]
