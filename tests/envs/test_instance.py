"""Instances: defaults, conversions, and refusals that say how to mend them."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.envs.instance import Instance
from hetsched.tests.envs.instances import random_instance

SEEDS = st.integers(0, 10_000)
FEATURES = ("shared", "precedence", "lags", "releases", "noisy", "parallel")


def with_everything(seed: int) -> Instance:
    rng = np.random.default_rng(seed)
    options = {name: bool(rng.random() < 0.5) for name in FEATURES}
    return random_instance(rng, setups=not options["shared"] and rng.random() < 0.5, **options)


def make(*arguments: Any, **others: Any) -> Instance:
    """An instance from lists, which the types of its fields do not promise to take."""
    return Instance(*arguments, **others)


def two_by_two(**others: Any) -> Instance:
    return Instance.from_matrix(np.array([[1.0, 2.0], [np.inf, 3.0]]), **others)


def test_a_matrix_becomes_one_mode_per_finite_entry() -> None:
    instance = two_by_two()
    assert (instance.num_jobs, instance.num_machines, instance.num_modes) == (2, 2, 3)
    assert instance.mode_jobs.tolist() == [0, 0, 1]
    assert instance.mode_machines.tolist() == [0, 1, 1]
    assert instance.processing_times.tolist() == [1.0, 2.0, 3.0]


def test_ineligible_and_nan_entries_become_no_mode() -> None:
    eligible = np.array([[True, False], [True, True]])
    instance = Instance.from_matrix([[1.0, 2.0], [np.nan, 3.0]], eligible)
    assert instance.mode_jobs.tolist() == [0, 1]
    assert instance.mode_machines.tolist() == [0, 1]


def test_the_matrix_holds_the_fastest_mode() -> None:
    instance = make(1, 2, [0, 0], [1, 1], [5, 4])
    assert instance.matrix().tolist() == [[np.inf, 4.0]]


def test_defaults_are_neutral() -> None:
    instance = two_by_two()
    assert instance.release_times.tolist() == [0, 0]
    assert instance.due_times.tolist() == [np.inf, np.inf]
    assert instance.weights.tolist() == [1, 1]
    assert instance.machine_available.tolist() == [0, 0]
    assert instance.machine_due_times.tolist() == [np.inf, np.inf]
    assert instance.machine_weights.tolist() == [1, 1]
    assert instance.capacity.tolist() == [1, 1]
    assert instance.demand.tolist() == [1, 1, 1]
    assert instance.setup_times is None
    assert instance.precedence.shape == (2, 0)
    assert instance.precedence_lags.shape == (0,)
    assert instance.actual_times is None
    assert instance.durations is instance.processing_times
    assert instance.job_names == ("job 0", "job 1")
    assert instance.machine_names == ("machine 0", "machine 1")


def test_matrices_of_demand_and_actual_times_follow_the_modes() -> None:
    instance = two_by_two(
        capacity=[1, 4], demand=[[1, 2], [9, 3]], actual_times=[[1.5, 2.5], [np.nan, 3.5]]
    )
    assert instance.demand.tolist() == [1, 2, 3]
    assert instance.durations.tolist() == [1.5, 2.5, 3.5]


def test_modes_are_sorted_by_job_and_keep_their_order_within_a_job() -> None:
    instance = make(2, 2, [1, 0, 1], [1, 0, 0], [5.0, 6.0, 7.0], capacity=[3, 3], demand=[1, 2, 3])
    assert instance.mode_jobs.tolist() == [0, 1, 1]
    assert instance.processing_times.tolist() == [6.0, 5.0, 7.0]
    assert instance.demand.tolist() == [2, 1, 3]


def test_arrays_are_private_and_read_only() -> None:
    weights = np.array([1.0, 2.0])
    instance = two_by_two(weights=weights)
    weights[0] = 7.0
    assert instance.weights[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        instance.weights[0] = 7.0


def test_an_instance_survives_pickling_between_processes() -> None:
    instance = with_everything(3)
    assert pickle.loads(pickle.dumps(instance)).same_as(instance)


def test_the_representation_is_short() -> None:
    assert repr(two_by_two()) == "Instance(2 jobs, 2 machines, 3 modes)"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"release_times": [0]}, r"release_times has shape \(1,\); give \(2,\), which is one per job"),
    ({"release_times": [0, -1]}, r"release_times\[1\] is -1; give a finite time"),
    ({"release_times": [np.inf, 0]}, r"release_times\[0\] is inf"),
    ({"due_times": [5, np.nan]}, r"due_times\[1\] is nan; give 0 if it is already overdue"),
    ({"due_times": [-1, 3]}, r"due_times\[0\] is -1"),
    ({"weights": [1, -2]}, r"weights\[1\] is -2"),
    ({"weights": ["a", "b"]}, r"weights holds something else than numbers"),
    ({"weights": [[1], [1, 2]]}, r"weights holds something else than numbers"),
    ({"machine_available": [0, np.nan]}, r"machine_available\[1\] is nan"),
    ({"machine_due_times": [-3, 0]}, r"machine_due_times\[0\] is -3"),
    ({"machine_weights": [np.inf, 0]}, r"machine_weights\[0\] is inf"),
    ({"capacity": [0, 1]}, r"capacity\[0\] is 0; give a machine at least 1 unit"),
    ({"capacity": [1.5, 1]}, r"capacity\[0\] is 1.5; give a whole number"),
    ({"demand": [1, 0, 1]}, r"demand\[1\] is 0"),
    ({"demand": [1, 1]}, r"demand has shape \(2,\); give \(3,\)"),
    ({"demand": [1, 1, 2]}, r"demand\[2\] is 2, but machine 1 has a capacity of 1; lower"),
    ({"demand": [[1, 1]]}, r"demand has shape \(1, 2\); give \(2, 2\)"),
    ({"actual_times": [1, 0, 1]}, r"actual_times\[1\] is 0; give a positive finite duration"),
    ({"setup_times": np.zeros((2, 2, 2))}, r"setup_times has shape .*; give \(3, 2, 2\)"),
    ({"setup_times": np.full((3, 2, 2), -1)}, r"setup_times\[0, 0, 0\] is -1"),
    (
        {"setup_times": np.ones((3, 2, 2)), "capacity": [1, 2]},
        r"setup_times\[:, :, 1\] are set-ups on a machine with a capacity of 2",
    ),
    ({"precedence": [0, 1]}, r"precedence has shape \(2,\); give \(2, arcs\)"),
    ({"precedence": [[0, 1]]}, r"precedence has shape \(1, 2\); give \(2, arcs\)"),
    ({"precedence": [[0], [2]]}, r"precedence\[1, 0\] is 2; give the index of a job, 0 to 1"),
    ({"precedence": [[0], [0]]}, r"a cycle, job 0 before job 0; remove one of its arcs"),
    ({"precedence": [[0, 1], [1, 0]]}, r"a cycle, job 0 before job 1 before job 0"),
    ({"precedence": [[0, 0], [1, 1]]}, r"the arc from job 0 to job 1 more than once"),
    ({"precedence": [[0], [1]], "precedence_lags": [-1]}, r"precedence_lags\[0\] is -1"),
    ({"precedence_lags": [1]}, r"precedence_lags has shape \(1,\); give \(0,\)"),
    ({"job_names": ["a"]}, r"job_names has 1 entries; give 2, one per job"),
    ({"job_names": "ab"}, r"job_names is 'ab'; give a sequence of 2 strings"),
    ({"job_names": 7}, r"job_names is 7; give a sequence"),
    ({"job_names": ["a", 2]}, r"job_names\[1\] is 2; give a string"),
    ({"machine_names": ["a", "b\0"]}, r"machine_names\[1\] is 'b\\x00'"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_a_wrong_field_is_refused_with_one_sentence(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        two_by_two(**fields)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1, [], [], []), "num_jobs is 0; give a whole number of at least 1"),
        ((1, 1.0, [0], [0], [1]), r"num_machines is 1.0; give a whole number"),
        ((2, 1, [0], [0], [1]), "job 1 has no mode; give it at least one machine"),
        ((1, 1, [1], [0], [1]), r"mode_jobs\[0\] is 1; give the index of a job, 0 to 0"),
        ((1, 1, [0], [-1], [1]), r"mode_machines\[0\] is -1; give the index of a machine"),
        ((1, 1, [0], [0, 0], [1]), r"mode_machines has shape \(2,\); give \(1,\)"),
        ((1, 1, [0], [0], [np.inf]), r"processing_times\[0\] is inf; .*leave the mode out"),
        ((1, 1, [0], [0], [0]), r"processing_times\[0\] is 0; give a positive"),
    ],
)
def test_wrong_modes_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(*arguments)


def test_a_matrix_names_its_wrong_entry_by_job_and_machine() -> None:
    with pytest.raises(ValueError, match=r"processing_times\[1, 0\] is -4; give a positive"):
        Instance.from_matrix([[1, 2], [-4, 3]])
    with pytest.raises(ValueError, match=r"processing_times\[0, 1\] is -inf"):
        Instance.from_matrix([[1.0, -np.inf]])
    with pytest.raises(ValueError, match=r"processing_times has shape \(2,\); give a matrix"):
        Instance.from_matrix([1, 2])
    with pytest.raises(ValueError, match="job 1 has no mode"):
        Instance.from_matrix([[1.0, 2.0], [np.inf, np.nan]])
    with pytest.raises(ValueError, match=r"eligible has shape \(1, 1\) and type bool"):
        Instance.from_matrix([[1, 2]], eligible=[[True]])


def test_a_long_cycle_is_named_in_its_direction() -> None:
    arcs = np.array([[4, 0, 2, 1, 3], [0, 1, 3, 2, 1]])  # 4 -> 0 -> 1 -> 2 -> 3 -> 1
    with pytest.raises(ValueError, match=r"a cycle, (.*); remove") as refusal:
        Instance.from_matrix(np.ones((5, 1)), precedence=arcs)
    path = str(refusal.value).split("cycle, ")[1].split(";")[0]
    jobs = [int(one.removeprefix("job ")) for one in path.split(" before ")]
    assert jobs[0] == jobs[-1]
    assert sorted(jobs[1:]) == [1, 2, 3]
    assert set(itertools.pairwise(jobs)) <= set(map(tuple, arcs.T.tolist()))


def test_setups_of_zero_may_stand_on_shared_machines() -> None:
    setups = np.ones((3, 2, 2))
    setups[:, :, 1] = 0
    assert two_by_two(setup_times=setups, capacity=[1, 2]).setup_times is not None


@given(SEEDS)
def test_permuting_and_permuting_back_changes_nothing(seed: int) -> None:
    instance, rng = with_everything(seed), np.random.default_rng(seed)
    jobs, machines = rng.permutation(instance.num_jobs), rng.permutation(instance.num_machines)
    there = instance.permuted(jobs, machines)
    assert there.permuted(np.argsort(jobs), np.argsort(machines)).same_as(instance)
    assert np.array_equal(there.matrix(), instance.matrix()[jobs][:, machines])
    assert there.job_names == tuple(instance.job_names[job] for job in jobs)
    assert np.array_equal(there.due_times, instance.due_times[jobs])
    if instance.setup_times is not None and there.setup_times is not None:
        i, j, k = 0, instance.num_jobs - 1, 0
        expected = instance.setup_times[jobs[i], jobs[j], machines[k]]
        assert there.setup_times[i, j, k] == expected
        assert there.setup_times[-1, j, k] == instance.setup_times[-1, jobs[j], machines[k]]


def test_something_else_than_a_permutation_is_refused() -> None:
    with pytest.raises(ValueError, match="jobs is no permutation; give each index 0 to 1 once"):
        two_by_two().permuted(jobs=[0, 0])
    with pytest.raises(ValueError, match=r"machines has shape \(1,\)"):
        two_by_two().permuted(machines=[0])


@given(SEEDS)
def test_scaling_multiplies_every_time_and_nothing_else(seed: int) -> None:
    instance = with_everything(seed)
    scaled = instance.scaled(4.0)
    assert np.array_equal(scaled.matrix(), instance.matrix() * 4)
    assert np.array_equal(scaled.due_times, instance.due_times * 4)
    assert np.array_equal(scaled.precedence_lags, instance.precedence_lags * 4)
    assert np.array_equal(scaled.durations, instance.durations * 4)
    assert np.array_equal(scaled.weights, instance.weights)
    assert np.array_equal(scaled.demand, instance.demand)
    assert scaled.scaled(0.25).same_as(instance)


@pytest.mark.parametrize("factor", [0.0, -1.0, np.inf, np.nan])
def test_a_factor_that_is_not_positive_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match=r"factor is .*; give a positive finite number"):
        two_by_two().scaled(factor)


def test_equality_looks_at_every_field() -> None:
    assert two_by_two().same_as(two_by_two())
    assert not two_by_two().same_as(two_by_two(weights=[1, 2]))
    assert not two_by_two().same_as(two_by_two(setup_times=np.zeros((3, 2, 2))))
    assert not two_by_two().same_as(two_by_two(job_names=["a", "b"]))
    assert not two_by_two().same_as("two by two")
