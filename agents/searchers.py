"""Contenders that search: from the schedules of rules and of a policy, with so many seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from hetsched.agents.annealing import can_anneal
from hetsched.agents.annealing_graph import can_anneal_graph
from hetsched.agents.evaluation import MAX_EDGES, Answers
from hetsched.agents.learned import LearnedPolicy, problem_for
from hetsched.agents.policy import rollout
from hetsched.agents.sampling import Best, temperature_of
from hetsched.agents.search import Budget, first_schedule, improve, with_true_durations
from hetsched.agents.search_rules import can_compile, compiled_rule
from hetsched.envs.simulator import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetsched.agents.evaluation import Setting
    from hetsched.agents.policy import Policy
    from hetsched.envs.instance import Instance
    from hetsched.envs.schedule import Schedule
    from hetsched.envs.simulator import Deciding

RULES_SHARE, STARTS_SHARE = 0.25, 0.5  # of the time: when no further start is waited for
TOGETHER = 0.05  # of the jobs left, decided at one look: a start need be quick more than best
SAMPLES_AT_ONCE = 16  # of each instance, where annealing cannot go on from the start


@dataclass(frozen=True)
class Searched:
    """The best of several starts, improved until the time is up; see ``hetsched.agents.search``.

    A policy decides for all instances at once, and they share that time equally; the rest of each
    instance's time is its own.  Rules are compiled where they can be.  A start that would take
    too long is given up, so that the budget is kept.

    Attributes:
        name: how tables call it.
        policy: its greedy schedule is a start; None: rules and earliest completions only.  A
            learned one decides ``TOGETHER``, unless it does already, where annealing follows.
        seconds: wall time per instance, everything counted but the first compilation.
        rules: further starts; those that are compiled always run, however short the time.
        more: further starts while there is time, where they are compiled.

    Raises:
        ValueError: a time that is not positive.
    """

    name: str
    policy: Policy | None
    seconds: float
    rules: tuple[Policy, ...] = ()
    more: tuple[Policy, ...] = ()
    kind: str = field(default="search", init=False)

    def __post_init__(self) -> None:
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"the time to search must be above 0, got {self.seconds:g} s")

    def hindsight(self, deciding: Deciding) -> bool:
        return deciding == "dispatch"

    def solve(self, instances: Sequence[Instance], setting: Setting) -> Answers:
        if not all(can_anneal_graph(with_true_durations(one)) for one in instances):
            _load_solver()
        for one in {_kind(one): one for one in instances}.values():
            # Compiles, or loads what was compiled before.
            start = self._first(one, None, setting, Budget(seconds=1.0))
            improve(one, setting.objective, start, Budget(seconds=1e-3))
        decided, shared = self._decided(instances, setting)
        schedules, seconds = [], []
        for index, (instance, known) in enumerate(zip(instances, decided, strict=True)):
            began = time.perf_counter()
            budget = Budget(seconds=max(0.0, self.seconds - shared))
            first = self._first(instance, known, setting, budget)
            seed, threads = setting.seed + index, setting.threads
            schedules.append(
                improve(instance, setting.objective, first, budget, seed=seed, threads=threads)
            )
            seconds.append(shared + time.perf_counter() - began)
        pairs = zip(instances, schedules, strict=True)
        return Answers(
            schedules=tuple(schedules),
            costs=np.array([found.cost(one, setting.objective) for one, found in pairs]),
            seconds=np.array(seconds),
            decisions=np.array([one.num_jobs for one in instances]),
        )

    def _decided(
        self, instances: Sequence[Instance], setting: Setting
    ) -> tuple[list[Schedule | None], float]:
        """What policies that are not compiled decide, the best for each instance; seconds each."""
        began = time.perf_counter()
        best = Best(len(instances))
        compiled = setting.deciding == "plan" and all(can_anneal(one) for one in instances)
        rules = tuple(one for one in self.rules if not (compiled and can_compile(one)))
        local = all(can_anneal_graph(with_true_durations(one)) for one in instances)
        shares = [(one, RULES_SHARE) for one in rules]
        policy = self.policy
        if local and isinstance(policy, LearnedPolicy) and policy.together == 0.0:
            policy = policy.quicker(policy.name, policy.keep, TOGETHER)
        if policy is not None:
            shares.append((policy, STARTS_SHARE if local else 1.0))
        if not shares:
            return best.schedules, 0.0
        for who, share in shares:
            problem = problem_for(who, instances, setting.device)
            state = State.initial(problem, setting.objective, setting.deciding)
            rollout(who, state, deadline=began + share * self.seconds * len(instances))
            if bool(state.done.all()):
                best.offer(state, group=1, elapsed=0.0)
        if policy is not None and not local:
            until = began + STARTS_SHARE * self.seconds * best.count
            _sample(policy, best, instances, setting, until)
        return best.schedules, (time.perf_counter() - began) / len(instances)

    def _first(
        self, instance: Instance, decided: Schedule | None, setting: Setting, budget: Budget
    ) -> Schedule:
        """The best start: what was decided, earliest completions, or a compiled rule's."""
        starts = [first_schedule(instance, setting.objective)]
        if decided is not None:
            starts.append(decided)
        if setting.deciding == "plan" and can_anneal(instance):
            for place, rule in enumerate((*self.rules, *self.more)):
                if place >= len(self.rules) and budget.share > RULES_SHARE:
                    break
                found = compiled_rule(rule, instance)
                if found is not None:
                    starts.append(found)
        return min(starts, key=lambda one: one.cost(instance, setting.objective))


