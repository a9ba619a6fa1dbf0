"""Measuring: schedules are checked, costs recomputed, time counted; nobody is believed."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor

from hetsched.agents.contenders import OnePolicy
from hetsched.agents.evaluation import (
    Answers,
    EvaluationError,
    Setting,
    default_batch,
    measure,
)
from hetsched.agents.sampling import BestOfSamples
from hetsched.agents.searchers import CpSat
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetsched.envs.schedule import Schedule
    from hetsched.envs.simulator import State

PLAN = Setting(Objective(makespan=1.0), "plan")
DISPATCH = Setting(Objective(flow_time=1.0, per_job=True), "dispatch")


@dataclass
class Constant:
    """The same score for everything, so that the first legal action is taken; may be slow."""

    name: str = "constant"
    delay: float = 0.0

    def scores(self, state: State) -> Tensor:
        time.sleep(self.delay)
        return torch.zeros(state.problem.batch_size, state.problem.num_actions)


@dataclass
class Fixed:
    """A contender that says what it is told to."""

    schedule: Schedule | None
    cost: float
    name: str = "fixed"
    kind: str = "rule"

    def hindsight(self, deciding: str) -> bool:
        return False

    def solve(self, instances: Sequence[Instance], setting: Setting) -> Answers:
        count = len(instances)
        return Answers(
            (self.schedule,) * count,
            np.full(count, self.cost),
            np.ones(count),
            np.ones(count, np.int64),
        )


@pytest.fixture
def instances() -> list[Instance]:
    """Three instances of different sizes.  The first: all on machine 0, makespan 6."""
    return [
        Instance.from_matrix([[1.0, 4.0], [2.0, 1.0], [3.0, 3.0]]),
        Instance.from_matrix([[5.0, 7.0]]),
        Instance.from_matrix([[2.0, 1.0, 9.0], [2.0, 9.0, 9.0]]),
    ]


def test_costs_are_those_of_the_schedules(instances: list[Instance]) -> None:
    result = measure(OnePolicy(Constant()), instances, PLAN)
    assert result.costs.tolist() == [6.0, 5.0, 4.0]
    assert result.decisions.tolist() == [3, 1, 2]
    assert [schedule.modes.tolist() for schedule in result.schedules if schedule] == [
        [0, 2, 4],
        [0],
        [0, 3],
    ]


@pytest.mark.parametrize("batch", [1, 2, 3, None])
def test_how_many_are_decided_at_once_changes_no_cost(
    instances: list[Instance], batch: int | None
) -> None:
    done: list[int] = []
    result = measure(OnePolicy(Constant()), instances, PLAN, batch, done.append)
    assert result.costs.tolist() == [6.0, 5.0, 4.0]
    assert done[-1] == 3
    assert done == sorted(done)


def test_a_wrong_cost_is_an_error(instances: list[Instance]) -> None:
    good = measure(OnePolicy(Constant()), instances[:1], PLAN).schedules[0]
    assert measure(Fixed(good, 6.0), instances[:1], PLAN).costs.tolist() == [6.0]
    with pytest.raises(EvaluationError, match=r"fixed on instance 0 claims cost 5\.9"):
        measure(Fixed(good, 5.9), instances[:1], PLAN)


def test_an_infeasible_schedule_is_an_error_and_not_the_users_mistake(
    instances: list[Instance],
) -> None:
    good = measure(OnePolicy(Constant()), instances[:1], PLAN).schedules[0]
    assert good is not None
    overlapping = replace(good, starts=np.zeros(3), ends=np.array([1.0, 2.0, 3.0]))
    with pytest.raises(EvaluationError, match="infeasible") as caught:
        measure(Fixed(overlapping, 3.0), instances[:1], PLAN)
    assert not isinstance(caught.value, ValueError)


def test_no_schedule_in_time_costs_infinity(instances: list[Instance]) -> None:
    assert measure(Fixed(None, np.inf), instances, PLAN).costs.tolist() == [np.inf] * 3


def test_deciding_is_timed_and_shared_by_the_instances_of_a_batch() -> None:
    pair = [Instance.from_matrix([[1.0], [1.0]]), Instance.from_matrix([[1.0]])]
    result = measure(OnePolicy(Constant(delay=0.01)), pair, PLAN)
    # two questions of 10 ms: the first shared by both, the second for the longer one alone
    assert result.seconds[0] >= 0.015
    assert result.seconds[0] > 2 * result.seconds[1]
    assert result.milliseconds_per_decision == pytest.approx(1e3 * result.seconds.sum() / 3)


def test_policies_dispatch_without_hindsight_and_searches_with_it() -> None:
    policy = Constant()
    for contender, knows in (
        (OnePolicy(policy), False),
        (BestOfSamples(policy, 1), False),
        (BestOfSamples(policy, 2), True),
        (CpSat(1.0), True),
    ):
        assert contender.hindsight("dispatch") is knows
        assert contender.hindsight("plan") is False


def test_dispatch_is_measured_with_true_durations() -> None:
    instance = Instance.from_matrix(
        [[2.0], [2.0]], release_times=[0.0, 1.0], actual_times=[[3.0], [1.0]]
    )
    result = measure(OnePolicy(Constant()), [instance], DISPATCH)
    assert result.costs.tolist() == [3.0]  # flows 3 and 4 - 1


def test_cp_sat_meets_an_optimum_known_by_hand(instances: list[Instance]) -> None:
    result = measure(CpSat(10.0), instances[:1], PLAN)
    assert result.costs.tolist() == [3.0]  # jobs 0 and 1 on machine 0, job 2 on machine 1
    assert (result.name, result.kind) == ("cp-sat@10", "solver")
    assert result.seconds[0] > 0


def test_large_instances_are_decided_few_at_a_time() -> None:
    small = Instance.from_matrix(np.ones((2, 2)))
    large = Instance.from_matrix(np.ones((1000, 100)))
    assert default_batch([small]) == 512
    assert default_batch([small, large]) == 2
    times = np.full((1000, 100), np.inf)
    times[np.arange(1000), np.arange(1000) % 100] = 1.0  # a batch has room for all machines
    assert default_batch([Instance.from_matrix(times)]) == 2


def test_nothing_to_measure_is_refused(instances: list[Instance]) -> None:
    with pytest.raises(ValueError, match="no instance"):
        measure(OnePolicy(Constant()), [], PLAN)
    with pytest.raises(ValueError, match="batch must be at least 1"):
        measure(OnePolicy(Constant()), instances, PLAN, batch=0)
