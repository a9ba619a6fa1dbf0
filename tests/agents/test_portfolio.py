"""Portfolios of rules."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hetsched.agents.portfolio import PORTFOLIOS, best_of, portfolio_rules
from hetsched.agents.rules import make_rule
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.tests.agents.picks import costs

TARDY = Objective(makespan=1.0, weighted_tardiness=1.0)


def instances() -> list[Instance]:
    rng = np.random.default_rng(0)
    return [
        Instance.from_matrix(rng.integers(1, 30, (9, 3)), due_times=rng.integers(0, 30, 9))
        for _ in range(10)
    ]


def test_every_portfolio_names_rules_that_exist():
    for rules in PORTFOLIOS.values():
        assert [make_rule(name).name for name in rules] == list(rules)


def test_the_best_rule_of_each_instance_is_kept():
    known = instances()
    found = best_of("atc-grid", Problem.from_instances(known), TARDY)
    each = torch.stack([costs(rule, known, "plan", TARDY) for rule in found.rules])
    assert torch.equal(found.costs, each)
    assert torch.equal(found.cost, each.amin(0))
    assert len(set(found.winners.tolist())) > 1  # no rule is best everywhere
    for instance, schedule, cost in zip(known, found.schedules, found.cost, strict=True):
        schedule.check(instance)
        assert schedule.cost(instance, TARDY) == pytest.approx(cost.item())


def test_rules_may_be_listed():
    problem = Problem.from_instances(instances())
    assert best_of(["spt", "lpt"], problem, TARDY).rules == ("spt", "lpt")


def test_an_unknown_portfolio_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"called 'atc-gird'; did you mean 'atc-grid'\? known: "):
        portfolio_rules("atc-gird")


def test_an_empty_portfolio_is_refused():
    with pytest.raises(ValueError, match="at least one rule"):
        best_of([], Problem.from_instances(instances()), TARDY)


def test_unknown_durations_are_refused():
    instance = Instance.from_matrix([[2.0], [3.0]], actual_times=[[2.0], [4.0]])
    with pytest.raises(ValueError, match="known durations"):
        best_of("atc-grid", Problem.from_instances([instance]), TARDY)
