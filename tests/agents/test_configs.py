"""Options of training: a wrong value is refused with its name."""

from __future__ import annotations

import pytest

from hetsched.agents.configs import ImitationConfig, PPOConfig


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"decisions": -1}, "decisions must be 0 or more, got -1"),
        ({"decisions": 1.5}, "decisions must be a whole number, got 1.5"),
        ({"decisions": True}, "decisions must be a whole number, got True"),
        ({"instances": 0}, "instances must be at least 1, got 0"),
        ({"moves_per_job": 0}, "moves_per_job must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"epochs": "2"}, "epochs must be a whole number, got '2'"),
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        ({"teacher": 5}, "teacher must be a word, got 5"),
        ({"explore": 1.1}, r"explore must lie in 0\.\.1, got 1.1"),
        ({"explore": float("nan")}, r"explore must lie in 0\.\.1, got nan"),
    ],
)
def test_a_wrong_warm_start_is_refused(values, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ImitationConfig(**values)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"n_steps": 0}, "n_steps must be at least 1"),
        ({"batch_size": 1}, "batch_size must be at least 2, got 1"),
        ({"n_epochs": -3}, "n_epochs must be at least 1, got -3"),
        ({"learning_rate": float("nan")}, "learning_rate must be positive, got nan"),
        ({"learning_rate": float("inf")}, "learning_rate must be positive, got inf"),
        ({"clip_range": -0.1}, "clip_range must be positive"),
        ({"ent_coef": -0.1}, "ent_coef must be 0 or more, got -0.1"),
        ({"vf_coef": "much"}, "vf_coef must be 0 or more, got 'much'"),
        ({"gae_lambda": 2}, r"gae_lambda must lie in 0\.\.1, got 2"),
    ],
)
def test_wrong_options_of_ppo_are_refused(values, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        PPOConfig(**values)


def test_the_warm_start_is_off_unless_asked_for() -> None:
    assert ImitationConfig().decisions == 0
