"""What a training run is made of: one frozen configuration, with a recipe per scenario."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hetsched.agents.configs import ImitationConfig, PPOConfig, check_text, check_whole
from hetsched.gnn.config import NetworkConfig


@dataclass(frozen=True)
class TrainConfig:
    """A training run: a supervised warm start, then PPO, validated on fixed seeds throughout.

    Attributes:
        scenario: what to train on, options included.
        sizes: (jobs, machines) of the training instances in turn; empty: the scenario's own.
        timesteps: decisions of PPO, over all parallel rollouts.
        seed: of weights, instances and sampling.
        groups, repeats: instances side by side, and rollouts of each.
        eval_freq: decisions between validations.
        eval_count: validation instances per size.
        eval_seed: of the validation instances, never of training.
        device: where environment and network live.
        network, warm_start, ppo: see their classes.
    """

    scenario: str
    sizes: tuple[tuple[int, int], ...] = ()
    timesteps: int = 500_000
    seed: int = 0
    groups: int = 32
    repeats: int = 8
    eval_freq: int = 50_000
    eval_count: int = 64
    eval_seed: int = 1_000_003
    device: str = "cpu"
    network: NetworkConfig = field(default_factory=NetworkConfig)
    warm_start: ImitationConfig = field(default_factory=ImitationConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)

    def __post_init__(self) -> None:
        check_text(self, "scenario", "device")
        check_whole(self, 1, "groups", "repeats", "eval_freq", "eval_count")
        check_whole(self, 0, "timesteps", "seed", "eval_seed")
        if self.seed >= 2**32:
            raise ValueError(f"seed must lie below 2**32, got {self.seed}")
        if self.timesteps == 0 and self.warm_start.decisions == 0:
            raise ValueError("there is nothing to do: give timesteps or a warm start")
        if self.groups * self.repeats * self.ppo.n_steps < 2:
            raise ValueError("a rollout of one decision teaches nothing; give more n_steps or rows")
        for index, (jobs, machines) in enumerate(self.sizes):
            if jobs < 1 or machines < 1:
                raise ValueError(f"sizes[{index}] must be at least 1 x 1, got {jobs} x {machines}")

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values, for JSON."""
        found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """The configuration that :meth:`to_dict` described.

        Raises:
            ValueError: an unknown or missing entry, or a value out of range.
        """
        nested = {"network": NetworkConfig, "warm_start": ImitationConfig, "ppo": PPOConfig}
        try:
            parts: dict[str, Any] = dict(**values)
            for name, kind in nested.items():
                if name in parts:
                    parts[name] = kind(**parts[name])
            parts["sizes"] = tuple((int(n), int(m)) for n, m in parts.get("sizes", ()))
            return cls(**parts)
        except TypeError as error:
            reason = str(error).replace("__init__() ", "")
            raise ValueError(f"the configuration does not fit this hetsched: {reason}") from error


def read_config(path: str | Path) -> TrainConfig:
    """The configuration in the ``config.json`` of a run.

    Raises:
        ValueError: there is no such file, or it cannot be understood.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no run configuration at {path}; check the folder")
    try:
        return TrainConfig.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def recipe(scenario: str) -> TrainConfig:
    """The configuration that works for a scenario, options like ``:load=0.9`` included."""
    head = scenario.partition(":")[0]
    plans = PPOConfig(
        learning_rate=2.5e-4, n_epochs=3, gae_lambda=0.9, ent_coef=0.0, outlook_moves=1000
    )
    if head == "hitzges":
        return TrainConfig(
            scenario,
            sizes=((8, 4), (20, 4), (12, 5), (8, 4), (20, 4), (30, 6)),
            timesteps=1_500_000,
            groups=64,
            repeats=16,
            eval_freq=150_000,
            eval_count=150,
            network=NetworkConfig(hidden=56),
            warm_start=ImitationConfig(decisions=2_000_000),
            ppo=dataclasses.replace(plans, ent_coef=0.0005),
        )
    if head == "rcmax":
        return TrainConfig(
            scenario,
            sizes=((20, 4), (30, 6), (30, 10), (20, 10)),
            warm_start=ImitationConfig(decisions=900_000),
            ppo=plans,
        )
    if head == "fjsp":
        return TrainConfig(
            scenario,
            sizes=((6, 4), (10, 5), (8, 5), (10, 5)),
            groups=16,
            warm_start=ImitationConfig(decisions=500_000, instances=32, moves_per_job=1000),
            ppo=plans,
        )
    if head == "dag":
        return TrainConfig(
            scenario,
            sizes=((12, 3), (20, 4), (16, 4), (30, 6)),
            warm_start=ImitationConfig(decisions=900_000, moves_per_job=3000),
            ppo=plans,
        )
    if head == "upmsp":
        return TrainConfig(
            scenario,
            sizes=((12, 3), (20, 5), (16, 5), (30, 6)),
            warm_start=ImitationConfig(decisions=900_000, moves_per_job=4000),
            ppo=plans,
        )
    online = PPOConfig(learning_rate=3e-4, batch_size=4096, gae_lambda=0.95, ent_coef=0.0005)
    if head in ("gpu-cluster", "gpu-cluster-noisy"):
        return TrainConfig(
            scenario,
            sizes=((24, 3), (32, 4)),
            timesteps=1_400_000,
            groups=64,
            repeats=16,
            eval_freq=150_000,
            eval_count=150,
            warm_start=ImitationConfig(decisions=200_000, teacher="ect-wait"),
            ppo=dataclasses.replace(online, learning_rate=4e-4),
        )
    if head == "gpu-cluster-single":
        return TrainConfig(
            scenario,
            sizes=((20, 6), (30, 8)),
            timesteps=4_000_000,
            groups=64,
            repeats=16,
            eval_freq=250_000,
            eval_count=150,
            warm_start=ImitationConfig(decisions=400_000, teacher="allox"),
            ppo=online,
        )
    if head == "own":
        return TrainConfig(
            scenario,
            timesteps=900_000,
            groups=64,
            repeats=16,
            warm_start=ImitationConfig(decisions=100_000, teacher="ect-wait"),
            ppo=online,
        )
    return TrainConfig(scenario, warm_start=ImitationConfig(decisions=200_000))
