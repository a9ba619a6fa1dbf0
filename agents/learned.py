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
    """

    def __init__(self, network: SchedulingNetwork, name: str = "learned") -> None:
        self.network, self.name = network.eval(), name
        network.keep_at_hand()

    @torch.inference_mode()
    def scores(self, state: State) -> Tensor:
        """(B, J * K + 1) float32, minus infinity at illegal actions."""
        return self.network.scores(observe(state))
