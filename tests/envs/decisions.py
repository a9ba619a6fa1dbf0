"""Decisions named by the modes of an instance, so that they can be repeated in another layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State

if TYPE_CHECKING:
    from hetsched.envs.instance import Instance
    from hetsched.envs.simulator import Deciding

WAIT = -1
EVERYTHING = Objective(
    makespan=1.0,
    weighted_tardiness=2.0,
    machine_tardiness=0.5,
    weighted_completion=0.25,
    flow_time=1.5,
    setup_time=3.0,
)


def random_decisions(state: State, count: int, seed: int = 0) -> list[int]:
    """Play up to ``count`` random decisions in a one-row state; each is a mode or WAIT."""
    generator = torch.Generator().manual_seed(seed)
    modes = torch.cat([state.problem.mode_index.flatten(), torch.tensor([WAIT])])
    taken = []
    for _ in range(count):
        if bool(state.done):
            break
        mask = state.mask()
        action = torch.rand(mask.shape, generator=generator).masked_fill(~mask, -1.0).argmax(1)
        taken.append(int(modes[action]))
        state.step(action)
    return taken


def replay(state: State, decisions: Sequence[Sequence[int]]) -> State:
    """Take one list of decisions per row; rows whose list has ended must be done by then."""
    problem = state.problem
    for step in range(max(len(one) for one in decisions)):
        actions = torch.full((problem.batch_size,), problem.num_actions - 1)
        for row, modes in enumerate(decisions):
            if step < len(modes) and modes[step] != WAIT:
                actions[row] = int((problem.mode_index[row].flatten() == modes[step]).nonzero())
        state.step(actions)
    return state


def by_mode(problem: Problem, row: int, scores: Tensor) -> Tensor:
    """(modes + 1,): the scores of a row in the order of the instance's modes, then that of WAIT.

    NaN where the problem has pruned a mode.
    """
    index = problem.mode_index[row].flatten()
    found = scores.new_full((problem.instances[row].num_modes + 1,), torch.nan)
    found[index[index >= 0]] = scores[row, :-1][index >= 0]
    found[-1] = scores[row, -1]
    return found


def state_after(
    instance: Instance,
    objective: Objective,
    deciding: Deciding,
    decisions: Sequence[int] | int = 0,
    problem: Problem | None = None,
) -> State:
    """The state of one instance after so many random decisions, or after the given ones."""
    state = State.initial(problem or Problem.from_instances([instance]), objective, deciding)
    if isinstance(decisions, int):
        random_decisions(state, decisions)
    elif decisions:
        replay(state, [decisions])
    return state
