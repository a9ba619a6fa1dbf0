"""Teachers: which actions are right in a state, according to a good schedule or to a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from hetsched.envs.schedule import Schedule
from hetsched.envs.simulator import State

if TYPE_CHECKING:
    from hetsched.agents.configs import ImitationConfig
    from hetsched.envs.instance import Instance
    from hetsched.envs.objective import Objective
    from hetsched.envs.problem import Problem
    from hetsched.envs.scenarios import Scenario

INF = float("inf")
CLOSE = 1e-9  # relative difference of costs that are the same
FOLLOWED = ("starts", "slots", "machines", "costs")
Indices = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]


class Teacher(Protocol):
    """Says which actions are right."""

    def targets(self, state: State) -> Tensor:
        """(B, J * K + 1) bool: right actions, at least one in every row that is not done."""
        ...

    def follow(self, state: State, wrong: Tensor) -> Tensor:
        """The rows (B,) bool of the state have just got there by an action that was not right.

        Returns:
            (B,) float64: how much more that costs than a right one, zero in other rows; infinity
            where it cannot be said.
        """
        ...


class RuleTeacher:
    """Right is what a policy would do."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def targets(self, state: State) -> Tensor:
        chosen = act(self.policy, state)
        return torch.zeros_like(state.mask()).scatter_(1, chosen[:, None], True)

    def follow(self, state: State, wrong: Tensor) -> Tensor:
        """A rule has something to say about any state."""
        return torch.where(wrong, INF, 0.0).double()


