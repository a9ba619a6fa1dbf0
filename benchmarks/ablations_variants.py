"""The variants of ``benchmarks/ablations.py``: each changes one thing of a base configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hetsched.agents.configs import ImitationConfig, PPOConfig
from hetsched.agents.recipe import TrainConfig
from hetsched.gnn.config import NetworkConfig

SIZES = ((8, 4), (12, 4), (16, 5))
VALIDATIONS = 10  # in a run


def base(seed: int, decisions: int) -> TrainConfig:
    """Half of the decisions warm start, half PPO, on small instances of hitzges.

    Validation is on sizes of training always, whatever a variant trains on.
    """
    return TrainConfig(
        "hitzges",
        sizes=SIZES,
        timesteps=decisions // 2,
        seed=seed,
        groups=32,
        repeats=8,
        eval_freq=max(1, decisions // VALIDATIONS),
        eval_count=100,
        network=NetworkConfig(hidden=32, layers=2),
        warm_start=ImitationConfig(decisions=decisions // 2),
        ppo=PPOConfig(learning_rate=2e-4),
    )


@dataclass(frozen=True)
class Variant:
    """One thing done in another way.

    Attributes:
        name: in tables, and of the run folders.
        says: one line for tables.
        changes: field of the configuration -> value; ``part.field`` for nested ones.
        shares: of the decisions, those of the warm start and of PPO.
        network: which network, see ``ablations_networks``.
        growing: the warm start goes through the sizes once, a third of its decisions on each.
    """

    name: str
    says: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    shares: tuple[float, float] = (0.5, 0.5)
    network: str = "plain"
    growing: bool = False

    def config(self, seed: int, decisions: int) -> TrainConfig:
        """Of a run; the total of decisions is that of the base."""
        warm, ppo = (round(share * decisions) for share in self.shares)
        config = base(seed, decisions)
        config = dataclasses.replace(
            config,
            timesteps=ppo,
            warm_start=dataclasses.replace(config.warm_start, decisions=warm),
        )
        for name, value in self.changes.items():
            part, dot, inner = name.partition(".")
            if dot:
                value = dataclasses.replace(getattr(config, part), **{inner: value})
            config = dataclasses.replace(config, **{part: value})
        if self.growing:
            each = warm // (len(SIZES) * config.warm_start.instances)  # steps of all instances
            rounds = [(size, -(-each // size[0])) for size in SIZES]
            config = dataclasses.replace(
                config, sizes=tuple(size for size, count in rounds for _ in range(count))
            )
        return config


def variants() -> tuple[Variant, ...]:
    """The base first."""
    return (
        Variant("base", "half warm start from annealing, half PPO; 32 channels, 2 layers"),
        Variant("warm start only", "all decisions from the teacher, no PPO", shares=(1.0, 0.0)),
        Variant("PPO only", "no warm start", shares=(0.0, 1.0)),
        Variant(
            "no shared baseline",
            "256 instances once instead of 32 instances 8 times side by side",
            {"groups": 256, "repeats": 1},
        ),
        Variant(
            "PPO only, no baseline",
            "no warm start, and no shared baseline",
            {"groups": 256, "repeats": 1},
            shares=(0.0, 1.0),
        ),
        Variant(
            "PPO paid by outlook",
            "rewards are regrets against the best schedule that annealing sees, not a bound's",
            {"ppo.outlook_moves": 300},
        ),
        Variant(
            "no exploring",
            "the student never walks its own way in the warm start (no DAgger)",
            {"warm_start.explore": 0.0},
        ),
        Variant("rule as teacher", "imitates atc, no annealing", {"warm_start.teacher": "atc"}),
        Variant("one size", "trains on 12 x 4 only", {"sizes": ((12, 4),)}),
        Variant(
            "growing sizes, warm start only",
            "small instances first, then larger ones (a curriculum), no PPO",
            shares=(1.0, 0.0),
            growing=True,
        ),
        Variant("16 channels", "narrower", {"network.hidden": 16}),
        Variant("40 channels", "wider", {"network.hidden": 40}),
        Variant("1 layer", "jobs and machines hear of each other once", {"network.layers": 1}),
        Variant("3 layers", "deeper", {"network.layers": 3}),
        Variant("no edge features", "sees jobs and machines, not modes", network="blind"),
        Variant("residual over atc", "scores are added to atc's own index", network="residual"),
        Variant(
            "residual, PPO only",
            "the same without a warm start: begins as a softened atc",
            shares=(0.0, 1.0),
            network="residual",
        ),
    )
