"""Networks, and instances to show them, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hetsched.envs.features import observe
from hetsched.gnn.network import SchedulingNetwork
from hetsched.tests.envs.instances import random_instance

if TYPE_CHECKING:
    from hetsched.envs.instance import Instance
    from hetsched.envs.simulator import State
    from hetsched.gnn.config import NetworkConfig

KINDS: dict[str, dict[str, bool]] = {
    "plain": {},
    "precedence": {"precedence": True},
    "lags": {"precedence": True, "lags": True, "releases": True},
    "capacity": {"shared": True, "releases": True},
    "parallel": {"parallel": True},
    "set-ups": {"setups": True, "releases": True},
}
DECIDING = pytest.mark.parametrize("deciding", ["plan", "dispatch"])
KIND = pytest.mark.parametrize("kind", KINDS)


def draw(kind: str, seed: int = 0, jobs: int = 6, machines: int = 3) -> Instance:
    """Some pairs of it are not eligible."""
    return random_instance(np.random.default_rng(seed), jobs=jobs, machines=machines, **KINDS[kind])


def score(network: SchedulingNetwork, state: State) -> Tensor:
    with torch.no_grad():
        return network(observe(state))[0]


def assert_same(found: Tensor, expected: Tensor, least: int = 2) -> None:
    """Equal, minus infinity and NaN included, and among them ``least`` different scores."""
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert len(expected[expected.isfinite()].unique()) >= least, "nothing to tell apart"


def lively_network(seed: int = 0, config: NetworkConfig | None = None) -> SchedulingNetwork:
    """A network whose last layers, zero by default, are random: its scores can differ."""
    torch.manual_seed(seed)
    network = SchedulingNetwork(config)
    for last in (network.mode_score, network.wait_score[-1], network.value[-1]):
        nn.init.normal_(last.weight)
        nn.init.normal_(last.bias)
    return network.eval()
