"""What must not show in the features: the future, the past, the others in the batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor

from hetsched.envs.features import observe
from hetsched.envs.instance import Instance
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.tests.envs.decisions import EVERYTHING, random_decisions, replay, state_after
from hetsched.tests.envs.instances import random_instance

if TYPE_CHECKING:
    from hetsched.envs.graph import Graph


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Equal but for the rounding of single precision."""
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-6)


def assert_same_features(one: Graph, other: Graph) -> None:
    for name in ("jobs", "machines", "modes", "overall"):
        assert_close(getattr(one, name), getattr(other, name))
    for name in ("job_mask", "mode_mask", "arc_mask", "legal"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


def with_job(instance: Instance, job: int, **values: float) -> Instance:
    """Another value of some fields of one job."""
    changed = {}
    for name, value in values.items():
        array = getattr(instance, name).copy()
        array[instance.mode_jobs == job if len(array) == instance.num_modes else job] = value
        changed[name] = array
    return replace(instance, **changed)


def test_nothing_of_an_unreleased_job_can_be_seen() -> None:
    rng = np.random.default_rng(4)
    instance = Instance.from_matrix(
        rng.integers(1, 20, (6, 3)),
        release_times=[0.0, 0.0, 0.0, 4.0, 30.0, 30.0],
        due_times=rng.integers(5, 60, 6),
        weights=rng.integers(1, 5, 6),
    )
    state = state_after(instance, EVERYTHING, "dispatch")
    taken = random_decisions(state, 2)
    assert float(state.now) < 30.0
    for values in (
        {"processing_times": 500.0},
        {"due_times": 1.0},
        {"weights": 900.0},
        {"release_times": 31.0},
    ):
        other = state_after(with_job(instance, 5, **values), EVERYTHING, "dispatch", taken)
        assert_same_features(observe(other), observe(state))
    seen = int(state.visible()[0].nonzero()[0])
    other = state_after(with_job(instance, seen, weights=900.0), EVERYTHING, "dispatch", taken)
    assert not torch.allclose(observe(other).jobs, observe(state).jobs, atol=1e-3)


def test_an_unreleased_successor_cannot_be_seen_in_the_job_that_it_waits_for() -> None:
    graphs = []
    for duration in (4.0, 40.0):
        instance = Instance.from_matrix(
            [[3.0], [5.0], [duration]], precedence=[[0], [2]], release_times=[0.0, 0.0, 9.0]
        )
        graphs.append(observe(state_after(instance, EVERYTHING, "dispatch")))
    assert_same_features(*graphs)


def test_that_there_is_an_unreleased_job_cannot_be_seen() -> None:
    times = np.array([[4.0, 6.0], [5.0, 3.0], [50.0, 70.0]])
    with_it = Instance.from_matrix(times, release_times=[0.0, 0.0, 9.0])
    without = Instance.from_matrix(times[:2])
    seen = observe(state_after(with_it, EVERYTHING, "dispatch"))
    alone = observe(state_after(without, EVERYTHING, "dispatch"))
    assert_close(seen.jobs[:, :2], alone.jobs)
    assert_close(seen.modes[:, :2], alone.modes)
    assert_close(seen.machines, alone.machines)
    assert_close(seen.overall, alone.overall)


def test_padding_does_not_show_in_the_features_of_the_rest() -> None:
    rng = np.random.default_rng(5)
    small = random_instance(rng, jobs=3, machines=2)
    large = random_instance(rng, jobs=5, machines=4)
    alone = state_after(small, EVERYTHING, "plan")
    taken = random_decisions(alone, 1)
    large_alone = state_after(large, EVERYTHING, "plan")
    both = State.initial(Problem.from_instances([small, large]), EVERYTHING, "plan")
    replay(both, [taken, random_decisions(large_alone, 1)])
    graph, expected = observe(both), observe(alone)
    assert_close(graph.jobs[:1, :3], expected.jobs)
    assert_close(graph.machines[:1, :2], expected.machines)
    assert_close(graph.modes[:1, :3, :2], expected.modes)
    assert_close(graph.overall[:1], expected.overall)
    assert not graph.jobs[0, 3:].any()
    assert not graph.machines[0, 2:].any()


@pytest.mark.parametrize("units", [1, 2])
def test_for_how_long_a_machine_has_been_idle_changes_nothing(units: int) -> None:
    times = np.array([[4.0, 6.0, 2.0], [5.0, 3.0, 9.0]])
    graphs = [
        observe(
            state_after(
                Instance.from_matrix(
                    times,
                    release_times=[10.0, 10.0],
                    machine_available=[0.0, free, 12.0],
                    capacity=[units] * 3,
                ),
                EVERYTHING,
                "dispatch",
            )
        )
        for free in (0.0, 4.0, 10.0)
    ]
    assert_same_features(graphs[0], graphs[1])
    assert_same_features(graphs[0], graphs[2])


def test_the_time_of_day_changes_nothing_in_dispatch() -> None:
    rng = np.random.default_rng(6)
    early = random_instance(rng, jobs=6, machines=3, releases=True)
    late = replace(
        early,
        **{
            name: getattr(early, name) + 1024.0
            for name in ("release_times", "due_times", "machine_available", "machine_due_times")
        },
    )
    state = state_after(early, EVERYTHING, "dispatch")
    taken = random_decisions(state, 3)
    assert_same_features(observe(state_after(late, EVERYTHING, "dispatch", taken)), observe(state))


@pytest.mark.parametrize("units", [1, 3])
def test_a_true_duration_shows_in_nothing_before_the_job_completes(units: int) -> None:
    expected = np.array([[10.0, np.inf], [np.inf, 6.0], [5.0, 8.0], [7.0, 2.0]])
    graphs = []
    for first, third in ((10.0, 5.0), (90.0, 5.0), (8.0, 5.0), (10.0, 77.0)):
        actual = expected.copy()
        actual[0, 0], actual[2] = first, third
        instance = Instance.from_matrix(
            expected,
            actual_times=actual,
            capacity=[units, 1],
            demand=np.full((4, 2), 1),
            precedence=[[0], [3]],
            precedence_lags=[2.0],
            release_times=[0.0, 0.0, 1.0, 1.0],
        )
        state = state_after(instance, EVERYTHING, "dispatch", [0, 1])
        assert float(state.now) == (1.0 if units == 3 else 6.0)
        graphs.append(observe(state))
    for graph in graphs[1:]:
        assert_same_features(graph, graphs[0])


def test_plans_refuse_to_know_less_than_everything() -> None:
    instance = Instance.from_matrix([[2.0]], actual_times=[[3.0]])
    with pytest.raises(ValueError, match="plan needs known durations"):
        state_after(instance, EVERYTHING, "plan")
