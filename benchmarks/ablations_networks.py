"""Networks that ``benchmarks/ablations.py`` trains beside the plain one, and a clock for runs."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hetsched.agents.training import Progress
from hetsched.envs.graph import MODE_FEATURES, Graph
from hetsched.gnn.network import SchedulingNetwork

if TYPE_CHECKING:
    from hetsched.agents.recipe import TrainConfig
    from hetsched.agents.training import Trainer

URGENCY = MODE_FEATURES.index("urgency")  # half the logarithm of atc's index
OVER_JOB_BEST = MODE_FEATURES.index("end_over_job_best")
START = MODE_FEATURES.index("start")
GATE, SHARPNESS = 20.0, 3.0


class BlindNetwork(SchedulingNetwork):
    """Sees jobs and machines, but nothing of the modes between them save that they exist."""

    def forward(self, graph: Graph) -> tuple[Tensor, Tensor]:
        return super().forward(_without_modes(graph))

    def scores(self, graph: Graph) -> Tensor:
        return super().scores(_without_modes(graph))


def _without_modes(graph: Graph) -> Graph:
    return replace(graph, modes=torch.zeros_like(graph.modes))


class ResidualNetwork(SchedulingNetwork):
    """Adds to the logarithm of the apparent tardiness cost, with atc's gate as a penalty.

    As the last layer starts at zero, an untrained one decides nearly as the rule ``atc:k=2`` does;
    sampled, it draws a mode in proportion to a power of its index.
    """

    def forward(self, graph: Graph) -> tuple[Tensor, Tensor]:
        scores, values = super().forward(graph)
        return scores + _index(graph), values

    def scores(self, graph: Graph) -> Tensor:
        return super().scores(graph) + _index(graph)


def _index(graph: Graph) -> Tensor:
    """(B, J * K + 1); zero for WAIT, which plans never choose."""
    modes = graph.modes
    late = modes[..., OVER_JOB_BEST] + modes[..., START]
    index = (SHARPNESS * 2.0 * modes[..., URGENCY] - GATE * late).flatten(1)
    return torch.cat([index, index.new_zeros(len(index), 1)], dim=1)


NETWORKS: Mapping[str, type[SchedulingNetwork]] = {
    "plain": SchedulingNetwork,
    "blind": BlindNetwork,
    "residual": ResidualNetwork,
}


def use_network(kind: str, config: TrainConfig) -> SchedulingNetwork:
    """Weights to start from; PPO of this process makes its own network of the same kind.

    The class is exchanged in ``agents/ppo.py`` for the rest of the process, because no
    configuration that ships has a use for such networks.
    """
    import hetsched.agents.ppo

    setattr(hetsched.agents.ppo, "SchedulingNetwork", NETWORKS[kind])  # noqa: B010, typed as a class
    torch.manual_seed(config.seed)
    return NETWORKS[kind](config.network)


class CpuSeconds(Progress):
    """Writes the CPU seconds of a run by its decisions, a row after every round.

    Args:
        path: of the CSV; a resumed run adds to it, and of equal steps the last row counts.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._trainer: Trainer | None = None

    def watch(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def advance(self, done: int, values: Mapping[str, float]) -> None:
        if self._trainer is not None:
            with self.path.open("a", encoding="utf-8", newline="") as out:
                csv.writer(out).writerow((self._trainer.steps, f"{self._trainer.cpu_seconds:.3f}"))
