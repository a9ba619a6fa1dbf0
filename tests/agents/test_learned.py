"""LearnedPolicy: a network behind the signature that all policies share."""

from __future__ import annotations

import pytest
import torch

from hetsched.agents.learned import LearnedPolicy
from hetsched.agents.policy import act, rollout
from hetsched.envs.features import observe
from hetsched.envs.problem import Problem
from hetsched.envs.scenarios import get_scenario, sample_instances
from hetsched.envs.simulator import State
from hetsched.gnn.config import NetworkConfig
from hetsched.gnn.network import SchedulingNetwork


@pytest.fixture
def network() -> SchedulingNetwork:
    """A network that prefers some actions to others."""
    torch.manual_seed(1)
    network = SchedulingNetwork(NetworkConfig(hidden=8, layers=1, heads=2))
    for value in network.parameters():
        torch.nn.init.normal_(value, std=0.3)
    return network


def state_of(scenario: str, *instances, jobs: int = 5, machines: int = 3) -> State:
    found = get_scenario(scenario)
    problem = Problem.from_instances(
        list(instances) or sample_instances(found, 4, 0, jobs, machines)
    )
    return State.initial(problem, found.objective, found.deciding)


@pytest.mark.parametrize("scenario", ["hitzges", "gpu-cluster"])
def test_scores_are_the_logits_of_the_network(network: SchedulingNetwork, scenario: str) -> None:
    policy = LearnedPolicy(network)
    state = state_of(scenario)
    while not bool(state.done.all()):
        scores, mask = policy.scores(state), state.mask()
        assert scores.shape == mask.shape
        assert torch.equal(scores, network(observe(state))[0])
        assert bool((scores[~mask] == -torch.inf).all())
        assert bool(scores[mask].isfinite().all())
        state.step(act(policy, state))


def test_deciding_needs_no_gradients_and_no_training_mode(network: SchedulingNetwork) -> None:
    network.train()
    policy = LearnedPolicy(network, "mine")
    assert policy.name == "mine"
    assert not network.training
    assert not policy.scores(state_of("hitzges")).requires_grad


def test_the_company_of_a_batch_changes_no_schedule(network: SchedulingNetwork) -> None:
    """Instances of other sizes beside it, and the padding they bring, are invisible."""
    policy = LearnedPolicy(network)
    sizes = ((3, 2), (6, 3), (5, 4))
    scenario = get_scenario("hitzges")
    instances = [sample_instances(scenario, 1, 0, *size)[0] for size in sizes]
    together = rollout(policy, state_of("hitzges", *instances)).cost().tolist()
    alone = [rollout(policy, state_of("hitzges", one)).cost().item() for one in instances]
    assert together == alone


def test_the_unit_of_time_changes_no_decision(network: SchedulingNetwork) -> None:
    policy = LearnedPolicy(network)
    instances = sample_instances(get_scenario("hitzges"), 4, 0, 6, 3)
    seconds = rollout(policy, state_of("hitzges", *instances))
    minutes = rollout(policy, state_of("hitzges", *(one.scaled(1 / 64) for one in instances)))
    assert torch.equal(seconds.chosen, minutes.chosen)
    assert torch.equal(seconds.starts / 64, minutes.starts)
