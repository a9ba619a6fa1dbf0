"""Believed and true times, by hand."""

from __future__ import annotations

import numpy as np
import torch

from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.tests.envs.decisions import WAIT, state_after

MAKESPAN = Objective(makespan=1.0)
INF = float("inf")


def test_a_mode_starts_once_as_many_units_are_free_as_it_demands() -> None:
    instance = Instance.from_matrix(
        np.array([[4.0], [6.0], [1.0], [1.0], [1.0]]),
        capacity=[3],
        demand=[1, 1, 1, 2, 3],
        machine_available=[2.0],
    )
    timing = state_after(instance, MAKESPAN, "plan", [0, 1]).timing  # busy until 6 and 8
    assert timing.believed_free[0, 2:, 0].tolist() == [2.0, 6.0, 8.0]
    assert timing.believed_end[0, 2:, 0].tolist() == [3.0, 7.0, 9.0]
    assert timing.true_free is timing.believed_free


def test_the_start_waits_for_machine_release_and_set_up() -> None:
    setups = np.zeros((3, 2, 2))
    setups[2] = [[1.0, 2.0], [3.0, 4.0]]  # from the idle start
    setups[0, 1] = [5.0, 9.0]  # from job 0 to job 1
    instance = Instance.from_matrix(
        np.array([[4.0, 9.0], [6.0, 7.0]]), setup_times=setups, release_times=[0.0, 20.0]
    )
    state = state_after(instance, MAKESPAN, "plan")
    assert state.timing.setup is not None
    assert state.timing.setup[0].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert state.timing.believed_start[0].tolist() == [[1.0, 2.0], [23.0, 24.0]]
    state = state_after(instance, MAKESPAN, "plan", [0])
    assert state.timing.setup is not None
    assert state.timing.setup[0, 1].tolist() == [5.0, 4.0]  # machine 1 is still at its idle start
    assert state.timing.believed_start[0, 1].tolist() == [25.0, 24.0]


def test_a_lag_counts_on_other_machines_only() -> None:
    instance = Instance.from_matrix(
        np.array([[4.0, 9.0, INF], [1.0, 1.0, 1.0]]),
        precedence=[[0], [1]],
        precedence_lags=[3.0],
    )
    state = state_after(instance, MAKESPAN, "plan")
    assert state.timing.settled.tolist() == [[True, False]]
    assert state.timing.legal[0].tolist() == [[True, True, False], [False] * 3]
    state = state_after(instance, MAKESPAN, "plan", [0])
    assert state.timing.settled[0].tolist() == [True, True]
    assert state.timing.believed_start[0, 1].tolist() == [4.0, 7.0, 7.0]
    assert state.timing.visible.tolist() == [[False, True]]


def test_empty_slots_never_start() -> None:
    instance = Instance.from_matrix(np.array([[4.0, INF]]))
    timing = state_after(instance, MAKESPAN, "plan").timing
    assert timing.believed_start[0].tolist() == [[0.0, INF]]
    assert timing.believed_end[0].tolist() == [[4.0, INF]]
    assert timing.legal[0].tolist() == [[True, False]]


def test_in_dispatch_nothing_is_expected_to_start_in_the_past() -> None:
    instance = Instance.from_matrix(
        np.array([[4.0, 9.0], [1.0, 1.0]]), release_times=[2.0, 5.0], machine_available=[0.0, 7.0]
    )
    state = state_after(instance, MAKESPAN, "dispatch")
    assert float(state.now) == 2.0
    assert state.timing.visible.tolist() == [[True, False]]
    assert state.timing.believed_start[0, 0].tolist() == [2.0, 7.0]
    assert state.timing.legal[0].tolist() == [[True, False], [False, False]]


def test_an_overrun_is_expected_to_end_now_and_blocks_its_machine_until_it_does() -> None:
    instance = Instance.from_matrix(
        np.array([[4.0, INF], [2.0, 3.0], [INF, 1.0]]),
        actual_times=np.array([[10.0, INF], [2.0, 3.0], [INF, 1.0]]),
        release_times=[0.0, 5.0, 5.0],
    )
    state = state_after(instance, MAKESPAN, "dispatch", [0])
    assert float(state.now) == 5.0
    assert state.timing.believed_free[0, 1].tolist() == [5.0, 5.0]
    assert state.timing.true_free[0, 1].tolist() == [10.0, 5.0]
    assert state.timing.legal[0].tolist() == [[False, False], [False, True], [False, True]]


def test_an_early_end_is_known_once_it_has_come() -> None:
    instance = Instance.from_matrix(
        np.array([[8.0, INF], [2.0, 30.0], [INF, 1.0]]),
        actual_times=np.array([[3.0, INF], [2.0, 30.0], [INF, 1.0]]),
        release_times=[0.0, 1.0, 1.0],
        precedence=[[0], [2]],
    )
    state = state_after(instance, MAKESPAN, "dispatch", [0])
    assert float(state.now) == 1.0
    assert state.timing.believed_free[0, 1].tolist() == [8.0, 1.0]
    assert state.timing.believed_start[0, 2].tolist() == [INF, 8.0]
    assert not state.candidates()[0, 2]
    state = state_after(instance, MAKESPAN, "dispatch", [0, WAIT])
    assert float(state.now) == 3.0
    assert state.timing.believed_free[0, 1].tolist() == [3.0, 3.0]
    assert state.timing.believed_start[0, 2].tolist() == [INF, 3.0]
    assert state.candidates()[0].tolist() == [False, True, True]


def test_listed_slots_look_up_the_machine_that_they_use() -> None:
    instance = Instance(
        num_jobs=2,
        num_machines=2,
        mode_jobs=np.array([0, 0, 1]),
        mode_machines=np.array([1, 1, 0]),
        processing_times=np.array([4.0, 6.0, 5.0]),
        machine_available=np.array([3.0, 7.0]),
    )
    timing = state_after(instance, MAKESPAN, "plan").timing
    assert not timing.state.problem.dense
    assert timing.believed_start[0].tolist() == [[7.0, 7.0], [3.0, INF]]
    assert torch.equal(timing.legal[0], torch.tensor([[True, True], [True, False]]))
