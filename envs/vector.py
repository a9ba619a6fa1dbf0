"""VectorEnvironment: many rollouts side by side, for training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hetsched.envs.features import observe
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State

if TYPE_CHECKING:
    from hetsched.envs.graph import Graph
    from hetsched.envs.objective import Objective
    from hetsched.envs.scenarios import Scenario


@dataclass(frozen=True)
class Transition:
    """What one step of all rows gave.

    Attributes:
        graph: what is seen next; of a fresh batch of instances when ``fresh``.
        rewards: (B,) float64, decrease of the bound over the row's reference cost.
        done: (B,) bool, rows whose schedule is complete (also rows that were complete before).
        fresh: all rows were done, so that new instances were drawn.
    """

    graph: Graph
    rewards: Tensor
    done: Tensor
    fresh: bool


def reward_unit(fresh: State, reference: Callable[[State], Tensor] | None) -> Tensor:
    """(B,) float64, what rewards are divided by: reference costs where they are positive, or the
    mean fastest duration.

    Args:
        fresh: undecided states; ``reference`` may decide them.
    """
    scale = fresh.problem.time_scale
    if reference is None:
        return scale
    cost = reference(fresh)
    return torch.where(cost > 0, cost, scale)


class VectorEnvironment:
    """``groups`` instances, each decided ``repeats`` times side by side.

    All rows begin together and new instances are drawn once all are done, so the rows of a group
    are always at the same decision of the same instance: their mean return is a baseline for each
    of them.  Rows that end early idle (their only action is WAIT) and cost nothing.

    Batch ``i`` depends on (seed, i) alone, and its size is ``sizes[i % len(sizes)]``.

    Args:
        scenario: what to draw.
        groups, repeats: batch size is their product.
        seed: of the instances.
        sizes: (jobs, machines) in turn; the scenario's own by default.
        reference: costs (groups,) of the fresh states that it is given, for scaling the rewards;
            without it rewards are in units of the mean fastest duration.
    """

    def __init__(
        self,
        scenario: Scenario,
        groups: int,
        repeats: int,
        seed: int,
        sizes: Sequence[tuple[int, int]] | None = None,
        reference: Callable[[State], Tensor] | None = None,
    ) -> None:
        if groups < 1 or repeats < 1:
            raise ValueError(f"groups and repeats must be at least 1, got {groups}, {repeats}")
        self.scenario, self.groups, self.repeats, self.seed = scenario, groups, repeats, seed
        self.sizes = tuple(sizes or scenario.sizes)
        self.reference = reference
        self.batch = -1
        self.state: State
        self.scale: Tensor

    @property
    def objective(self) -> Objective:
        return self.scenario.objective

    @property
    def batch_size(self) -> int:
        return self.groups * self.repeats

    def reset(self) -> Graph:
        """Draw the next batch of instances."""
        self.batch += 1
        self._begin()
        return observe(self.state)

    def _begin(self) -> None:
        jobs, machines = self.sizes[self.batch % len(self.sizes)]
        rng = np.random.default_rng([self.seed, self.batch, 2])  # a stream of its own
        problem = Problem.from_instances(
            [self.scenario.generate(rng, jobs, machines) for _ in range(self.groups)]
        )
        fresh = State.initial(problem, self.objective, self.scenario.deciding)
        scale = reward_unit(fresh, self.reference)
        self.scale = scale.repeat_interleave(self.repeats)
        self.state = State.initial(
            problem.repeat(self.repeats), self.objective, self.scenario.deciding
        )

    def step(self, actions: Tensor) -> Transition:
        """Take one action (B,) int64 in every row."""
        reward = self.state.step(actions) / self.scale
        done = self.state.done.clone()
        fresh = bool(done.all())
        graph = self.reset() if fresh else observe(self.state)
        return Transition(graph, reward, done, fresh)

    def progress(self) -> Tensor:
        """(B,) float64: the clock in dispatch, the number of decisions in a plan."""
        state = self.state
        return state.now.clone() if state.deciding == "dispatch" else state.steps.double()

    def state_dict(self) -> dict[str, Any]:
        """Where the environment stands: the batch and the decisions taken in it."""
        return {"batch": self.batch, "tensors": self.state.tensors()}

    def load_state_dict(self, saved: dict[str, Any]) -> Graph:
        """Return to where another environment of the same arguments stood."""
        self.batch = saved["batch"]
        self._begin()
        self.state.load_tensors(saved["tensors"])
        return observe(self.state)
