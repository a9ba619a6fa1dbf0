"""Portfolios: several rules on the same instances, the best schedule of each instance kept.

A portfolio needs the finished schedule of every rule before it can choose, so it plans; it cannot
dispatch to a live system, where only one rule's decisions take place.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from hetsched.agents.policy import rollout
from hetsched.agents.rules import make_rule
from hetsched.envs.simulator import State

if TYPE_CHECKING:
    from torch import Tensor

    from hetsched.envs.objective import Objective
    from hetsched.envs.problem import Problem
    from hetsched.envs.schedule import Schedule

# The factors of "atc-grid" are those of the benchmark sets' reference_atc_best_of_5.
PORTFOLIOS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "atc-grid": tuple(f"atc:k={k}" for k in ("0.5", "1", "2", "3", "5")),
        "atcs-r-grid": tuple(
            f"atcs-r:k1={k1},k2={k2},k3={k3}"
            for k1, k2, k3 in product(("0.5", "2", "5"), ("0.5", "2"), ("0.1", "0.3"))
        ),
    }
)


@dataclass(frozen=True, eq=False)
class BestOf:
    """The rules' costs on a batch, and the best schedule of each instance.

    Attributes:
        rules: (R,) names, in the order of the rows of ``costs``.
        costs: (R, B) float64.
        winners: (B,) int64, position of the best rule, the first of equals.
        schedules: (B,) its schedules.
    """

    rules: tuple[str, ...]
    costs: Tensor
    winners: Tensor
    schedules: tuple[Schedule, ...]

    @property
    def cost(self) -> Tensor:
        """(B,) float64: the best cost of each instance."""
        return self.costs.amin(0)


def portfolio_rules(name: str) -> tuple[str, ...]:
    """The rules of a portfolio, by its name.

    Raises:
        ValueError: no portfolio has that name.
    """
    if name not in PORTFOLIOS:
        near = difflib.get_close_matches(name, PORTFOLIOS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"no portfolio is called {name!r}; {hint}known: {', '.join(PORTFOLIOS)}")
    return PORTFOLIOS[name]


def best_of(rules: str | Sequence[str], problem: Problem, objective: Objective) -> BestOf:
    """Plan every instance with every rule and keep the best.

    Args:
        rules: the name of a portfolio, or names of rules.
        problem: B instances whose durations are known.

    Raises:
        ValueError: an unknown name, no rule, or durations that are not known.
    """
    names = portfolio_rules(rules) if isinstance(rules, str) else tuple(rules)
    if not names:
        raise ValueError("a portfolio needs at least one rule; give a non-empty list of names")
    policies = [make_rule(name) for name in names]
    states = [rollout(one, State.initial(problem, objective, "plan")) for one in policies]
    costs = torch.stack([state.cost() for state in states])  # (R, B)
    winners = costs.argmin(0)  # (B,)
    schedules = [state.schedules() for state in states]
    best = tuple(schedules[rule][row] for row, rule in enumerate(winners.tolist()))
    return BestOf(names, costs, winners, best)
