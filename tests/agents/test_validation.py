"""Validation: on fixed instances, against the best rule."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
import torch

from hetsched.agents.configs import ImitationConfig
from hetsched.agents.learned import LearnedPolicy
from hetsched.agents.policy import rollout
from hetsched.agents.recipe import TrainConfig
from hetsched.agents.rules import make_rule
from hetsched.agents.validation import Validation
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.scenarios import get_scenario, sample_instances
from hetsched.envs.simulator import State
from hetsched.gnn.config import NetworkConfig
from hetsched.gnn.network import SchedulingNetwork

SIZES = ((4, 2), (5, 3), (4, 2))  # the same size twice counts once
HITZGES = get_scenario("hitzges")


def config(**values) -> TrainConfig:
    return TrainConfig("hitzges", warm_start=ImitationConfig(decisions=1), eval_count=6, **values)


def costs(policy, seed: int = 1_000_003) -> np.ndarray:
    """(12,): of six instances of each size."""
    parts = []
    for index, size in enumerate(((4, 2), (5, 3))):
        problem = Problem.from_instances(sample_instances(HITZGES, 6, seed + index, *size))
        state = rollout(policy, State.initial(problem, HITZGES.objective, HITZGES.deciding))
        parts.append(state.cost().numpy())
    return np.concatenate(parts)


@pytest.fixture(scope="module")
def validation() -> Validation:
    return Validation(HITZGES, SIZES, config())


@pytest.fixture
def network() -> SchedulingNetwork:
    torch.manual_seed(0)
    network = SchedulingNetwork(NetworkConfig(hidden=8, layers=1, heads=2))
    torch.nn.init.normal_(network.mode_score.weight)
    return network


def test_it_compares_with_the_best_rule_of_the_scenario(validation: Validation) -> None:
    every = {name: costs(make_rule(name)) for name in HITZGES.rules}
    least = np.min(list(every.values()), axis=0)
    assert validation.rule == min(every, key=lambda name: (every[name] / least).mean())
    assert validation.rule_costs.tolist() == every[validation.rule].tolist()


def test_it_measures_the_greedy_policy(validation: Validation, network: SchedulingNetwork) -> None:
    mine, rule = costs(LearnedPolicy(network)), costs(make_rule(validation.rule))
    ratio = mine / rule
    found = validation.measure(network)
    assert found == {
        "validation/cost": pytest.approx(mine.mean()),
        "validation/rule_cost": pytest.approx(rule.mean()),
        "validation/ratio_to_rule": pytest.approx(ratio.mean()),
        "validation/standard_error": pytest.approx(ratio.std(ddof=1) / 12**0.5),
    }
    assert validation.latest is found


def test_the_network_is_left_as_it_was(validation: Validation, network: SchedulingNetwork) -> None:
    for training in (True, False):
        before = torch.get_rng_state()
        validation.measure(network.train(training))
        assert network.training is training
        assert torch.equal(before, torch.get_rng_state())


def test_other_seeds_give_other_instances(validation: Validation) -> None:
    other = Validation(HITZGES, SIZES, config(eval_seed=7))
    assert other.rule_costs.tolist() != validation.rule_costs.tolist()
    assert other.rule_costs.tolist() == costs(make_rule(other.rule), seed=7).tolist()


def test_one_instance_has_no_standard_error(network: SchedulingNetwork) -> None:
    one = TrainConfig("hitzges", eval_count=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Validation(HITZGES, ((4, 2),), one).measure(network)
    assert "validation/standard_error" not in found


def test_instances_that_cost_the_rule_nothing_have_no_ratio(network: SchedulingNetwork) -> None:
    easy = get_scenario("dag:tau=0.2,R=0.6")
    found = Validation(easy, ((8, 3),), config())
    found.rule_costs[0] = 0.0
    ratio = found.measure(network)["validation/ratio_to_rule"]
    rest = found._costs(LearnedPolicy(network))[1:] / found.rule_costs[1:]
    assert ratio == pytest.approx(float(rest.mean()))


def test_a_scenario_in_which_nothing_costs_anything_cannot_be_validated() -> None:
    free = dataclasses.replace(HITZGES, objective=Objective(setup_time=1.0))
    with pytest.raises(ValueError, match=r"costs '.*' nothing, so there is nothing to learn"):
        Validation(free, ((4, 2),), config())
