"""PPO: advantages by hand, masks, idle rows, and learning on a problem of seconds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.utils import obs_as_tensor

from hetsched.agents.configs import PPOConfig
from hetsched.agents.learned import LearnedPolicy
from hetsched.agents.policy import rollout
from hetsched.agents.ppo import GroupBaselineBuffer, make_ppo, mean_of_peers, network_of
from hetsched.agents.reinforcement import Reinforcement, widest
from hetsched.envs.problem import Problem
from hetsched.envs.scenarios import get_scenario, sample_instances
from hetsched.envs.simulator import State
from hetsched.envs.vector import VectorEnvironment
from hetsched.gnn.config import NetworkConfig
from hetsched.gnn.network import SchedulingNetwork
from hetsched.tests.agents.tiny_runs import tiny

HITZGES = get_scenario("hitzges")

# Three steps of two rows: the first row ends with the third step, the second one goes on.
REWARDS = [[1.0, 0.0], [2.0, 1.0], [3.0, 0.0]]
VALUES = [[0.5, 0.0], [1.0, 2.0], [1.5, 1.0]]
LAST_VALUES, DONE = [9.0, 4.0], [True, False]
# By hand, with gamma 1 and lambda 1/2: delta = r + v' - v, A = delta + A' / 2.
ADVANTAGES = [[3.125, 2.75], [3.25, 1.5], [1.5, 3.0]]
RETURNS = [[3.625, 2.75], [4.25, 3.5], [3.0, 4.0]]


def buffer(repeats: int = 2, real=None, when=None, starts=None) -> GroupBaselineBuffer:
    """A full buffer of the rollout above; one job is visible where a decision is real."""
    space = spaces.Dict(
        {"job_mask": spaces.MultiBinary(1), "when": spaces.Box(0.0, np.inf, (2,), np.float64)}
    )
    found = GroupBaselineBuffer(
        3, space, spaces.Discrete(4), gamma=1.0, gae_lambda=0.5, n_envs=2, repeats=repeats
    )
    for step in range(3):
        seen = np.ones((2, 1)) if real is None else np.array(real[step])[:, None]
        moment = np.array([[0.0, step]] * 2) if when is None else np.array(when[step])
        found.add(
            {"job_mask": seen, "when": moment},
            np.array([step, step]),
            np.array(REWARDS[step]),
            np.array([step == 0] * 2 if starts is None else starts[step]),
            torch.tensor(VALUES[step]),
            torch.zeros(2),
        )
    found.compute_returns_and_advantage(torch.tensor(LAST_VALUES), np.array(DONE))
    return found


def test_advantages_are_those_computed_by_hand() -> None:
    found = buffer(repeats=1)
    assert found.advantages.tolist() == ADVANTAGES
    assert found.returns.tolist() == RETURNS


def test_the_mean_of_the_group_is_the_baseline() -> None:
    found = buffer(repeats=2)
    means = [2.9375, 2.375, 2.25]
    wanted = [[a - m, b - m] for (a, b), m in zip(ADVANTAGES, means, strict=True)]
    assert found.advantages.tolist() == wanted
    assert found.returns.tolist() == RETURNS  # the critic's target knows no baseline


def test_nothing_crosses_the_end_of_an_episode() -> None:
    found = buffer(repeats=1, starts=[[True, True], [False, False], [True, False]])
    # row 0 ended with its second step: A = r - v there, then the first step builds on it
    assert found.advantages[:, 0].tolist() == [1.5 + 1.0 / 2, 1.0, 1.5]
    assert found.advantages[:, 1].tolist() == [row[1] for row in ADVANTAGES]


def test_idle_rows_are_no_part_of_the_baseline() -> None:
    found = buffer(repeats=2, real=[[1, 1], [1, 1], [1, 0]])
    assert found.advantages[2, 0] == 0.0  # alone at the third step
    assert found.advantages[1, 0] == (3.25 - 1.5) / 2


@pytest.mark.parametrize(
    ("size", "batches"), [(None, [5]), (5, [5]), (3, [3, 2]), (4, [4]), (2, [2, 2]), (100, [5])]
)
def test_idle_rows_are_left_out_of_the_minibatches(size, batches: list[int]) -> None:
    found = buffer(real=[[1, 1], [1, 1], [1, 0]])
    drawn = list(found.get(size))
    assert [len(one.actions) for one in drawn] == batches  # no last one below half of the size
    returns = torch.cat([one.returns for one in drawn]).tolist()
    real = sorted([3.625, 4.25, 3.0, 2.75, 3.5])
    assert len(set(returns)) == len(returns)
    assert set(returns) <= set(real)
    if sum(batches) == 5:
        assert sorted(returns) == real


def test_minibatches_keep_together_what_belongs_together() -> None:
    found = buffer(repeats=1)
    advantages = {ret: adv for rets, advs in zip(RETURNS, ADVANTAGES, strict=True)
                  for ret, adv in zip(rets, advs, strict=True)}  # fmt: skip
    for one in found.get(2):
        wanted = [advantages[value] for value in one.returns.tolist()]
        assert one.advantages.tolist() == wanted


def test_peers_are_compared_at_the_same_clock() -> None:
    values = np.array([[1, 10], [2, 20], [3, 30]], np.float32)
    when = np.array([[[0, 0], [0, 0]], [[0, 5], [0, 5]], [[0, 9], [0, 6]]], np.float64)
    found = mean_of_peers(values, np.ones((3, 2), bool), when, 2)
    assert found.tolist() == [[5.5, 5.5], [11.0, 11.0], [16.5, 16.0]]


def test_peers_in_another_batch_of_instances_do_not_count() -> None:
    values = np.array([[1, 10], [2, 20]], np.float32)
    when = np.array([[[0, 7], [0, 7]], [[0, 9], [1, 0]]], np.float64)
    found = mean_of_peers(values, np.ones((2, 2), bool), when, 2)
    assert found.tolist() == [[5.5, 5.5], [6.0, 20.0]]


def test_other_groups_do_not_count() -> None:
    values = np.array([[1, 3, 10, 30]], np.float32)
    found = mean_of_peers(values, np.ones((1, 4), bool), np.zeros((1, 4, 2)), 2)
    assert found.tolist() == [[2.0, 2.0, 20.0, 20.0]]


# ---- the policy --------------------------------------------------------------------------------


@pytest.fixture
def model():
    """PPO on hitzges, padded to the larger of two sizes; weights that prefer some actions."""
    environment = VectorEnvironment(HITZGES, 3, 2, 0, ((4, 2), (5, 3)))
    extent = widest(HITZGES, ((4, 2), (5, 3)))
    config = NetworkConfig(hidden=8, layers=1, heads=2)
    model = make_ppo(environment, extent, PPOConfig(), config, seed=0)
    for value in network_of(model).parameters():
        torch.nn.init.normal_(value, std=0.3)
    return model


def test_evaluated_actions_have_the_probabilities_they_were_drawn_with(model) -> None:
    seen = obs_as_tensor(model.env.reset(), model.device)
    for _ in range(8):  # over the end of the first batch, into the larger size
        with torch.no_grad():
            actions, values, log_probs = model.policy(seen)
            again, same, _ = model.policy.evaluate_actions(seen, actions)
        assert torch.equal(values, again)
        assert torch.equal(log_probs, same)
        assert bool(seen["legal"].gather(1, actions[:, None]).all())
        assert torch.equal(values, model.policy.predict_values(seen))
        seen = obs_as_tensor(model.env.step(actions.numpy())[0], model.device)


def test_the_favourite_is_taken_where_no_draw_is_wanted(model) -> None:
    seen = obs_as_tensor(model.env.reset(), model.device)
    favourites = model.policy._predict(seen, deterministic=True)
    _, _, log_prob = model.policy(seen, deterministic=True)
    drawn = [model.policy(seen)[2] for _ in range(20)]
    assert bool((log_prob >= torch.stack(drawn) - 1e-6).all())
    assert bool(seen["legal"].gather(1, favourites[:, None]).all())


def test_padding_changes_no_score(model) -> None:
    """A 4 x 2 instance padded to 5 x 3 has the probabilities that the network gives it."""
    seen = obs_as_tensor(model.env.reset(), model.device)
    logits = model.policy._distribution(seen)[0].logits
    policy = LearnedPolicy(network_of(model))
    plain = policy.scores(model.env.environment.state).log_softmax(1)
    padded = logits[:, :-1].view(6, 5, 3)[:, :4, :2].flatten(1)
    assert torch.allclose(padded.exp(), plain[:, :-1].exp(), atol=1e-6)


def test_illegal_actions_have_no_part_in_the_entropy_nor_in_gradients(model) -> None:
    seen = obs_as_tensor(model.env.reset(), model.device)
    actions = model.policy(seen)[0]
    _, _, entropy = model.policy.evaluate_actions(seen, actions)
    probabilities = model.policy._distribution(seen)[0].probs
    assert bool((probabilities[seen["legal"] == 0] == 0).all())
    by_hand = [-sum(p * math.log(p) for p in row if p > 0) for row in probabilities.tolist()]
    assert entropy.tolist() == pytest.approx(by_hand, rel=1e-5)
    entropy.sum().backward()
    for value in network_of(model).parameters():
        assert value.grad is None or bool(value.grad.isfinite().all())


def untrained(groups: int, repeats: int, size: tuple[int, int], **options) -> Any:
    environment = VectorEnvironment(HITZGES, groups, repeats, 0, (size,))
    config = PPOConfig(**options)
    return make_ppo(environment, widest(HITZGES, (size,)), config, NetworkConfig(), 0)


def test_an_untrained_policy_is_indifferent_between_legal_actions() -> None:
    model = untrained(2, 2, (4, 2))
    seen = obs_as_tensor(model.env.reset(), model.device)
    for left in (4, 3, 2, 1):
        actions, values, _ = model.policy(seen)
        _, _, entropy = model.policy.evaluate_actions(seen, actions)
        assert entropy.tolist() == pytest.approx([math.log(2 * left)] * 4, rel=1e-6)
        assert values.flatten().tolist() == [0.0] * 4
        seen = obs_as_tensor(model.env.step(actions.numpy())[0], model.device)


def test_an_action_without_alternative_has_no_entropy() -> None:
    model = untrained(2, 1, (1, 1))
    seen = obs_as_tensor(model.env.reset(), model.device)
    _, log_probs, entropy = model.policy.evaluate_actions(seen, torch.zeros(2))
    assert entropy.tolist() == [0.0, 0.0]
    assert log_probs.tolist() == [0.0, 0.0]


# ---- learning ----------------------------------------------------------------------------------


def reinforced(seed: int = 0, timesteps: int = 3000, **values) -> Reinforcement:
    config = tiny(
        sizes=((4, 2),),
        timesteps=timesteps,
        seed=seed,
        groups=8,
        repeats=4,
        ppo=PPOConfig(n_steps=8, batch_size=64, n_epochs=4, learning_rate=3e-3),
        **values,
    )
    torch.manual_seed(seed)
    network = SchedulingNetwork(config.network)
    return Reinforcement(network, HITZGES, config.sizes, config)


def sampled_cost(network: SchedulingNetwork) -> float:
    """Mean cost over 100 instances that training does not see, with actions drawn."""
    problem = Problem.from_instances(sample_instances(HITZGES, 100, 123, 4, 2))
    state = State.initial(problem, HITZGES.objective, HITZGES.deciding)
    generator = torch.Generator().manual_seed(0)
    return float(
        rollout(LearnedPolicy(network), state, sampled=True, generator=generator).cost().mean()
    )


def test_a_few_seconds_of_learning_beat_chance() -> None:
    stage = reinforced()
    before, rewards = sampled_cost(stage.network), []
    stage.learn(lambda metrics: rewards.append(metrics["ppo/reward"]))
    after = sampled_cost(stage.network)
    assert stage.decisions == 3072  # twelve rollouts of 256
    assert len(rewards) == 12
    assert after < 0.8 * before
    assert np.mean(rewards[-3:]) > np.mean(rewards[:3])


def test_the_same_seed_gives_the_same_weights() -> None:
    found = []
    for seed in (0, 0, 1):
        stage = reinforced(seed, timesteps=256)
        stage.learn(lambda metrics: None)
        values = stage.network.state_dict().values()
        found.append(torch.cat([value.flatten() for value in values]))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_the_learning_rate_falls_to_a_tenth() -> None:
    stage, rates = reinforced(timesteps=1024), []
    stage.learn(lambda metrics: rates.append(metrics["ppo/learning_rate"]))
    assert rates == pytest.approx([3e-3 * (0.1 + 0.9 * left) for left in (0.75, 0.5, 0.25, 0.0)])


@pytest.mark.parametrize("timesteps", [10, 300])
def test_a_rollout_beyond_the_last_decision_does_not_climb_the_loss(timesteps: int) -> None:
    stage, rates = reinforced(timesteps=timesteps), []  # a rollout is 256 decisions
    stage.learn(lambda metrics: rates.append(metrics["ppo/learning_rate"]))
    assert rates[-1] == pytest.approx(3e-4)


def test_any_batch_size_does_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    untrained(2, 2, (4, 2), batch_size=999)
    assert not [one for one in recwarn if "mini-batch" in str(one.message)]
