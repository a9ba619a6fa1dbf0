"""LearnedPolicy: a network behind the signature that all policies share."""

from __future__ import annotations

import pytest
import torch

from hetsched.agents.learned import LearnedPolicy
from hetsched.agents.policy import act, decisions, greedy, rollout
from hetsched.envs.features import observe
from hetsched.envs.problem import Problem
from hetsched.envs.scenarios import get_scenario, sample_instances
from hetsched.envs.simulator import State
from hetsched.gnn.config import NetworkConfig
from hetsched.gnn.network import SchedulingNetwork

GPUS = get_scenario("gpu-cluster")


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


class Counted(LearnedPolicy):
    """Counts how often it looks at a state."""

    looks = 0

    def scores(self, state: State) -> torch.Tensor:
        self.looks += 1
        return super().scores(state)


def test_one_look_may_decide_about_a_share_of_the_jobs(network: SchedulingNetwork) -> None:
    """Of ten jobs five, of five two, then one at a time."""
    policy = Counted(network, together=0.5)
    rollout(policy, state_of("hitzges", jobs=10, machines=6))
    assert policy.looks == 5


def test_what_is_decided_at_one_look_concerns_other_jobs_on_other_machines(
    network: SchedulingNetwork,
) -> None:
    policy = LearnedPolicy(network, together=1.0)
    state = state_of("hitzges", jobs=10, machines=4)
    before = policy.scores(state)
    taken = []
    for actions, _ in decisions(policy, state, greedy):
        taken.append(actions)
        state.step(actions)
    jobs = torch.stack(taken) // state.problem.num_modes  # (4, B)
    slots = torch.stack(taken) % state.problem.num_modes  # dense: slot is machine
    assert len(taken) == 4
    for row in range(4):
        assert len(set(jobs[:, row].tolist())) == 4
        assert sorted(slots[:, row].tolist()) == [0, 1, 2, 3]
    values = before.gather(1, torch.stack(taken, dim=1))
    assert torch.equal(values[:, 0], before.amax(1))
    assert torch.equal(values, values.sort(dim=1, descending=True).values)


@pytest.mark.parametrize("scenario", ["hitzges", "upmsp", "fjsp", "dag", "gpu-cluster"])
@pytest.mark.parametrize("sampled", [False, True])
def test_schedules_that_were_decided_together_are_feasible(
    network: SchedulingNetwork, scenario: str, sampled: bool
) -> None:
    """Predecessors, set-ups, gangs and clocks included."""
    state = state_of(scenario, jobs=12, machines=4)
    cost = rollout(LearnedPolicy(network, together=1.0), state, sampled=sampled).cost()
    for one, instance, claimed in zip(
        state.schedules(), state.problem.instances, cost.tolist(), strict=True
    ):
        one.check(instance)
        assert one.cost(instance, state.objective) == pytest.approx(claimed)


@pytest.mark.parametrize("scenario", ["hitzges", "dag", "gpu-cluster"])
def test_deciding_together_depends_on_no_other_row(
    network: SchedulingNetwork, scenario: str
) -> None:
    policy = LearnedPolicy(network, together=0.4)
    sizes = ((3, 2), (12, 3), (7, 4))
    found = get_scenario(scenario)
    instances = [sample_instances(found, 1, 0, *size)[0] for size in sizes]
    beside = rollout(policy, state_of(scenario, *instances)).cost().tolist()
    alone = [rollout(policy, state_of(scenario, one)).cost().item() for one in instances]
    assert beside == pytest.approx(alone)


def test_in_dispatch_every_decision_is_a_look_of_its_own(network: SchedulingNetwork) -> None:
    """So WAIT stays possible, and what has not arrived yet plays no part."""
    policy = Counted(network, together=1.0)
    state = rollout(policy, state_of("gpu-cluster", *sample_instances(GPUS, 1, 0, 9, 3)))
    assert policy.looks == int(state.steps)


def test_a_share_is_from_none_to_all(network: SchedulingNetwork) -> None:
    with pytest.raises(ValueError, match="together is a share of the jobs, from 0 to 1, got 2"):
        LearnedPolicy(network, together=2.0)
