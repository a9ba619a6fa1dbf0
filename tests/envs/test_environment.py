"""The Gymnasium environment against the checkers of Gymnasium and stable-baselines3."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from stable_baselines3.common.env_checker import check_env as sb3_check

from hetsched.envs.environment import SchedulingEnv
from hetsched.envs.instance import Instance

CASES = [
    ("hitzges", 1, 1),
    ("hitzges", 8, 4),
    ("hitzges", 20, 5),
    ("gpu-cluster", 6, 3),
    ("gpu-cluster", 20, 6),
    ("gpu-cluster-noisy", 8, 4),
    ("gpu-cluster-single", 8, 4),
    ("gpu-cluster-offline", 8, 4),
]


@pytest.mark.parametrize(("scenario", "jobs", "machines"), CASES)
def test_every_scenario_passes_both_checkers(scenario: str, jobs: int, machines: int) -> None:
    env = SchedulingEnv(scenario, jobs, machines)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*spec.*")
        gymnasium_check(env, skip_render_check=True)
    with warnings.catch_warnings():  # it takes the features of a graph for images, and says so
        warnings.simplefilter("ignore")
        sb3_check(env)


@pytest.mark.parametrize(("scenario", "jobs", "machines"), CASES)
def test_rewards_add_up_to_the_cost_of_a_feasible_schedule(
    scenario: str, jobs: int, machines: int
) -> None:
    env = SchedulingEnv(scenario, jobs, machines)
    env.action_space.seed(1)
    _, info = env.reset(seed=2)
    total, done = info["initial_bound"], False
    for _ in range(10 * jobs + 10):
        observation, reward, done, truncated, info = env.step(env.action_space.sample())
        assert observation in env.observation_space
        assert reward <= 1e-9
        assert not truncated
        total -= reward
        if done:
            break
    assert done
    assert total == pytest.approx(info["cost"])
    instance = env.state.problem.instances[0]
    env.schedule().check(instance)
    assert env.schedule().cost(instance, env.scenario.objective) == pytest.approx(info["cost"])


def test_gymnasium_makes_the_registered_environment() -> None:
    name = "hetsched.envs.registration:hetsched/Scheduling-v0"
    env = gymnasium.make(name, scenario="hitzges", num_jobs=5, num_machines=2)
    observation, _ = env.reset(seed=0)
    assert observation["jobs"].shape == (5, 12)


def test_the_same_seed_gives_the_same_episode() -> None:
    def play() -> list[float]:
        env = SchedulingEnv("gpu-cluster", 8, 4)
        env.action_space.seed(3)
        env.reset(seed=3)
        rewards, done = [], False
        while not done:
            _, reward, done, _, _ = env.step(env.action_space.sample())
            rewards.append(reward)
        return rewards

    assert play() == play()


def test_a_strict_environment_refuses_illegal_actions_and_changes_nothing() -> None:
    env = SchedulingEnv("hitzges", 4, 2, strict=True)
    before, _ = env.reset(seed=0)
    wait = env.action_space.n - 1
    for action in (wait, -1, 99):
        with pytest.raises(ValueError, match=f"action {action} "):
            env.step(action)
    assert not bool(env.state.scheduled.any())
    assert np.array_equal(before["legal"], env.action_masks())


def test_an_illegal_action_is_replaced_by_the_first_legal_one_and_reported() -> None:
    env = SchedulingEnv("hitzges", 4, 2)
    env.reset(seed=0)
    _, _, _, _, info = env.step(8)  # WAIT, in a plan
    assert info["illegal_action"]
    assert env.state.scheduled[0].tolist() == [True, False, False, False]
    _, _, _, _, info = env.step(2)
    assert not info["illegal_action"]


def test_an_instance_of_ones_own_can_be_played_if_it_fits() -> None:
    env = SchedulingEnv("hitzges", 3, 2)
    instance = Instance.from_matrix(np.array([[2.0, 9.0], [3.0, 4.0], [1.0, np.inf]]))
    observation, _ = env.reset(options={"instance": instance})
    assert observation["mode_mask"].tolist() == [[1, 1], [1, 1], [1, 0]]
    big = Instance.from_matrix(np.ones((9, 2)))
    with pytest.raises(ValueError, match="widen"):
        env.reset(options={"instance": big})
