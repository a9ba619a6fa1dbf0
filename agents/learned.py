"""LearnedPolicy: a trained network behind the signature that all policies share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hetsched.envs.features import observe

if TYPE_CHECKING:
    from hetsched.envs.simulator import State
    from hetsched.gnn.network import SchedulingNetwork


class LearnedPolicy:
    """Scores are the network's logits.

    Args:
        network: put into evaluation mode.
        name: how tables call it.
        temperature: at which the best of some tens of samples is best.
    """

    def __init__(
        self, network: SchedulingNetwork, name: str = "learned", temperature: float = 1.0
    ) -> None:
        self.network, self.name, self.temperature = network.eval(), name, temperature
        network.keep_at_hand()

    @torch.inference_mode()
    def scores(self, state: State) -> Tensor:
        """(B, J * K + 1) float32, minus infinity at illegal actions."""
        return self.network.scores(observe(state))
