"""A policy that fails is replaced by a rule, loudly, and the queue goes on."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import pytest
import torch

from hetsched.agents.rules import make_rule
from hetsched.executor.adapter import run_queue
from hetsched.executor.guard import Guard
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, Mode, Queue
from hetsched.executor.simulated import SimulatedExecutor

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hetsched.envs.simulator import State

QUEUE = Queue(
    tuple(Job(f"j{at}", (Mode("m", 5.0 - at),)) for at in range(5)), (Machine("m"),)
)  # spt takes the last first


class Fails:
    name = "fails"

    def __init__(self, how: Callable[[State], Tensor], times: int = 99) -> None:
        self.how, self.times, self.asked = how, times, 0

    def scores(self, state: State) -> Tensor:
        self.asked += 1
        if self.asked <= self.times:
            return self.how(state)
        return make_rule("fifo").scores(state)


def nan(state: State) -> Tensor:
    return torch.full((1, state.problem.num_actions), math.nan)


def nothing_legal(state: State) -> Tensor:
    return torch.full((1, state.problem.num_actions), -math.inf)


def raises(state: State) -> Tensor:
    raise KeyError("weights")


def wrong_shape(state: State) -> Tensor:
    return torch.zeros(1, 2)


def hangs(state: State) -> Tensor:
    time.sleep(60)
    raise AssertionError("never asked again")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (nan, "gave NaN"),
        (nothing_legal, "no legal action"),
        (raises, "KeyError: 'weights'"),
        (wrong_shape, "RuntimeError"),
    ],
)
def test_a_rule_decides_where_the_policy_cannot(how: Callable[[State], Tensor], said: str) -> None:
    policy = Fails(how)
    done = run_queue(QUEUE, policy, SimulatedExecutor(QUEUE.machines), fallback=make_rule("spt"))
    assert [one.attempt.job for one in done.outcomes] == ["j4", "j3", "j2", "j1", "j0"]
    assert policy.asked == 3  # and then no more
    assert len(done.notes) == 3
    assert said in done.notes[0]
    assert done.notes[0].endswith("spt decides this time")
    assert done.notes[2].endswith("spt decides from now on")


def test_a_policy_that_failed_once_is_asked_again() -> None:
    policy = Fails(nan, times=1)
    done = run_queue(QUEUE, policy, SimulatedExecutor(QUEUE.machines), fallback=make_rule("spt"))
    assert [one.attempt.job for one in done.outcomes] == ["j4", "j0", "j1", "j2", "j3"]
    assert len(done.notes) == 1


def test_a_policy_that_hangs_is_left_alone() -> None:
    policy, began = Fails(hangs), time.monotonic()
    done = run_queue(
        QUEUE,
        policy,
        SimulatedExecutor(QUEUE.machines),
        fallback=make_rule("spt"),
        decision_timeout=0.2,
    )
    assert done.all_done
    assert policy.asked == 1
    assert time.monotonic() - began < 30
    (note,) = done.notes
    assert note.startswith("policy 'fails' failed (no answer after 0.")


def test_a_guard_needs_somebody_who_decides() -> None:
    with pytest.raises(ValueError, match="neither a policy nor a fallback"):
        Guard(None)
    with pytest.raises(ValueError, match="timeout is 0"):
        Guard(make_rule("fifo"), timeout=0)
    assert Guard(None, make_rule("spt")).name == "spt"
