"""Teachers: which actions are right in a state, according to a good schedule or to a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hetsched.agents.annealing_graph import anneal_plan, can_anneal_graph
from hetsched.agents.policy import Policy, act
from hetsched.agents.remaining import remaining
from hetsched.agents.rules import make_rule

if TYPE_CHECKING:
    from hetsched.agents.configs import ImitationConfig
    from hetsched.envs.instance import Instance
    from hetsched.envs.objective import Objective
    from hetsched.envs.problem import Problem
    from hetsched.envs.scenarios import Scenario
    from hetsched.envs.schedule import Schedule
    from hetsched.envs.simulator import State

INF = float("inf")
Indices = npt.NDArray[np.int64]


class Teacher(Protocol):
    """Says which actions are right."""

    def targets(self, state: State) -> Tensor:
        """(B, J * K + 1) bool: right actions, at least one in every row that is not done."""
        ...

    def follow(self, state: State, wrong: Tensor) -> None:
        """The rows (B,) bool of the state have just got there by an action that was not right."""
        ...


class RuleTeacher:
    """Right is what a policy would do."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def targets(self, state: State) -> Tensor:
        chosen = act(self.policy, state)
        return torch.zeros_like(state.mask()).scatter_(1, chosen[:, None], True)

    def follow(self, state: State, wrong: Tensor) -> None:
        """A rule has something to say about any state."""


class ScheduleTeacher:
    """Right is every mode that is next in line on its machine in a good schedule.

    A schedule does not say in which order its decisions are to be taken: in a plan on machines of
    capacity 1, any order that respects the sequence of each machine rebuilds it.  Where somebody
    leaves the schedule, what remains is solved anew from there.

    Args:
        problem: a batch of plans.
        solve: a good schedule of an instance; called from several threads.
        workers: threads.

    Raises:
        ValueError: a schedule with a mode that was pruned away.
    """

    def __init__(
        self, problem: Problem, solve: Callable[[Instance], Schedule], workers: int = 2
    ) -> None:
        self.problem, self.solve, self.workers = problem, solve, workers
        shape, device = problem.job_mask.shape, problem.device
        self.starts = torch.full(shape, INF, dtype=torch.float64, device=device)
        self.slots = torch.zeros(shape, dtype=torch.int64, device=device)
        self.machines = torch.zeros_like(self.slots)
        self._learn(
            (row, instance, np.arange(instance.num_jobs), np.arange(instance.num_modes))
            for row, instance in enumerate(problem.instances)
        )

    def _learn(self, parts: Iterable[tuple[int, Instance, Indices, Indices]]) -> None:
        """Solve (row, instance, its jobs in the row, its modes in the row's instance)."""
        parts, problem = list(parts), self.problem
        with ThreadPoolExecutor(self.workers) as pool:  # compiled loops let go of the interpreter
            schedules = list(pool.map(self.solve, (part[1] for part in parts)))
        for (row, _, rows, kept), schedule in zip(parts, schedules, strict=True):
            jobs = torch.from_numpy(rows).to(problem.device)
            modes = torch.from_numpy(kept[schedule.modes]).to(problem.device)
            here = problem.mode_index[row, jobs] == modes[:, None]  # (n, K)
            if not bool(here.any(1).all()):
                raise ValueError(f"schedules[{row}] uses a mode that the problem does not have")
            slots = here.int().argmax(1)
            self.starts[row, jobs] = torch.from_numpy(schedule.starts.copy()).to(problem.device)
            self.slots[row, jobs] = slots
            self.machines[row, jobs] = problem.mode_machines[row, jobs, slots]

    def follow(self, state: State, wrong: Tensor) -> None:
        rows = (wrong & ~state.done).nonzero().flatten().tolist()
        self._learn((row, *remaining(state, row)) for row in rows)

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
    if not can_anneal_graph(scenario.generate(np.random.default_rng(0), *sizes[0])):
        raise ValueError(
            "the teacher 'annealing' needs machines of capacity 1 and known durations, which "
            f"{scenario.name} does not have; name a rule as the teacher, such as heft"
        )
    return None


def annealing_teacher(
    problem: Problem, objective: Objective, moves_per_job: int, seed: int, workers: int = 2
) -> ScheduleTeacher:
    """A teacher that anneals every instance, and what remains of it when that is left."""

    def solve(instance: Instance) -> Schedule:
        return anneal_plan(instance, objective, moves_per_job * instance.num_jobs, seed)

    return ScheduleTeacher(problem, solve, workers)
