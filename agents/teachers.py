"""Teachers: which actions are right in a state, according to a good schedule or to a rule."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from hetsched.agents.annealing import anneal, can_anneal
from hetsched.agents.policy import Policy, act
from hetsched.agents.rules import make_rule

if TYPE_CHECKING:
    from hetsched.agents.configs import ImitationConfig
    from hetsched.envs.objective import Objective
    from hetsched.envs.problem import Problem
    from hetsched.envs.scenarios import Scenario
    from hetsched.envs.schedule import Schedule
    from hetsched.envs.simulator import State

INF = float("inf")


class Teacher(Protocol):
    """Says which actions are right."""

    def targets(self, state: State) -> Tensor:
        """(B, J * K + 1) bool: right actions, at least one in every row that is not done."""
        ...


class RuleTeacher:
    """Right is what a policy would do."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def targets(self, state: State) -> Tensor:
        chosen = act(self.policy, state)
        return torch.zeros_like(state.mask()).scatter_(1, chosen[:, None], True)


class ScheduleTeacher:
    """Right is every mode that is next in line on its machine in a known schedule.

    A schedule does not say in which order its decisions are to be taken: in a plan on machines of
    capacity 1, any order that respects the sequence of each machine rebuilds it.

    Args:
        problem: a batch of plans; schedules: one per instance.

    Raises:
        ValueError: another number of schedules, or a schedule with a mode that was pruned away.
    """

    def __init__(self, problem: Problem, schedules: list[Schedule]) -> None:
        if len(schedules) != problem.batch_size:
            raise ValueError(f"{len(schedules)} schedules for {problem.batch_size} instances")
        shape = problem.job_mask.shape
        self.starts = torch.full(shape, INF, dtype=torch.float64)
        self.slots = torch.zeros(shape, dtype=torch.int64)
        for row, schedule in enumerate(schedules):
            count = len(schedule.modes)
            self.starts[row, :count] = torch.from_numpy(schedule.starts.copy())
            modes = torch.from_numpy(schedule.modes.copy())
            here = problem.mode_index[row, :count].cpu() == modes[:, None]  # (n, K)
            if not bool(here.any(1).all()):
                raise ValueError(f"schedules[{row}] uses a mode that the problem does not have")
            self.slots[row, :count] = here.int().argmax(1)
        self.starts, self.slots = self.starts.to(problem.device), self.slots.to(problem.device)
        self.machines = problem.mode_machines.gather(2, self.slots[:, :, None]).squeeze(2)

    def targets(self, state: State) -> Tensor:
        problem = state.problem
        starts = self.starts.masked_fill(state.scheduled, INF)  # (B, J)
        first = starts.new_full(problem.machine_mask.shape, INF)  # (B, M)
        first = first.scatter_reduce(1, self.machines, starts, "amin")
        next_up = (starts <= first.gather(1, self.machines)) & (starts < INF)  # (B, J)
        modes = torch.zeros_like(problem.mode_mask)
        modes.scatter_(2, self.slots[:, :, None], next_up[:, :, None])
        wait = torch.zeros(len(starts), 1, dtype=torch.bool, device=problem.device)
        return torch.cat([modes.flatten(1), wait], dim=1) & state.mask()


def teacher_rule(
    config: ImitationConfig, scenario: Scenario, sizes: Sequence[tuple[int, int]]
) -> Policy | None:
    """The rule that teaches, or None where annealing does or nobody has to.

    Raises:
        ValueError: no rule has that name, or annealing cannot do what the scenario asks for.
    """
    if not config.decisions:
        return None
    if config.teacher != "annealing":
        return make_rule(config.teacher)
    if scenario.deciding != "plan":
        raise ValueError(
            f"the teacher 'annealing' needs all in advance, but {scenario.name} dispatches; name "
            "a rule as the teacher, such as ect-wait"
        )
    if not can_anneal(scenario.generate(np.random.default_rng(0), *sizes[0])):
        raise ValueError(
            "the teacher 'annealing' needs machines of capacity 1 and no precedence, which "
            f"{scenario.name} does not have; name a rule as the teacher, such as heft"
        )
    return None


def annealing_teacher(
    problem: Problem, objective: Objective, moves_per_job: int, seed: int, workers: int = 2
) -> ScheduleTeacher:
    """A teacher with an annealed schedule of every instance."""

    def solve(index: int) -> Schedule:
        instance = problem.instances[index]
        return anneal(instance, objective, moves_per_job * instance.num_jobs, seed + index)

    with ThreadPoolExecutor(workers) as pool:  # the compiled loop lets go of the interpreter
        return ScheduleTeacher(problem, list(pool.map(solve, range(problem.batch_size))))
