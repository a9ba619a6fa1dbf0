"""Recipes: one for every scenario, and configurations that survive being written down."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hetsched.agents.configs import ImitationConfig, PPOConfig
from hetsched.agents.recipe import TrainConfig, read_config, recipe
from hetsched.agents.teachers import teacher_rule
from hetsched.envs.scenarios import get_scenario, scenario_names

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [name for name in scenario_names() if name != "own"]  # that one needs files


@pytest.mark.parametrize("name", NAMES)
def test_the_teacher_of_every_recipe_can_teach_its_scenario(name: str) -> None:
    config, scenario = recipe(name), get_scenario(name)
    rule = teacher_rule(config.warm_start, scenario, config.sizes or scenario.sizes)
    assert config.warm_start.decisions > 0
    assert (rule is None) == (config.warm_start.teacher == "annealing")


def test_options_of_a_scenario_do_not_change_its_recipe() -> None:
    plain, loaded = recipe("gpu-cluster"), recipe("gpu-cluster:load=0.9")
    assert loaded.scenario == "gpu-cluster:load=0.9"
    assert loaded.warm_start == plain.warm_start
    assert loaded.timesteps == plain.timesteps


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_comes_back_from_json(name: str) -> None:
    config = recipe(name)
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_a_configuration_comes_back_from_its_file(tmp_path: Path) -> None:
    config = TrainConfig("hitzges", sizes=((4, 2), (5, 3)), ppo=PPOConfig(n_steps=7))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config.to_dict()))
    assert read_config(path) == config


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "cannot be read"),
        ("[1, 2]", "does not fit this hetsched"),
        ("{}", "does not fit this hetsched: .*missing 1 required .*'scenario'"),
        ('{"scenario": "hitzges", "speed": 1}', "unexpected keyword argument 'speed'"),
        ('{"scenario": "hitzges", "ppo": {"depth": 1}}', "unexpected keyword argument 'depth'"),
        ('{"scenario": "hitzges", "ppo": 3}', "does not fit this hetsched"),
        ('{"scenario": "hitzges", "timesteps": -1}', "timesteps must be 0 or more, got -1"),
        ('{"scenario": "hitzges", "sizes": [[4]]}', "cannot be read"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(
    tmp_path: Path, text: str, sentence: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=sentence) as caught:
        read_config(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no run configuration at"):
        read_config(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"timesteps": -1}, "timesteps must be 0 or more, got -1"),
        ({"timesteps": 0}, "there is nothing to do"),
        ({"groups": 0}, "groups must be at least 1"),
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"eval_freq": 0}, "eval_freq must be at least 1"),
        ({"eval_count": 0}, "eval_count must be at least 1"),
        ({"seed": -1}, "seed must be 0 or more, got -1"),
        ({"seed": 2**32}, "seed must lie below"),
        ({"sizes": ((4, 2), (0, 3))}, r"sizes\[1\] must be at least 1 x 1, got 0 x 3"),
        ({"groups": 1, "repeats": 1, "ppo": PPOConfig(n_steps=1)}, "a rollout of one decision"),
    ],
)
def test_a_wrong_run_is_refused(values, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TrainConfig("hitzges", **values)


def test_a_warm_start_alone_is_a_run() -> None:
    assert TrainConfig("hitzges", timesteps=0, warm_start=ImitationConfig(decisions=1))
