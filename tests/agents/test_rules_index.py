"""ATC and ATCS-R against choices worked out by hand, and against the benchmark's references."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hetsched.agents.rules import make_rule
from hetsched.envs.files import load_set
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.tests.agents.picks import WAIT, begin, costs, pick

HITZGES = Objective(makespan=1.0, weighted_tardiness=1.0, machine_tardiness=1.0)


def test_atc_scores_are_the_logarithm_of_the_index():
    # One machine, mean duration 3, k = 2: exp(-8/6)/2 for job 0; job 1 has no slack: 3/4.
    instance = Instance.from_matrix([[2], [4]], due_times=[10, 4], weights=[1, 3])
    scores = make_rule("atc").scores(begin(instance))[0]
    assert scores[0].item() == pytest.approx(math.log(0.5) - 8 / 6)
    assert scores[1].item() == pytest.approx(math.log(0.75))


def test_a_larger_k_sees_urgency_earlier():
    # Job 0 has the larger w / p and slack 6, job 1 none: 1 exp(-6 / 4k) against 1/2.
    instance = Instance.from_matrix([[2], [6]], due_times=[8, 6], weights=[2, 3])
    assert pick("atc:k=1", begin(instance)) == (1, 0)
    assert pick("atc:k=5", begin(instance)) == (0, 0)


def test_jobs_without_due_time_go_last_and_by_weight_over_duration():
    instance = Instance.from_matrix(
        [[9], [3], [4]], due_times=[1e5, np.inf, np.inf], weights=[1, 2, 3]
    )
    scores = make_rule("atc").scores(begin(instance))[0, :3]
    assert scores.argsort(descending=True).tolist() == [0, 2, 1]


def test_slack_that_underflows_the_index_still_orders_the_jobs():
    instance = Instance.from_matrix([[1], [1]], due_times=[3e4, 2e4])
    assert math.exp(-2e4 / 2) == 0.0
    assert pick("atc", begin(instance)) == (1, 0)


def test_a_job_is_not_given_to_a_machine_that_another_would_beat():
    instance = Instance.from_matrix([[2, 9], [3, 90]], due_times=[0, 0], machine_available=[1, 0])
    # Machine 1 is free first, but machine 0 would finish either job sooner.
    assert pick("atc", begin(instance)) == (0, 0)
    # With 0 behind it, job 1 completes on machine 0 at 6, still before 90 on machine 1.
    assert pick("atc", begin(instance, started=[(0, 0)])) == (1, 0)


def test_in_dispatch_the_gate_makes_the_rule_wait():
    instance = Instance.from_matrix([[2, 9], [3, 90]], due_times=[0, 0])
    assert pick("atc", begin(instance, "dispatch", started=[(0, 0)])) == WAIT


def test_of_machines_free_at_once_the_heavier_then_the_earlier_due_acts():
    fields = {"processing_times": [[4, 4, 4]] * 3, "machine_due_times": [9, 8, 7]}
    assert pick("atc", begin(Instance.from_matrix(**fields, machine_weights=[1, 2, 2]))) == (0, 2)
    assert pick("atc", begin(Instance.from_matrix(**fields, machine_weights=[1, 3, 2]))) == (0, 1)


def test_a_machine_that_was_passed_over_gets_no_job_later():
    # At 0, machine 1 is refused both jobs.  Once machine 0 is busy until 8, machine 1 would
    # complete job 1 sooner; but that decision falls at time 8, and machine 1 is off.
    instance = Instance.from_matrix([[4, 90], [4, 90], [9, 11]], due_times=[0, 0, 0])
    state = begin(instance, started=[(0, 0), (1, 0)])
    assert pick("atc", state) == (2, 0)


def test_atcs_r_prefers_the_job_without_set_up():
    setups = np.zeros((3, 2, 1))
    setups[2, 0, 0] = 5
    instance = Instance.from_matrix([[4], [4]], due_times=[3, 3], setup_times=setups)
    assert pick("atcs-r", begin(instance)) == (1, 0)
    assert pick("atc", begin(instance)) == (0, 0)


def test_atcs_r_reserves_the_machine_for_an_urgent_job_if_k3_allows():
    instance = Instance.from_matrix(
        [[4], [4]], release_times=[1, 0], due_times=[5, 30], weights=[5, 1]
    )
    assert pick("atcs-r:k3=2", begin(instance)) == (0, 0)
    assert pick("atcs-r:k1=2,k2=1,k3=0.01", begin(instance)) == (1, 0)
    assert pick("atc", begin(instance)) == (1, 0)  # only the released one


def test_atcs_r_is_atc_where_nothing_is_set_up_or_released():
    rng = np.random.default_rng(3)
    instances = [
        Instance.from_matrix(rng.integers(1, 40, (12, 3)), due_times=rng.integers(0, 30, 12))
        for _ in range(20)
    ]
    a = costs("atc:k=3", instances, "plan", HITZGES)
    b = costs("atcs-r:k1=3", instances, "plan", HITZGES)
    assert torch.equal(a, b)


@pytest.mark.parametrize("size", ["8x4", "20x4", "50x6", "100x10"])
def test_atc_reproduces_the_references_of_the_hitzges_sets(data_dir, size):
    known = load_set(data_dir / "hitzges" / f"{size}.npz")
    found = [costs(f"atc:k={k}", known.instances, "plan", HITZGES) for k in (2, 0.5, 1, 3, 5)]
    np.testing.assert_allclose(found[0].numpy(), known.references["atc_k2"], atol=1e-6)
    best = torch.stack(found).amin(0).numpy()
    np.testing.assert_allclose(best, known.references["atc_best_of_5"], atol=1e-6)
