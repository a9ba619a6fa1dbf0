"""The warm start: it learns what its teacher does, and goes on from where it was saved."""

from __future__ import annotations

import io

import pytest
import torch

from hetsched.agents.configs import ImitationConfig
from hetsched.agents.imitation import Imitation
from hetsched.agents.rules import make_rule
from hetsched.envs.scenarios import get_scenario
from hetsched.gnn.config import NetworkConfig
from hetsched.gnn.network import SchedulingNetwork

SIZES = ((4, 2), (5, 2))


def stage(scenario: str = "hitzges", rule: str | None = None, seed: int = 0, **values) -> Imitation:
    """A warm start of a small network on tiny instances."""
    torch.manual_seed(seed)
    network = SchedulingNetwork(NetworkConfig(hidden=16, layers=1, heads=2))
    options = {
        "decisions": 1500, "instances": 16, "moves_per_job": 100, "batch_size": 32,
        "learning_rate": 5e-3, **values,
    }  # fmt: skip
    return Imitation(
        network,
        get_scenario(scenario),
        SIZES,
        ImitationConfig(**options),
        seed,
        None if rule is None else make_rule(rule),
    )


def weights(one: Imitation) -> torch.Tensor:
    return torch.cat([value.flatten() for value in one.network.state_dict().values()])


@pytest.mark.parametrize(("scenario", "rule"), [("hitzges", None), ("gpu-cluster", "ect-wait")])
def test_the_loss_falls_and_the_favourite_is_more_often_right(scenario: str, rule) -> None:
    one, rounds = stage(scenario, rule), []
    while not one.finished:
        rounds.append(one.step())
    early, late = rounds[:4], rounds[-4:]
    for name, better in (("loss", -1), ("agreement", 1)):
        first, last = (sum(values[name] for values in part) / 4 for part in (early, late))
        assert better * (last - first) > 0.05, (name, first, last)
    assert all(0 <= values["agreement"] <= 1 for values in rounds)


def test_rounds_take_the_sizes_in_turn_and_end_with_the_budget() -> None:
    one = stage(decisions=150)
    counts = []
    while not one.finished:
        one.step()
        counts.append(one.decisions)
    assert counts == [16 * 4, 16 * 9, 16 * 13]  # plans: one decision per job
    assert one.round == 3


def test_the_learning_rate_falls_along_a_cosine() -> None:
    one, rates = stage(decisions=16 * 9 * 2), []
    while not one.finished:
        one.step()
        rates.append(one.optimizer.param_groups[0]["lr"])
    assert rates[0] == pytest.approx(5e-3)
    half = 5e-3 * (0.01 + 0.99 / 2)
    assert rates[2] == pytest.approx(half)  # after half of the decisions
    assert rates == sorted(rates, reverse=True)


def test_the_same_seed_gives_the_same_weights() -> None:
    one, same, other = stage(seed=1), stage(seed=1), stage(seed=2)
    for each in (one, same, other):
        each.step()
        each.step()
    assert torch.equal(weights(one), weights(same))
    assert not torch.equal(weights(one), weights(other))


@pytest.mark.parametrize(("scenario", "rule"), [("hitzges", None), ("gpu-cluster", "ect-wait")])
def test_a_saved_stage_goes_on_as_if_it_had_not_stopped(scenario: str, rule) -> None:
    one, file = stage(scenario, rule), io.BytesIO()
    one.step()
    torch.save({"stage": one.state_dict(), "network": one.network.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)  # plain enough for the safe reader
    other = stage(scenario, rule)
    other.network.load_state_dict(saved["network"])
    other.load_state_dict(saved["stage"])
    assert (other.round, other.decisions) == (one.round, one.decisions)
    for _ in range(2):
        assert one.step() == other.step()
    assert torch.equal(weights(one), weights(other))


def test_exploring_meets_states_that_the_teacher_would_not() -> None:
    """Half-way the student wanders if explore is 1; with 0 every decision follows the rule."""
    from hetsched.envs.problem import Problem
    from hetsched.envs.scenarios import sample_instances

    instances = sample_instances(get_scenario("gpu-cluster"), 8, 0, 6, 2)
    problem = Problem.from_instances(instances)

    def walk(explore: float, decisions: int) -> torch.Tensor:
        one = stage("gpu-cluster", "ect-wait", explore=explore, decisions=1000)
        one.decisions = decisions
        return one._walk(problem, seed=3).graph.modes

    walks = [walk(0.0, 500), walk(1.0, 0), walk(1.0, 500)]
    assert torch.equal(walks[0], walks[1])  # at first it does not wander either
    assert walks[0].shape != walks[2].shape or not torch.equal(walks[0], walks[2])


@pytest.mark.parametrize(("scenario", "rule"), [("hitzges", None), ("gpu-cluster", "ect-wait")])
def test_the_returns_of_a_walk_are_the_rewards_that_followed(scenario: str, rule) -> None:
    """In units of the quick rule; the teacher ect-wait is that rule in dispatch."""
    from hetsched.agents.unit_cost import rule_cost
    from hetsched.envs.problem import Problem
    from hetsched.envs.scenarios import sample_instances
    from hetsched.envs.simulator import State

    one = stage(scenario, rule, explore=0.0)
    problem = Problem.from_instances(sample_instances(one.scenario, 5, 0, 6, 2))
    fresh = State.initial(problem, one.scenario.objective, one.scenario.deciding)
    unit = rule_cost(one.scenario)(fresh.clone())
    first = one._walk(problem, seed=1).returns[:5].double()
    if rule:
        assert first.tolist() == pytest.approx(((fresh.bound - unit) / unit).tolist(), rel=1e-5)
    else:  # annealed: no dearer than the quick rule, no cheaper than the bound
        assert bool(((first <= 0) & (first >= (fresh.bound - unit) / unit - 1e-6)).all())


def test_values_tell_what_will_still_be_added() -> None:
    from hetsched.envs.problem import Problem
    from hetsched.envs.scenarios import sample_instances

    one = stage("hitzges", "wspt", decisions=4000, epochs=6)
    while not one.finished:
        one.step()
    problem = Problem.from_instances(sample_instances(one.scenario, 60, 9, 5, 2))
    lessons = one._walk(problem, seed=1)
    with torch.no_grad():
        errors = one.network(lessons.graph)[1] - lessons.returns
    assert float(errors.square().mean()) < 0.9 * float(lessons.returns.var())  # a constant: 1
