"""Contenders by name: rules, portfolios, learned policies, samples, searches and CP-SAT.

| name | contender |
| --- | --- |
| ``atc``, ``atc:k=0.5``, ... | a dispatching rule (``hetsched.agents.rules``) |
| ``atc-grid``, ``atcs-r-grid``, ... | a portfolio: several rules run, the best schedule counts |
| ``learned`` | the greedy decisions of a checkpoint |
| ``learned:keep=8`` | the same, of the 8 fastest modes of every job; also before ``@`` and ``+`` |
| ``learned:together=0.05`` | one look decides about 5 % of the jobs that are left; as ``keep`` |
| ``learned@16``, ``atc@16`` | the best of a policy's greedy schedule and 15 sampled ones |
| ``learned+beam@16`` | the same without replacement: 16 different schedules; plans only |
| ``learned+search@1`` | local search from its schedule and the rules', 1 second in all |
| ``annealing@1`` | the same search from a schedule of earliest completions |
| ``cp-sat@10``, ``learned+cp-sat@10`` | CP-SAT, 10 seconds, alone or from a policy's schedule |

Seconds are per instance and may end with an s.  Portfolios, samples, searches and CP-SAT finish
whole schedules before they choose.  Where all is known (plan) that is planning like any other.
In dispatch it needs the future, releases and true durations included; there they are marked as
hindsight: a bound, not a way to run a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from hetsched.agents.beam import Beam
from hetsched.agents.evaluation import Answers, Contender, Setting
from hetsched.agents.learned import LearnedPolicy, problem_for
from hetsched.agents.policy import decisions, greedy, masked_scores, rollout
from hetsched.agents.rules import RULES, make_rule
from hetsched.agents.sampling import Best, BestOfSamples, clock
from hetsched.agents.searchers import CpSat, Searched
from hetsched.envs.simulator import State

if TYPE_CHECKING:
    from hetsched.agents.policy import Policy
    from hetsched.envs.instance import Instance
    from hetsched.envs.simulator import Deciding

_FACTORS = (0.5, 1.0, 2.0, 3.0, 5.0)  # those of the benchmark sets' reference_atc_best_of_5

PORTFOLIOS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "atc-grid": tuple(f"atc:k={k:g}" for k in _FACTORS),
        "atc-tails-grid": tuple(f"atc-tails:k={k:g}" for k in _FACTORS),
        "atcs-r-grid": tuple(
            f"atcs-r:k1={k1:g},k2={k2:g},k3={k3:g}"
            for k1 in (0.5, 2.0, 5.0)
            for k2 in (0.2, 1.0, 5.0)
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
        state = _initial(self.policy, instances, setting)
        masked_scores(self.policy, state)  # the first call pays for lazy initialisation
        state = _initial(self.policy, instances, setting)
        seconds = torch.zeros(len(instances), dtype=torch.float64, device=setting.device)
        while not bool(state.done.all()):
            began = clock(setting.device)
            for actions, still in decisions(self.policy, state, greedy):
                elapsed = clock(setting.device) - began
                seconds += elapsed * ~still / (~still).sum()
                state.step(actions, still)
                began = clock(setting.device)
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
        best = Best(len(instances))
        for policy in self.policies:
            began = clock(setting.device)
            state = rollout(policy, _initial(policy, instances, setting))
            best.offer(state, group=1, elapsed=clock(setting.device) - began)
        return best.answers()


def make_contender(
    name: str, policies: Mapping[str, Policy] | None = None, rules: Sequence[str] = ()
) -> Contender:
    """The contender of that name.

    Args:
        name: see the table at the top of this module.
        policies: learned policies by name.
        rules: names of rules whose schedules are among the starts of a search, besides those of
            the portfolios.

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
        policy = one_policy(name, policies)
        return OnePolicy(policy, "policy" if isinstance(policy, LearnedPolicy) else "rule")
    if base == "annealing":
        return Searched(name, None, _number(name, number.removesuffix("s")))
    if base == "cp-sat":
        return CpSat(_number(name, number.removesuffix("s")))
    root, plus, how = base.rpartition("+")
    if plus and how in ("search", "cp-sat"):
        policy, seconds = _policy(name, root, policies), _number(name, number.removesuffix("s"))
        return CpSat(seconds, policy) if how == "cp-sat" else _search(name, policy, seconds, rules)
    samples = _number(name, number)
    if not samples.is_integer():
        raise ValueError(f"{name!r} asks for {number} samples; give a whole number")
    if plus and how == "beam":
        return Beam(_policy(name, root, policies), int(samples))
    return BestOfSamples(_policy(name, base, policies), int(samples))


def searches(
    policies: Mapping[str, Policy], seconds: float, rules: Sequence[str]
) -> list[Contender]:
    """A search from each policy's schedule, or from the rules' alone where there is no policy.

    Raises:
        ValueError: a time that is not positive, or an unknown rule.
    """
    if not policies:
        return [_search("search", None, seconds, rules)]
    return [_search(f"{name}+search", one, seconds, rules) for name, one in policies.items()]


def _search(name: str, policy: Policy | None, seconds: float, rules: Sequence[str]) -> Searched:
    more = dict.fromkeys(one for each in PORTFOLIOS.values() for one in each if one not in rules)
    starts = (tuple(make_rule(one) for one in names) for names in (dict.fromkeys(rules), more))
    return Searched(name, policy, seconds, *starts)


def is_taken(name: str) -> bool:
    """Whether a policy of that name would hide a rule, a portfolio, a search or CP-SAT."""
    return name.partition(":")[0] in (*RULES, *PORTFOLIOS, "annealing", "cp-sat", "search")


def one_policy(name: str, policies: Mapping[str, Policy] | None = None) -> Policy:
    """The learned policy, or the rule, of that name.

    Raises:
        ValueError: as :func:`make_contender`.
    """
    learned = _learned(name, policies or {})
    return make_rule(name) if learned is None else learned


def _policy(name: str, base: str, policies: Mapping[str, Policy]) -> Policy:
    """What goes before the @ of a name."""
    heads = {base, base.partition(":")[0], base.rpartition(":")[0]}
    if not heads & {*policies, *RULES}:
        known = ", ".join(("annealing", "cp-sat", *policies))
        raise ValueError(f"{name!r} asks for {base!r}; before the @ goes one of {known}, or a rule")
    return one_policy(base, policies)


def _learned(name: str, policies: Mapping[str, Policy]) -> Policy | None:
    """The learned policy of a name, with what is said behind a colon; None: it is no such name."""
    if name in policies:
        return policies[name]
    base, colon, said = name.rpartition(":")
    policy = policies.get(base)
    if not colon or not isinstance(policy, LearnedPolicy):
        return None
    keep, together = None, 0.0
    for one in said.split(","):
        key, _, value = one.partition("=")
        if key == "keep" and value.isdecimal():
            keep = int(value)
        elif key == "together" and value.replace(".", "", 1).isdecimal():
            together = float(value)
        else:
            raise ValueError(
                f"{name!r}: behind {base!r} may only stand :keep= and a whole number, "
                "together= and a share of the jobs, and a comma between the two"
            )
    return policy.quicker(name, keep, together)


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


def _initial(policy: Policy, instances: Sequence[Instance], setting: Setting) -> State:
    problem = problem_for(policy, instances, setting.device)
    return State.initial(problem, setting.objective, setting.deciding)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name!r} needs a number behind the @, got {text!r}") from None
