"""Networks for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from hetsched.gnn.network import SchedulingNetwork

if TYPE_CHECKING:
    from hetsched.gnn.config import NetworkConfig


def lively_network(seed: int = 0, config: NetworkConfig | None = None) -> SchedulingNetwork:
    """A network whose last layers, zero by default, are random: its scores can differ."""
    torch.manual_seed(seed)
    network = SchedulingNetwork(config)
    for last in (network.mode_score, network.wait_score[-1], network.value[-1]):
        nn.init.normal_(last.weight)
        nn.init.normal_(last.bias)
    return network.eval()
