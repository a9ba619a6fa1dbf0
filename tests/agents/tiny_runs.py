"""Training runs of a second or two, and ways of stopping them."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch

from hetsched.agents.checkpoint import load_checkpoint
from hetsched.agents.configs import ImitationConfig, PPOConfig
from hetsched.agents.metrics import read_rows
from hetsched.agents.recipe import TrainConfig
from hetsched.agents.training import Progress, Trainer, closing
from hetsched.gnn.config import NetworkConfig


def tiny(**values) -> TrainConfig:
    """Six rounds of warm start, six rollouts of PPO."""
    options = {
        "sizes": ((3, 2), (4, 2)),
        "timesteps": 144,
        "groups": 2,
        "repeats": 2,
        "eval_freq": 80,
        "eval_count": 3,
        "network": NetworkConfig(hidden=8, layers=1, heads=2),
        "warm_start": ImitationConfig(
            decisions=168, instances=8, moves_per_job=20, batch_size=16, epochs=1
        ),
        "ppo": PPOConfig(n_steps=6, batch_size=12, n_epochs=1),
        **values,
    }
    return TrainConfig(options.pop("scenario", "hitzges"), **options)


class Stop(Exception):
    """What a :class:`Stopper` ends a run with."""


class Stopper(Progress):
    """Ends the run after so many rounds, before that round is saved."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def advance(self, done: int, values: Mapping[str, float]) -> None:
        self.left -= 1
        if self.left == 0:
            raise Stop


class Slow(Progress):
    """Leaves somebody else time to kill the run."""

    def advance(self, done: int, values: Mapping[str, float]) -> None:
        time.sleep(0.1)


def run_tiny(folder: Path, config: TrainConfig | None = None, **options) -> Trainer:
    """One run to its end, or to its stop."""
    trainer = Trainer(config or tiny(), folder, **options)
    with closing(trainer):
        trainer.run()
    return trainer


def weights(folder: Path, name: str = "last") -> torch.Tensor:
    """All weights of a checkpoint of a run."""
    network = load_checkpoint(folder / f"{name}.safetensors").network
    return torch.cat([value.flatten() for value in network.state_dict().values()])


def rows_without_clock(folder: Path) -> list[dict[str, str]]:
    """The metrics of a run but for the seconds that it took."""
    rows = read_rows(folder / "metrics.csv")
    return [{name: cell for name, cell in row.items() if name != "seconds"} for row in rows]


if __name__ == "__main__":  # python -m hetsched.tests.agents.tiny_runs FOLDER [resume]
    torch.set_num_threads(1)
    run_tiny(Path(sys.argv[1]), resume="resume" in sys.argv, progress=Slow(), save_seconds=0.2)
