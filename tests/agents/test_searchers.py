"""Contenders that search: what they start from, and how long they take."""

from __future__ import annotations

import numpy as np
import pytest

from hetsched.agents.contenders import OnePolicy, make_contender, searches
from hetsched.agents.evaluation import Setting, measure
from hetsched.agents.rules import make_rule
from hetsched.agents.searchers import Searched
from hetsched.envs.objective import Objective
from hetsched.envs.scenarios import get_scenario, sample_instances
from hetsched.tests.envs.instances import random_instance

RULES = ("atc", "min-min", "allox", "lpt")
PLAN = Setting(Objective(makespan=1.0, weighted_tardiness=1.0), "plan", seed=1)


def test_a_search_is_never_worse_than_any_of_its_rules() -> None:
    rng = np.random.default_rng(0)
    instances = [random_instance(rng, jobs=20, machines=4, releases=True) for _ in range(4)]
    found = measure(searches({}, 1.0, RULES)[0], instances, PLAN)
    for name in RULES:
        rule = measure(OnePolicy(make_rule(name), "rule"), instances, PLAN)
        assert (found.costs <= rule.costs + 1e-9).all()


@pytest.mark.parametrize("features", [{"releases": True}, {"setups": True}])
def test_the_shortest_search_is_never_worse_than_a_compiled_rule(features: dict[str, bool]) -> None:
    rng = np.random.default_rng(4)
    instances = [random_instance(rng, jobs=15, machines=3, **features) for _ in range(4)]
    rules = ("atc", "min-min", "atcs-r", "lpt")
    found = measure(Searched("it", None, 1e-6, tuple(map(make_rule, rules))), instances, PLAN)
    for name in rules:
        rule = measure(OnePolicy(make_rule(name), "rule"), instances, PLAN)
        assert (found.costs <= rule.costs + 1e-9).all()


def test_a_search_is_never_worse_than_its_policy_where_machines_are_shared() -> None:
    rng = np.random.default_rng(1)
    instances = [random_instance(rng, jobs=8, machines=2, shared=True) for _ in range(2)]
    policy = make_rule("atc")
    found = measure(Searched("it", policy, 0.5), instances, PLAN)
    assert (found.costs <= measure(OnePolicy(policy), instances, PLAN).costs + 1e-9).all()
    assert found.kind == "search"


def test_a_start_that_takes_too_long_is_given_up() -> None:
    scenario = get_scenario("hitzges")
    instances = sample_instances(scenario, 1, 0, 60, 5)
    setting = Setting(scenario.objective, scenario.deciding)
    found = measure(Searched("it", make_rule("allox"), 1e-4), instances, setting)
    assert np.isfinite(found.costs).all()


def test_in_dispatch_a_search_is_hindsight_with_true_durations() -> None:
    scenario = get_scenario("gpu-cluster-noisy")
    instances = sample_instances(scenario, 2, 0, 8, 3)
    setting = Setting(scenario.objective, scenario.deciding)
    found = measure(make_contender("ect-wait+search@3"), instances, setting)
    assert found.hindsight
    assert (found.costs <= measure(make_contender("ect-wait"), instances, setting).costs).all()


def test_a_hint_is_never_lost_by_the_solver() -> None:
    rng = np.random.default_rng(2)
    instances = [random_instance(rng, jobs=12, machines=3) for _ in range(2)]
    hinted = measure(make_contender("atc+cp-sat@0.1"), instances, PLAN)
    assert (hinted.costs <= measure(make_contender("atc"), instances, PLAN).costs + 1e-9).all()


def test_samples_of_a_rule_are_never_worse_than_the_rule() -> None:
    rng = np.random.default_rng(3)
    instances = [random_instance(rng, jobs=12, machines=3) for _ in range(3)]
    sampled = measure(make_contender("atc@8"), instances, PLAN)
    rule = measure(make_contender("atc"), instances, PLAN)
    assert (sampled.costs <= rule.costs).all()
    assert (sampled.costs < rule.costs).any()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_that_makes_no_sense_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Searched("it", None, seconds)
