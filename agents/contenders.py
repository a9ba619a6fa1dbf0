"""Contenders by name: rules, portfolios of rules, learned policies, their samples, and CP-SAT.

| name | contender |
| --- | --- |
| ``atc``, ``atc:k=0.5``, ... | a dispatching rule (``hetsched.agents.rules``) |
| ``atc-grid``, ``atcs-r-grid`` | a portfolio: several rules run, the best schedule counts |
| ``learned`` | the greedy decisions of a checkpoint |
| ``learned@16`` | the best of its greedy schedule and 15 sampled ones |
| ``cp-sat@10`` | CP-SAT, 10 seconds per instance |

Portfolios, samples and CP-SAT finish whole schedules before they choose.  Where all is known
(plan) that is planning like any other.  In dispatch it needs the future, releases and true
durations included; there they are marked as hindsight: a bound, not a way to run a cluster.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import torch

from hetsched.agents.evaluation import MAX_EDGES, Answers, Contender, Setting, padded_edges
from hetsched.agents.policy import act, masked_scores, rollout
from hetsched.agents.rules import make_rule
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State

if TYPE_CHECKING:
    from hetsched.agents.policy import Policy
    from hetsched.envs.instance import Instance
    from hetsched.envs.schedule import Schedule
    from hetsched.envs.simulator import Deciding

_FACTORS = (0.5, 1.0, 2.0, 3.0, 5.0)  # those of the benchmark sets' reference_atc_best_of_5

PORTFOLIOS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "atc-grid": tuple(f"atc:k={k:g}" for k in _FACTORS),
        "atcs-r-grid": tuple(
            f"atcs-r:k1={k1:g},k2={k2:g},k3={k3:g}"
            for k1 in (0.5, 2.0, 5.0)
            for k2 in (0.2, 1.0)
            for k3 in (0.2, 1.0)
        ),
    }
)


@dataclass(frozen=True)
class OnePolicy:
    """Greedy decisions of a rule or a network; only scoring and selecting are timed.

    Attributes:
        policy: what decides.
        kind: ``"rule"`` or ``"policy"``.
    """

    policy: Policy
    kind: str = "policy"

    @property
    def name(self) -> str:
        return self.policy.name

    def hindsight(self, deciding: Deciding) -> bool:
        return False

    def solve(self, instances: Sequence[Instance], setting: Setting) -> Answers:
        state = _initial(instances, setting)
        masked_scores(self.policy, state)  # the first call pays for lazy initialisation
        state = _initial(instances, setting)
        seconds = torch.zeros(len(instances), dtype=torch.float64, device=setting.device)
        while not bool(state.done.all()):
            began = _clock(setting.device)
            actions = act(self.policy, state)
            elapsed = _clock(setting.device) - began
            seconds += elapsed * ~state.done / (~state.done).sum()
            state.step(actions)
        return Answers(
            schedules=tuple(state.schedules()),
            costs=state.cost().cpu().numpy(),
            seconds=seconds.cpu().numpy(),
            decisions=state.steps.cpu().numpy(),
        )


@dataclass(frozen=True)
class BestOfRules:
    """Every rule runs, the best schedule of each instance counts, and so does the time of all."""

    name: str
    policies: tuple[Policy, ...]
    kind: str = field(default="portfolio", init=False)

    def hindsight(self, deciding: Deciding) -> bool:
        return deciding == "dispatch"

    def solve(self, instances: Sequence[Instance], setting: Setting) -> Answers:
        best = _Best(len(instances))
        for policy in self.policies:
            began = _clock(setting.device)
            state = rollout(policy, _initial(instances, setting))
            best.offer(state, group=1, elapsed=_clock(setting.device) - began)
        return best.answers()


@dataclass(frozen=True)
class BestOfSamples:
    """The greedy schedule and K - 1 sampled ones; the best counts, and so does the time of all.

    Attributes:
        policy: what decides.
        samples: K, schedules per instance.
    """

    policy: Policy
    samples: int
    kind: str = field(default="policy", init=False)

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"samples must be at least 1, got {self.samples}")

    @property
    def name(self) -> str:
        return f"{self.policy.name}@{self.samples}"

    def hindsight(self, deciding: Deciding) -> bool:
        return deciding == "dispatch" and self.samples > 1

    def solve(self, instances: Sequence[Instance], setting: Setting) -> Answers:
        # Seeded by batch, so that a contender answers alike however often it is asked.
        generator = torch.Generator(setting.device).manual_seed(setting.seed)
        problem = Problem.from_instances(instances, device=setting.device)
        rows = max(len(instances), MAX_EDGES // padded_edges(instances))
        group = min(self.samples, rows // len(instances))  # samples of each instance at once
        best = _Best(len(instances))
        for first in range(0, self.samples, group):
            size = min(group, self.samples - first)
            state = State.initial(problem.repeat(size), setting.objective, setting.deciding)
            number = torch.arange(first, first + size, device=setting.device)  # (size,)
            sampled = (number > 0).repeat(len(instances))  # row i * size + r: sample r of i
            began = _clock(setting.device)
            rollout(self.policy, state, sampled=sampled, generator=generator)
            best.offer(state, group=size, elapsed=_clock(setting.device) - began)
        return best.answers()


@dataclass(frozen=True)
class CpSat:
    """CP-SAT with so many seconds per instance; see ``hetsched.agents.exact``."""

    seconds: float
    kind: str = field(default="solver", init=False)

    def __post_init__(self) -> None:
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"the time limit of CP-SAT must be above 0, got {self.seconds:g} s")

    @property
    def name(self) -> str:
        return f"cp-sat@{self.seconds:g}"

    def hindsight(self, deciding: Deciding) -> bool:
        return deciding == "dispatch"

    def solve(self, instances: Sequence[Instance], setting: Setting) -> Answers:
        from hetsched.agents.exact import solve_exact  # loads OR-tools

        results = [
            solve_exact(one, setting.objective, self.seconds, workers=setting.threads)
            for one in instances
        ]
        return Answers(
            schedules=tuple(result.schedule for result in results),
            costs=np.array([result.cost for result in results]),
            seconds=np.array([result.seconds for result in results]),
            decisions=np.array([one.num_jobs for one in instances]),
        )


def make_contender(name: str, policies: Mapping[str, Policy] | None = None) -> Contender:
    """The contender of that name.

    Args:
        name: see the table at the top of this module.
        policies: learned policies by name.

    Raises:
        ValueError: an unknown name, or parameters that make no sense.
    """
    policies = policies or {}
    if name in policies:
        return OnePolicy(policies[name])
    if name in PORTFOLIOS:
        return BestOfRules(name, tuple(make_rule(rule) for rule in PORTFOLIOS[name]))
    base, at, number = name.rpartition("@")
    if not at:
        return OnePolicy(make_rule(name), kind="rule")
    if base == "cp-sat":
        return CpSat(_number(name, number))
    if base not in policies:
        known = ", ".join(("cp-sat", *policies))
        raise ValueError(f"{name!r} asks for {base!r}; before the @ goes one of {known}")
    samples = _number(name, number)
    if not samples.is_integer():
        raise ValueError(f"{name!r} asks for {number} samples; give a whole number")
    return BestOfSamples(policies[base], int(samples))


def split_names(text: str) -> tuple[str, ...]:
    """Names between commas; commas between the parameters of one rule do not separate.

    ``"ect,atcs-r:k1=2,k2=1,atc"`` holds three names.
    """
    names: list[str] = []
    for piece in (part.strip() for part in text.split(",")):
        head, equals, _ = piece.partition("=")
        if names and equals and ":" not in head and ":" in names[-1]:
            names[-1] += f",{piece}"
        elif piece:
            names.append(piece)
    return tuple(dict.fromkeys(names))


def policy_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """``learned`` for one checkpoint; for several, as much of each path's end as tells them apart.

    The same path given twice has one name.
    """
    plain = [path.resolve().with_suffix("") for path in paths]
    if len(set(plain)) <= 1:
        return ("learned",) * len(plain)
    depth = 1
    while len({one.parts[-depth:] for one in plain}) < len(set(plain)):
        depth += 1
    return tuple("/".join(one.parts[-depth:]) for one in plain)


class _Best:
    """The best schedule of each instance so far, and the time spent on all."""

    def __init__(self, count: int) -> None:
        self.schedules: list[Schedule | None] = [None] * count
        self.costs = np.full(count, np.inf)
        self.decisions = np.zeros(count, np.int64)
        self.seconds = np.zeros(count)

    def offer(self, state: State, group: int, elapsed: float) -> None:
        """Take what is better in a finished state whose rows come in groups per instance."""
        count = len(self.costs)
        costs = state.cost().cpu().numpy().reshape(count, group)
        steps = state.steps.cpu().numpy()
        schedules = state.schedules()
        self.seconds += elapsed * steps.reshape(count, group).sum(1) / max(1, steps.sum())
        for i, r in enumerate(costs.argmin(1).tolist()):
            if costs[i, r] < self.costs[i]:
                row = i * group + r
                self.costs[i], self.schedules[i] = costs[i, r], schedules[row]
                self.decisions[i] = steps[row]

    def answers(self) -> Answers:
        return Answers(tuple(self.schedules), self.costs, self.seconds, self.decisions)


def _initial(instances: Sequence[Instance], setting: Setting) -> State:
    problem = Problem.from_instances(instances, device=setting.device)
    return State.initial(problem, setting.objective, setting.deciding)


def _clock(device: str) -> float:
    """Seconds, after everything that was asked of the device is done."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name!r} needs a number behind the @, got {text!r}") from None
