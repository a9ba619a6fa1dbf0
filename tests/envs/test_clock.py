"""The clock of dispatch, by hand."""

from __future__ import annotations

import numpy as np
import torch

from hetsched.envs.clock import advance, next_event
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.tests.envs.decisions import state_after

FLOW = Objective(flow_time=1.0)
INF = float("inf")


def test_releases_completions_and_the_end_of_an_occupation_are_events() -> None:
    instance = Instance.from_matrix(
        np.array([[5.0, INF], [2.0, 4.0], [1.0, 1.0]]),
        release_times=[0.0, 0.0, 9.0],
        machine_available=[0.0, 7.0],
    )
    state = state_after(instance, FLOW, "dispatch", [0])  # job 0: 0..5; then the clock moves
    assert float(state.now) == 5.0
    assert float(next_event(state)) == 7.0
    state.step(torch.tensor([2]))  # job 1: 5..7; machine 1 is free then too
    assert float(state.now) == 9.0  # nothing could start at 7
    assert float(next_event(state)) == INF


def test_the_end_of_a_lag_is_an_event() -> None:
    instance = Instance.from_matrix(
        np.array([[5.0, INF], [INF, 4.0]]), precedence=[[0], [1]], precedence_lags=[3.0]
    )
    state = state_after(instance, FLOW, "dispatch", [0])
    assert float(state.now) == 8.0
    assert state.legal()[0, 1].tolist() == [False, True]


def test_only_the_rows_that_are_asked_to_move_do() -> None:
    instance = Instance.from_matrix(
        np.array([[5.0, 9.0], [2.0, 4.0], [1.0, 1.0]]), release_times=[0.0, 0.0, 3.0]
    )
    problem = Problem.from_instances([instance]).repeat(2)
    state = State.initial(problem, FLOW, "dispatch")
    state.step(torch.tensor([0, 0]))
    assert state.now.tolist() == [0.0, 0.0]
    advance(state, torch.tensor([False, True]))
    assert state.now.tolist() == [0.0, 3.0]
    assert state.visible()[:, 2].tolist() == [False, True]


def test_what_has_ended_is_known_and_what_runs_is_believed_as_before() -> None:
    expected = np.array([[4.0, INF], [INF, 6.0], [1.0, 1.0]])
    instance = Instance.from_matrix(
        expected,
        actual_times=np.array([[2.0, INF], [INF, 9.0], [1.0, 1.0]]),
        release_times=[0.0, 0.0, 1.0],
    )
    state = state_after(instance, FLOW, "dispatch", [0, 1])
    assert float(state.now) == 2.0  # not at 1, where no machine was free
    assert state.believed_units[0, :, 0].tolist() == [2.0, 6.0]
    assert state.units[0, :, 0].tolist() == [2.0, 9.0]
