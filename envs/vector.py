"""VectorEnvironment: many rollouts side by side, for training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from hetsched.envs.drawing import draw_within, extent_of
from hetsched.envs.features import observe
from hetsched.envs.observation import Extent
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
        rewards: (B,) float64, decrease of the bound, or of the outlook, over the row's reference
            cost.
        done: (B,) bool, rows whose schedule is complete (also rows that were complete before).
        fresh: all rows were done, so that new instances were drawn.
    """

    graph: Graph
    rewards: Tensor
    done: Tensor
    fresh: bool


class Outlook(Protocol):
    """What rows will cost if all goes on well from where they are.

    Attributes:
        costs: (B,) float64, decisions included; the true costs of finished rows. Every step gives a
            new tensor.
    """

    costs: Tensor

    def step(self, state: State, actions: Tensor) -> None:
        """Take the actions (B,) in the state, and look ahead again."""

    def tensors(self) -> dict[str, Tensor]:
        """Copies of all that changes."""
        ...

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`tensors` gave."""


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
    are always in the same instance, and what they reach is a baseline for each of them.  Rows that
    end early idle (their only action is WAIT) and cost nothing.

    Batch ``i`` depends on (seed, i) alone, and its size is ``sizes[i % len(sizes)]``.

    Args:
        scenario: what to draw.
        groups, repeats: batch size is their product.
        seed: of the instances.
        sizes: (jobs, machines) in turn; the scenario's own by default.
        reference: costs (groups,) of the fresh states that it is given, for scaling the rewards;
            without it rewards are in units of the mean fastest duration.
        outlook: looks ahead in the rows of a problem.  With it a reward is what a decision does
            to the cost that is in sight, and those of an episode add up to the first outlook minus
            the cost: shaping by a potential, which changes no optimal policy (Ng, Harada &
            Russell, ICML 1999).
        device: of the states, and so of graphs, rewards and actions.
        extent: instances that do not fit into it are drawn again; None: all do.
    """

    def __init__(
        self,
        scenario: Scenario,
        groups: int,
        repeats: int,
        seed: int,
        sizes: Sequence[tuple[int, int]] | None = None,
        reference: Callable[[State], Tensor] | None = None,
        outlook: Callable[[Problem], Outlook] | None = None,
        device: str = "cpu",
        extent: Extent | None = None,
    ) -> None:
        if groups < 1 or repeats < 1:
            raise ValueError(f"groups and repeats must be at least 1, got {groups}, {repeats}")
        self.scenario, self.groups, self.repeats, self.seed = scenario, groups, repeats, seed
        self.sizes = tuple(sizes or scenario.sizes)
        self.reference, self.look_ahead, self.device = reference, outlook, device
        self.extent, self.batch = extent, -1
        self.state: State
        self.outlook: Outlook | None = None
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
        problem = self._draw()
        fresh = State.initial(problem, self.objective, self.scenario.deciding)
        scale = reward_unit(fresh, self.reference)
        self.scale = scale.repeat_interleave(self.repeats)
        problem = problem.repeat(self.repeats)
        self.state = State.initial(problem, self.objective, self.scenario.deciding)
        if self.look_ahead is not None:
            self.outlook = self.look_ahead(problem)

    def _draw(self) -> Problem:
        """One row per group."""
        size = self.sizes[self.batch % len(self.sizes)]
        rng = np.random.default_rng([self.seed, self.batch, 2])  # a stream of its own
        instances = [self.scenario.generate(rng, *size) for _ in range(self.groups)]
        problem = Problem.from_instances(instances, device=self.device)
        extent = self.extent
        if extent is None or extent.holds(Extent.of(problem)):
            return problem
        fitting = [
            one
            if extent.holds(extent_of([one]))
            else draw_within(extent, self.scenario, rng, *size)
            for one in instances
        ]
        return Problem.from_instances(fitting, device=self.device)

    def step(self, actions: Tensor) -> Transition:
        """Take one action (B,) int64 in every row."""
        reward = self._step(actions) / self.scale
        done = self.state.done.clone()
        fresh = bool(done.all())
        graph = self.reset() if fresh else observe(self.state)
        return Transition(graph, reward, done, fresh)

    def _step(self, actions: Tensor) -> Tensor:
        if self.outlook is None:
            return self.state.step(actions)
        before = self.outlook.costs
        self.outlook.step(self.state, actions)
        return before - self.outlook.costs

    def progress(self) -> Tensor:
        """(B,) float64: the clock in dispatch, the number of decisions in a plan."""
        state = self.state
        return state.now.clone() if state.deciding == "dispatch" else state.steps.double()

    def state_dict(self) -> dict[str, Any]:
        """Where the environment stands: the batch and the decisions taken in it."""
        saved = {"batch": self.batch, "tensors": self.state.tensors()}
        if self.outlook is not None:
            saved["outlook"] = self.outlook.tensors()
        return saved

    def load_state_dict(self, saved: dict[str, Any]) -> Graph:
        """Return to where another environment of the same arguments stood."""
        self.batch = saved["batch"]
        self._begin()
        self.state.load_tensors(saved["tensors"])
        if self.outlook is not None:
            self.outlook.load_tensors(saved["outlook"])
        return observe(self.state)
