"""What a job that is placed does to its machine and to its successors, by hand."""

from __future__ import annotations

import numpy as np
import torch

from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.placing import place
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.tests.envs.decisions import state_after

MAKESPAN = Objective(makespan=1.0)
INF = float("inf")


def test_a_job_takes_the_units_that_are_free_first() -> None:
    instance = Instance.from_matrix(
        np.array([[9.0], [4.0], [2.0], [1.0]]), capacity=[3], demand=[1, 1, 2, 1]
    )
    state = state_after(instance, MAKESPAN, "plan", [0, 1])
    assert state.units[0, 0].tolist() == [9.0, 4.0, 0.0]
    state.step(torch.tensor([2]))  # two units: those free at 0 and 4
    assert float(state.starts[0, 2]) == 4.0
    assert state.units[0, 0].tolist() == [9.0, 6.0, 6.0]


def test_units_that_do_not_exist_are_never_taken() -> None:
    instance = Instance.from_matrix(np.array([[2.0, 3.0], [4.0, 5.0]]), capacity=[1, 3])
    state = state_after(instance, MAKESPAN, "plan", [0])
    assert state.units[0].tolist() == [[2.0, INF, INF], [0.0, 0.0, 0.0]]
    state.step(torch.tensor([2]))
    assert state.units[0, 0].tolist() == [6.0, INF, INF]


def test_set_ups_are_paid_from_the_last_job_of_the_machine() -> None:
    setups = np.zeros((4, 3, 2))
    setups[3] = 1.0
    setups[0, 1] = 5.0
    setups[1, 2] = [7.0, 2.0]
    instance = Instance.from_matrix(np.full((3, 2), 10.0), setup_times=setups)
    state = state_after(instance, MAKESPAN, "plan", [0, 2, 4])  # all on machine 0
    assert state.setups[0].tolist() == [1.0, 5.0, 7.0]
    assert state.starts[0].tolist() == [1.0, 16.0, 33.0]
    assert state.last_job[0].tolist() == [2, 3]  # 3: machine 1 is still at its idle start


def test_successors_become_ready_with_the_lag_where_the_machine_changes() -> None:
    instance = Instance.from_matrix(
        np.full((4, 2), 10.0),
        precedence=[[0, 0, 1], [2, 3, 2]],
        precedence_lags=[3.0, 0.0, 5.0],
    )
    state = state_after(instance, MAKESPAN, "plan", [0])  # job 0 on machine 0: 0..10
    assert state.open_predecessors[0].tolist() == [0, 0, 1, 0]
    assert state.ready[0, 2].tolist() == [10.0, 13.0]
    assert state.ready[0, 3].tolist() == [10.0, 10.0]
    state.step(torch.tensor([3]))  # job 1 on machine 1: 0..10
    assert state.open_predecessors[0, 2] == 0
    assert state.ready[0, 2].tolist() == [15.0, 13.0]


def test_only_the_given_rows_change() -> None:
    problem = Problem.from_instances([Instance.from_matrix(np.full((2, 2), 3.0))]).repeat(3)
    state = State.initial(problem, MAKESPAN, "plan")
    rows, end = torch.tensor([0, 2]), torch.tensor([3.0, 4.0], dtype=torch.float64)
    place(state, rows, torch.tensor([1, 0]), torch.tensor([0, 1]), end - 3.0, end, end)
    assert state.scheduled.tolist() == [[False, True], [False, False], [True, False]]
    assert state.chosen.tolist() == [[-1, 0], [-1, -1], [1, -1]]
    assert state.units[:, :, 0].tolist() == [[3.0, 0.0], [0.0, 0.0], [0.0, 4.0]]


def test_beliefs_follow_the_expected_end_where_it_may_differ() -> None:
    instance = Instance.from_matrix(
        np.array([[4.0, INF], [INF, 2.0]]),
        actual_times=np.array([[6.0, INF], [INF, 2.0]]),
        precedence=[[0], [1]],
    )
    state = State.initial(Problem.from_instances([instance]), MAKESPAN, "dispatch")
    first, zero = torch.tensor([0]), torch.zeros(1, dtype=torch.float64)
    place(state, first, first, first, zero, zero + 6.0, zero + 4.0)
    assert (float(state.units[0, 0, 0]), float(state.believed_units[0, 0, 0])) == (6.0, 4.0)
    assert (float(state.ready[0, 1, 0]), float(state.believed_ready[0, 1, 0])) == (6.0, 4.0)
