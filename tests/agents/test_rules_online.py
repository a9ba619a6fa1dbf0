"""Rules that wait: choices worked out by hand, and what waiting is worth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hetsched.envs.instance import Instance
from hetsched.tests.agents.picks import WAIT, begin, costs, pick

WAITING = ("ect-wait", "allox")


def unrelated(rng: np.random.Generator, jobs: int, machines: int, load: float) -> Instance:
    """Arrivals at random, about as fast as the machines can work."""
    times = rng.integers(1, 101, (jobs, machines)).astype(float)
    gap = times.min(1).mean() / machines / load
    return Instance.from_matrix(times, release_times=np.cumsum(rng.exponential(gap, jobs)))


@pytest.mark.parametrize("rule", WAITING)
def test_a_job_waits_for_the_machine_that_completes_it_first(rule):
    # Machine 0 is busy until 2 and would finish job 1 at 3, idle machine 1 at 10.
    instance = Instance.from_matrix([[2, 50], [1, 10]])
    assert pick(rule, begin(instance, "dispatch", started=[(0, 0)])) == WAIT


@pytest.mark.parametrize("rule", WAITING)
def test_a_job_starts_where_waiting_would_take_longer(rule):
    instance = Instance.from_matrix([[2, 50], [1, 2]])
    assert pick(rule, begin(instance, "dispatch", started=[(0, 0)])) == (1, 1)


@pytest.mark.parametrize("rule", WAITING)
def test_the_shortest_job_starts_first_on_one_machine(rule):
    assert pick(rule, begin(Instance.from_matrix([[5], [3], [4]]), "dispatch")) == (1, 0)


def test_ect_wait_counts_the_jobs_that_already_wait_for_a_machine():
    # Machine 0 is busy until 2.  Alone, each of three jobs would wait for it (6 instead of 11).
    # Two do, until 6 and 10; the third would complete there at 14, so one starts on machine 1.
    alone = Instance.from_matrix([[2, 50], [4, 11]])
    assert pick("ect-wait", begin(alone, "dispatch", started=[(0, 0)])) == WAIT
    three = Instance.from_matrix([[2, 50], [4, 11], [4, 11], [4, 11]])
    assert pick("ect-wait", begin(three, "dispatch", started=[(0, 0)])) == (3, 1)
    assert pick("atc", begin(three, "dispatch", started=[(0, 0)])) == WAIT  # it does not


def test_ect_wait_lays_out_on_machines_with_several_units():
    # Machine 0 has two units, one busy until 9; job 1 needs both, job 2 one.
    instance = Instance.from_matrix(
        [[9, 99], [1, 30], [5, 30]], capacity=[2, 1], demand=[[1, 1], [2, 1], [1, 1]]
    )
    assert pick("ect-wait", begin(instance, "dispatch", started=[(0, 0)])) == (2, 0)


def test_ect_wait_counts_set_ups():
    setups = np.zeros((3, 2, 2))
    setups[:, 1, 0] = 7  # before job 1 on machine 0
    instance = Instance.from_matrix([[2, 50], [1, 9]], setup_times=setups)
    assert pick("ect-wait", begin(instance, "dispatch", started=[(0, 0)])) == (1, 1)


def test_allox_gives_the_least_total_completion_time_when_all_jobs_are_there():
    # Without arrivals the assignment is exact for the sum of completion times.
    rng = np.random.default_rng(0)
    for _ in range(5):
        times = rng.integers(1, 20, (5, 2)).astype(float)
        best = min(
            sum(
                sum(np.cumsum(sorted(times[[j for j in range(5) if where[j] == k], k])))
                for k in range(2)
            )
            for where in itertools.product(range(2), repeat=5)
        )
        for deciding in ("dispatch", "plan"):
            mean = costs("allox", [Instance.from_matrix(times)], deciding)
            assert mean.item() == pytest.approx(best / 5)


def test_allox_counts_what_a_busy_machine_still_has_to_do():
    # Job 1 on machine 0 after 8 units: 8 + 1 = 9; on idle machine 1 at once: 9 or 10.
    nine = Instance.from_matrix([[8, 99], [1, 8.5]])
    ten = Instance.from_matrix([[8, 99], [1, 10]])
    assert pick("allox", begin(nine, "dispatch", started=[(0, 0)])) == (1, 1)
    assert pick("allox", begin(ten, "dispatch", started=[(0, 0)])) == WAIT


def test_allox_treats_the_units_of_a_machine_as_machines():
    instance = Instance.from_matrix([[9, 99], [4, 6]], capacity=[2, 1])
    assert pick("allox", begin(instance, "dispatch", started=[(0, 0)])) == (1, 0)


def test_allox_runs_gangs_to_the_end():
    rng = np.random.default_rng(1)
    demand = rng.integers(1, 4, (9, 2))
    times = rng.integers(1, 9, (9, 2)).astype(float)
    instance = Instance.from_matrix(
        times, capacity=[3, 3], demand=demand, release_times=rng.integers(0, 9, 9)
    )
    assert costs("allox", [instance], "dispatch").isfinite().all()


@pytest.mark.parametrize("rule", WAITING)
@pytest.mark.parametrize("load", [0.5, 0.9, 1.5])
def test_waiting_beats_list_rules_where_jobs_arrive_and_machines_are_unrelated(rule, load):
    rng = np.random.default_rng(8)
    instances = [unrelated(rng, 30, 4, load) for _ in range(12)]
    mean = {name: costs(name, instances, "dispatch").mean() for name in (rule, "fifo", "min-min")}
    assert mean[rule] < 0.9 * mean["min-min"]
    assert mean[rule] < 0.6 * mean["fifo"]
