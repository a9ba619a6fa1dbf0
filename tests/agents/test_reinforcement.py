"""PPO's stage of training: the unit of its rewards and the room for its observations."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from hetsched.agents.policy import act, rollout
from hetsched.agents.reinforcement import Reinforcement, widest
from hetsched.agents.rules import make_rule
from hetsched.agents.unit_cost import rule_cost
from hetsched.envs.scenarios import get_scenario
from hetsched.envs.simulator import State
from hetsched.gnn.network import SchedulingNetwork
from hetsched.tests.agents.tiny_runs import tiny


@pytest.mark.parametrize(("name", "rule"), [("hitzges", "min-min"), ("gpu-cluster", "ect-wait")])
def test_rewards_are_in_units_of_the_cost_of_a_quick_rule(name: str, rule: str) -> None:
    """Those of an episode add up to (first bound - cost) / cost of the rule."""
    scenario = get_scenario(name)
    config = tiny(
        scenario=name, warm_start=dataclasses.replace(tiny().warm_start, teacher="ect-wait")
    )
    environment = Reinforcement(
        SchedulingNetwork(config.network), scenario, config.sizes, config
    ).environment
    environment.reset()
    mine = environment.state
    quick = State.initial(mine.problem, scenario.objective, scenario.deciding)
    cost = rollout(make_rule(rule), quick.clone()).cost()
    assert torch.equal(rule_cost(scenario)(quick), cost)
    assert torch.allclose(environment.scale, cost)
    bound, total = mine.bound.clone(), torch.zeros_like(cost)
    while not bool(mine.done.all()):  # the environment itself goes on to other instances then
        total += environment.step(act(make_rule("fifo"), mine)).rewards
    assert torch.allclose(total, (bound - mine.cost()) / cost)


def test_the_padding_holds_every_size() -> None:
    extent = widest(get_scenario("hitzges"), ((4, 2), (3, 5), (4, 2)))
    assert (extent.jobs, extent.machines, extent.slots) == (4, 5, 5)
    assert extent.dense


def test_the_stage_learns_on_a_copy_of_the_network() -> None:
    network = SchedulingNetwork(tiny().network)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    config = tiny(timesteps=24)
    stage = Reinforcement(network, get_scenario("hitzges"), config.sizes, config)
    stage.learn(lambda metrics: None)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert any(
        not torch.equal(value, before[name]) for name, value in stage.network.state_dict().items()
    )


def test_nothing_is_left_to_do_after_the_last_decision() -> None:
    config = tiny(timesteps=24)
    stage = Reinforcement(
        SchedulingNetwork(config.network), get_scenario("hitzges"), config.sizes, config
    )
    calls: list[int] = []
    stage.learn(lambda metrics: calls.append(stage.decisions))
    stage.learn(lambda metrics: calls.append(stage.decisions))
    assert calls == [stage.rollout_size] == [24]