class ScheduleTeacher:
    """Right is every mode that is next in line on its machine in a good schedule.

    A schedule does not say in which order its decisions are to be taken: in a plan on machines of
    capacity 1, any order that respects the sequence of each machine rebuilds it.  Where somebody
    leaves the schedule, what remains is solved anew from there.  Rows of one instance that have
    decided the same are solved once.

    Attributes:
        costs: (B,) float64, of the schedule that each row is following, decisions included; what a
            row costs when it is done.

    Args:
        problem: a batch of plans.
        objective: gives the costs.
        solve: a good schedule of an instance; called from several threads.
        workers: threads.

    Raises:
        ValueError: a schedule with a mode that was pruned away.
    """

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        solve: Callable[[Instance], Schedule],
        workers: int = 2,
    ) -> None:
        self.problem, self.objective, self.solve, self.workers = problem, objective, solve, workers
        shape, device = problem.job_mask.shape, problem.device
        self.starts = torch.full(shape, INF, dtype=torch.float64, device=device)
        self.slots = torch.zeros(shape, dtype=torch.int64, device=device)
        self.machines = torch.zeros_like(self.slots)
        self.costs = torch.zeros(problem.batch_size, dtype=torch.float64, device=device)
        self._solve(State(problem, objective, "plan"), range(problem.batch_size))

    def follow(self, state: State, wrong: Tensor) -> Tensor:
        before = self.costs
        self.costs = before.clone()
        self._solve(state, (wrong & ~state.done).nonzero().flatten().tolist())
        self.costs = torch.where(state.done, state.bound, self.costs)
        more = self.costs - before
        return torch.where(wrong & (more > CLOSE * before.abs()), more, 0.0)

    def _solve(self, state: State, rows: Sequence[int]) -> None:
        """Solve what remains of these rows."""
        if not rows:
            return
        same: dict[tuple[int, bytes], list[int]] = {}
        chosen, starts = state.chosen.cpu().numpy(), state.starts.cpu().numpy()
        for row in rows:
            decided = chosen[row].tobytes() + starts[row].tobytes()
            key = id(state.problem.instances[row]), decided
            same.setdefault(key, []).append(row)
        parts = [remaining(state, group[0]) for group in same.values()]
        with ThreadPoolExecutor(self.workers) as pool:  # compiled loops let go of the interpreter
            found = list(pool.map(self.solve, (part for part, _, _ in parts)))
        for group, (_, jobs, modes), one in zip(same.values(), parts, found, strict=True):
            self._learn(state, group, jobs, modes[one.modes], one.starts)

    def _learn(
        self, state: State, group: list[int], jobs: Indices, modes: Indices, starts: Times
    ) -> None:
        """These jobs are to run in these modes, from then on, in rows that are all alike."""
        problem, first = self.problem, group[0]
        rows = torch.tensor(group, device=problem.device)[:, None]  # (R, 1)
        where = torch.from_numpy(jobs).to(problem.device)  # (n,)
        wanted = torch.from_numpy(modes).to(problem.device)
        here = problem.mode_index[first, where] == wanted[:, None]  # (n, K)
        if not bool(here.any(1).all()):
            raise ValueError(f"schedules[{first}] uses a mode that the problem does not have")
        slots = here.int().argmax(1)
        self.starts[rows, where] = torch.from_numpy(starts.copy()).to(problem.device)
        self.slots[rows, where] = slots
        self.machines[rows, where] = problem.mode_machines[first, where, slots]
        self.costs[rows] = self._whole(state, first).cost(problem.instances[first], self.objective)

    def _whole(self, state: State, row: int) -> Schedule:
        """What has been decided, and what is to follow."""
        instance = self.problem.instances[row]
        jobs = slice(instance.num_jobs)
        decided = state.scheduled[row, jobs].cpu()
        slots = torch.where(decided, state.chosen[row, jobs].cpu(), self.slots[row, jobs].cpu())
        starts = torch.where(decided, state.starts[row, jobs].cpu(), self.starts[row, jobs].cpu())
        index = self.problem.mode_index[row, jobs].cpu()
        modes = index.gather(1, slots[:, None]).squeeze(1).numpy()
        ends = starts.numpy() + instance.processing_times[modes]
        return Schedule(modes, starts.numpy(), ends)

    def step(self, state: State, actions: Tensor) -> None:
        """Take the actions (B,), and follow; ``costs`` of finished rows are what they cost."""
        wrong = ~self.targets(state).gather(1, actions[:, None]).squeeze(1)
        state.step(actions)
        self.follow(state, wrong)

    def tensors(self) -> dict[str, Tensor]:
        """Copies of all that changes, by name."""
        return {name: getattr(self, name).clone() for name in FOLLOWED}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`tensors` of another teacher of the same problem gave."""
        for name in FOLLOWED:
            setattr(self, name, tensors[name].to(self.problem.device, copy=True))

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
    if config.teacher == "random":
        raise ValueError("random teaches nothing; name another rule, such as heft, as the teacher")
    if config.teacher != "annealing":
        return make_rule(config.teacher)
    check_annealing(scenario, sizes[0])
    return None


def check_annealing(scenario: Scenario, size: tuple[int, int]) -> None:
    """Refuse a scenario whose schedules cannot be annealed.

    Raises:
        ValueError: not all is known in advance, or machines are shared.
    """
    if scenario.deciding != "plan":
        raise ValueError(
            f"annealing needs all in advance, but {scenario.name} dispatches; name a rule as the "
            "teacher, such as ect-wait, and leave outlook_moves at 0"
        )
    if not can_anneal_graph(scenario.generate(np.random.default_rng(0), *size)):
        raise ValueError(
            "annealing needs machines of capacity 1 and known durations, which "
            f"{scenario.name} does not have; name a rule as the teacher, such as heft, and leave "
            "outlook_moves at 0"
        )


def annealing_teacher(
    problem: Problem, objective: Objective, moves_per_job: int, seed: int, workers: int = 2
) -> ScheduleTeacher:
    """A teacher that anneals every instance, and what remains of it when that is left."""

    def solve(instance: Instance) -> Schedule:
        return anneal_plan(instance, objective, moves_per_job * instance.num_jobs, seed)

    return ScheduleTeacher(problem, objective, solve, workers)
