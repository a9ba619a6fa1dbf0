"""Samples of a policy: the best of its greedy schedule and many drawn ones, decided in parallel."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from hetsched.agents.evaluation import MAX_EDGES, Answers, padded_edges
from hetsched.agents.learned import LearnedPolicy, problem_for
from hetsched.agents.policy import rollout
from hetsched.envs.simulator import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hetsched.agents.evaluation import Setting
    from hetsched.agents.policy import Policy
    from hetsched.envs.instance import Instance
    from hetsched.envs.schedule import Schedule
    from hetsched.envs.simulator import Deciding

OF_RULES = 0.25  # temperature: their scores are logarithms


@dataclass(frozen=True)
class BestOfSamples:
    """The greedy schedule and K - 1 sampled ones; the best counts, and so does the time of all.

    Samples of one instance are rows of one batch, as many at once as memory allows.

    Attributes:
        policy: what decides: a network or a rule.
        samples: K, schedules per instance.
        temperature: scores are divided by it before the softmax; lower stays closer to greedy.
            None: that of the checkpoint, or what was best for rules on instances of our own seeds.

    Raises:
        ValueError: fewer than one sample, or a temperature that is not positive.
    """

    policy: Policy
    samples: int
    temperature: float | None = None
    kind: str = field(default="policy", init=False)

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"samples must be at least 1, got {self.samples}")
        if self.temperature is not None and not 0 < self.temperature < float("inf"):
            raise ValueError(f"the temperature must be above 0, got {self.temperature:g}")

    @property
    def name(self) -> str:
        return f"{self.policy.name}@{self.samples}"

    def hindsight(self, deciding: Deciding) -> bool:
        return deciding == "dispatch" and self.samples > 1

    def solve(self, instances: Sequence[Instance], setting: Setting) -> Answers:
        # Seeded by batch, so that a contender answers alike however often it is asked.
        generator = torch.Generator(setting.device).manual_seed(setting.seed)
        problem = problem_for(self.policy, instances, setting.device)
        rows = max(len(instances), MAX_EDGES // padded_edges(instances))
        group = min(self.samples, rows // len(instances))  # samples of each instance at once
        best = Best(len(instances))
        for first in range(0, self.samples, group):
            size = min(group, self.samples - first)
            state = State.initial(problem.repeat(size), setting.objective, setting.deciding)
            number = torch.arange(first, first + size, device=setting.device)  # (size,)
            sampled = (number > 0).repeat(len(instances))  # row i * size + r: sample r of i
            began = clock(setting.device)
            rollout(
                self.policy,
                state,
                sampled=sampled,
                generator=generator,
                temperature=self.temperature or temperature_of(self.policy),
            )
            best.offer(state, group=size, elapsed=clock(setting.device) - began)
        return best.answers()


def temperature_of(policy: Policy) -> float:
    """At which samples are drawn: the checkpoint's, or what was best for rules on own seeds."""
    return policy.temperature if isinstance(policy, LearnedPolicy) else OF_RULES


class Best:
    """The best schedule of each instance so far, and the time spent on all.

    Attributes:
        count: of instances.
        schedules: one per instance, None where there is none yet.
        costs, seconds: (instances,) float64; decisions: (instances,) int64, behind each schedule.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.schedules: list[Schedule | None] = [None] * count
        self.costs: NDArray[np.float64] = np.full(count, np.inf)
        self.decisions: NDArray[np.int64] = np.zeros(count, np.int64)
        self.seconds: NDArray[np.float64] = np.zeros(count)

    def offer(self, state: State, group: int, elapsed: float, first: int = 0) -> None:
        """Take what is better in a finished state whose rows come in groups per instance.

        Args:
            first: the instance of the first group; others follow.
        """
        count = len(state.done) // group
        costs = state.cost().cpu().numpy().reshape(count, group)
        steps = state.steps.cpu().numpy()
        schedules = state.schedules()
        shares = steps.reshape(count, group).sum(1) / max(1, steps.sum())
        self.seconds[first : first + count] += elapsed * shares
        for i, r in enumerate(costs.argmin(1).tolist()):
            if costs[i, r] < self.costs[first + i]:
                row = i * group + r
                self.costs[first + i], self.schedules[first + i] = costs[i, r], schedules[row]
                self.decisions[first + i] = steps[row]

    def answers(self) -> Answers:
        return Answers(tuple(self.schedules), self.costs, self.seconds, self.decisions)


def clock(device: str) -> float:
    """Seconds, after everything that was asked of the device is done."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter()
