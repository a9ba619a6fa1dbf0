"""List rules against choices worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hetsched.agents.rules_static import upward_ranks
from hetsched.envs.files import load_set
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.tests.agents.picks import begin, costs, pick

THREE = Instance.from_matrix(
    [[3, 5], [4, 2], [6, 7]],
    release_times=[2, 1, 0],
    due_times=[9, 4, 1],
    weights=[2.4, 1, 9],
)
AT_ONCE = Instance.from_matrix([[3, 5], [5, 2], [6, 7]])


@pytest.mark.parametrize(
    ("rule", "choice"),
    [
        ("fifo", (2, 0)),  # released first
        ("ect", (0, 0)),  # listed first
        ("spt", (1, 1)),  # 2 is the shortest of 3, 2, 6
        ("lpt", (2, 0)),  # 6 is the longest
        ("edd", (2, 0)),
        ("wspt", (2, 0)),  # 9/6 beats 2.4/3 and 1/2
    ],
)
def test_a_list_rule_picks_the_first_job_of_its_order(rule, choice):
    assert pick(rule, begin(THREE)) == choice


@pytest.mark.parametrize(
    ("rule", "choice"),
    [
        ("min-min", (1, 1)),  # completes at 2
        ("max-min", (2, 0)),  # best completions 3, 2, 6
        ("sufferage", (1, 1)),  # loses 3 without its best machine; the others 2 and 1
    ],
)
def test_a_completion_rule_picks_by_completions(rule, choice):
    assert pick(rule, begin(AT_ONCE)) == choice


def test_the_machine_is_the_one_that_completes_the_job_first():
    # Job 2 (lpt) keeps machine 0 until 6: job 0 completes there at 9, on machine 1 at 5.
    state = begin(AT_ONCE, started=[(2, 0)])
    assert pick("ect", state) == (0, 1)


def test_equal_jobs_go_by_index():
    assert pick("spt", begin(Instance.from_matrix([[4, 4], [4, 4]]))) == (0, 0)


def test_dispatch_compares_only_machines_with_room():
    state = begin(AT_ONCE, "dispatch", started=[(2, 1)])  # machine 1 is busy until 7
    # Job 1 comes first with 2 on machine 1; only machine 0 has room.
    assert pick("spt", state) == (1, 0)


def test_fifo_in_dispatch_takes_the_oldest_waiting_job():
    state = begin(THREE, "dispatch", started=[(2, 0)])
    assert float(state.now) == 1.0  # nothing else waits before the release of job 1
    assert pick("fifo", state) == (1, 1)


def test_sufferage_in_dispatch_counts_waiting_for_a_busy_machine_as_a_choice():
    # Machine 1 is busy until 10.  Job 1 would rather wait for it (11 instead of 20); job 2 loses
    # 10 if it does not get machine 0.
    instance = Instance.from_matrix([[50, 10], [20, 1], [5, 5]])
    assert pick("sufferage", begin(instance, "dispatch", started=[(0, 1)])) == (2, 0)


def test_heft_ranks_by_the_longest_path_of_mean_durations_and_lags():
    instance = Instance.from_matrix(
        [[3, 5], [4, 2], [6, 7]], precedence=[[0], [1]], precedence_lags=[1]
    )
    ranks = upward_ranks(Problem.from_instances([instance]))
    assert ranks.tolist() == [[4 + 1 + 3, 3, 6.5]]
    assert pick("heft", begin(instance)) == (0, 0)


def test_heft_ranks_follow_chains_to_their_end():
    instance = Instance.from_matrix(np.ones((5, 1)), precedence=[[3, 2, 1, 0], [2, 1, 0, 4]])
    ranks = upward_ranks(Problem.from_instances([instance]))
    assert ranks.tolist() == [[2, 3, 4, 5, 1]]


def test_random_depends_on_its_seed_only():
    instances = [AT_ONCE] * 40
    same = [costs("random:seed=4", instances, "plan") for _ in range(2)]
    assert torch.equal(same[0], same[1])
    assert len(same[0].unique()) > 1  # the rows differ
    assert not torch.equal(same[0], costs("random:seed=5", instances, "plan"))


@pytest.mark.parametrize("size", ["20x4", "50x10", "100x10", "100x20"])
def test_lpt_reproduces_the_reference_of_the_makespan_sets(data_dir, size):
    known = load_set(data_dir / "rcmax" / f"{size}.npz")
    cost = costs("lpt", known.instances, "plan", Objective(makespan=1.0))
    np.testing.assert_array_equal(cost.numpy(), known.references["ect_lpt_min"])