@dataclass(frozen=True)
class CpSat:
    """CP-SAT with so many seconds per instance; see ``hetsched.agents.exact``.

    Attributes:
        seconds: per instance; the time of a policy counts.
        policy: its greedy schedule is the solver's hint; None: no hint.

    Raises:
        ValueError: a time that is not positive.
    """

    seconds: float
    policy: Policy | None = None
    kind: str = field(default="solver", init=False)

    def __post_init__(self) -> None:
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"the time limit of CP-SAT must be above 0, got {self.seconds:g} s")

    @property
    def name(self) -> str:
        hinted = "" if self.policy is None else f"{self.policy.name}+"
        return f"{hinted}cp-sat@{self.seconds:g}"

    def hindsight(self, deciding: Deciding) -> bool:
        return deciding == "dispatch"

    def solve(self, instances: Sequence[Instance], setting: Setting) -> Answers:
        _load_solver()
        from hetsched.agents.exact import solve_exact

        hints: list[Schedule | None] = [None] * len(instances)
        shared = 0.0
        if self.policy is not None:
            began = time.perf_counter()
            problem = problem_for(self.policy, instances, setting.device)
            state = State.initial(problem, setting.objective, setting.deciding)
            hints = list(rollout(self.policy, state).schedules())
            shared = (time.perf_counter() - began) / len(instances)
        results = [
            solve_exact(
                one,
                setting.objective,
                max(1e-3, self.seconds - shared),
                workers=setting.threads,
                hint=hint,
            )
            for one, hint in zip(instances, hints, strict=True)
        ]
        return Answers(
            schedules=tuple(result.schedule for result in results),
            costs=np.array([result.cost for result in results]),
            seconds=np.array([shared + result.seconds for result in results]),
            decisions=np.array([one.num_jobs for one in instances]),
        )


def _load_solver() -> None:
    """Load OR-tools and PyJobShop, which is not the time of the first instance."""
    from hetsched.agents import exact_loads, exact_model, exact_pyjobshop  # noqa: F401


def _sample(
    policy: Policy, best: Best, instances: Sequence[Instance], setting: Setting, deadline: float
) -> None:
    """Offer samples of a policy until the deadline."""
    problem = problem_for(policy, instances, setting.device)
    generator = torch.Generator(setting.device).manual_seed(setting.seed)
    size = max(1, min(SAMPLES_AT_ONCE, MAX_EDGES // (problem.num_actions * best.count)))
    many = problem.repeat(size)
    while time.perf_counter() < deadline:
        state = State.initial(many, setting.objective, setting.deciding)
        rollout(
            policy,
            state,
            sampled=True,
            generator=generator,
            temperature=temperature_of(policy),
            deadline=deadline,
        )
        if bool(state.done.all()):
            best.offer(state, group=size, elapsed=0.0)


def _kind(instance: Instance) -> tuple[bool, bool]:
    """What decides which loops are compiled."""
    return instance.setup_times is not None, instance.precedence.shape[1] > 0
