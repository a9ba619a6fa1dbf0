"""Acting, sampling and rolling out: what every policy is used through."""

from __future__ import annotations

import math
import time

import pytest
import torch

from hetsched.agents.policy import act, masked_scores, rollout, sample
from hetsched.agents.rules import make_rule
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State

MAKESPAN = Objective(makespan=1.0)


class Fixed:
    """The same scores in every row and state."""

    name = "fixed"

    def __init__(self, *scores: float, dtype: torch.dtype = torch.float64) -> None:
        self.row = torch.tensor(scores, dtype=dtype)

    def scores(self, state: State) -> torch.Tensor:
        return self.row.expand(state.problem.batch_size, -1).clone()


def state_of(rows: int = 1, deciding: str = "plan") -> State:
    """Two jobs on one machine and on another: five actions, WAIT last; job 1 is not for machine 1.

    Durations: job 0 takes 2 or 5, job 1 takes 4.
    """
    instance = Instance.from_matrix([[2.0, 5.0], [4.0, math.inf]])
    return State.initial(Problem.from_instances([instance] * rows), MAKESPAN, deciding)


def test_the_best_legal_action_is_taken() -> None:
    assert act(Fixed(1, 2, 3, 9, 9), state_of()).tolist() == [2]  # 3 is no mode, 4 is WAIT


def test_the_first_of_equals_is_taken() -> None:
    assert act(Fixed(1, 3, 3, 0, 0), state_of(2)).tolist() == [1, 1]


def test_scores_of_illegal_actions_are_minus_infinity() -> None:
    scores = masked_scores(Fixed(1, 2, 3, math.nan, math.inf), state_of())
    assert scores.tolist() == [[1, 2, 3, -math.inf, -math.inf]]


def test_a_legal_action_without_a_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="policy 'fixed' gave NaN as a score"):
        act(Fixed(math.nan, 2, 3, 0, 0), state_of())


def test_samples_follow_the_softmax_of_the_scores() -> None:
    policy = Fixed(math.log(1), math.log(2), math.log(5), 9, 9)
    generator = torch.Generator().manual_seed(0)
    counts = torch.bincount(sample(policy, state_of(8000), generator), minlength=5) / 8000
    assert counts[:3].tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=0.02)
    assert counts[3:].tolist() == [0, 0]


def test_scores_beyond_single_precision_can_be_sampled() -> None:
    policy = Fixed(1e300, -1e300, 1e300, 0, 0)
    drawn = sample(policy, state_of(200), torch.Generator().manual_seed(0))
    assert set(drawn.tolist()) == {0, 2}


def test_samples_repeat_with_their_generator() -> None:
    def draw() -> list[int]:
        return sample(Fixed(1, 1, 1, 1, 1), state_of(50), torch.Generator().manual_seed(7)).tolist()

    assert draw() == draw()


def test_a_greedy_rollout_finishes_every_row() -> None:
    state = rollout(make_rule("min-min"), state_of(3))
    assert bool(state.done.all())
    assert state.cost().tolist() == [6.0, 6.0, 6.0]  # machine 0 takes job 0 until 2, then job 1
    assert state.steps.tolist() == [2, 2, 2]


def test_rows_that_sample_leave_greedy_rows_alone() -> None:
    state, sampled = state_of(64), torch.arange(64) >= 32
    rollout(Fixed(0, 0.1, 0, 0, 0), state, sampled=sampled, generator=torch.Generator())
    costs = state.cost()
    assert set(costs[:32].tolist()) == {5.0}  # job 0 on machine 1, job 1 on machine 0
    assert set(costs[32:].tolist()) == {5.0, 6.0}


def test_all_rows_may_sample() -> None:
    state = rollout(Fixed(0, 0.1, 0, 0, 0), state_of(64), sampled=True)
    assert set(state.cost().tolist()) == {5.0, 6.0}


def test_a_finished_state_stays_as_it_is() -> None:
    state = rollout(make_rule("ect"), state_of())
    steps = state.steps.tolist()
    assert rollout(make_rule("ect"), state) is state
    assert state.steps.tolist() == steps


class Slow(Fixed):
    """Takes its time for every decision."""

    def __init__(self, seconds: float) -> None:
        super().__init__(0.0)
        self.seconds = seconds

    def scores(self, state: State) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.zeros(state.problem.batch_size, state.problem.num_actions)


def long_state() -> State:
    """A hundred jobs on one machine."""
    instance = Instance.from_matrix([[1.0]] * 100)
    return State.initial(Problem.from_instances([instance]), MAKESPAN, "plan")


def test_a_deadline_that_cannot_be_kept_is_given_up_early() -> None:
    began = time.perf_counter()
    state = rollout(Slow(0.02), long_state(), deadline=began + 0.5)
    assert not bool(state.done.all())
    assert int(state.steps) < 10  # of the 25 that would have fitted in


def test_a_deadline_that_can_be_kept_changes_nothing() -> None:
    state = rollout(Slow(0.0), long_state(), deadline=time.perf_counter() + 60.0)
    assert bool(state.done.all())


def test_a_deadline_that_is_over_stops_at_once() -> None:
    state = rollout(Slow(0.0), long_state(), deadline=time.perf_counter() - 1.0)
    assert int(state.steps) == 0
