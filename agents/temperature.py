"""The temperature at which the samples of a policy are best.

Training sharpens a policy: at temperature 1 the samples of one that is nearly sure of itself are
all alike, and those of one that is not wander off. What is best of many is found by trying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetsched.agents.checkpoint import load_checkpoint, save_checkpoint
from hetsched.agents.evaluation import Setting
from hetsched.agents.learned import LearnedPolicy
from hetsched.agents.sampling import BestOfSamples
from hetsched.agents.table import mean_ratio
from hetsched.envs.scenarios import sample_instances

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hetsched.agents.policy import Policy
    from hetsched.envs.scenarios import Scenario

TRIED = (1.0, 0.7, 1.4, 0.5, 2.0, 2.8, 4.0)  # of equals, the first
SAMPLES, MOST = 32, 16  # of each instance; instances of each size
SEED = 3_000_003  # neither of training, nor of validation, nor of the final table


def calibrate(
    path: Path,
    scenario: Scenario,
    sizes: Sequence[tuple[int, int]],
    count: int,
    device: str = "cpu",
) -> None:
    """Write into a checkpoint's metadata the ``temperature`` at which its samples are best.

    In dispatch the best of many samples is hindsight, and nothing is written.

    Args:
        path: of a checkpoint.
        count: instances of each size to try it on, MOST at most.
    """
    if scenario.deciding != "plan":
        return
    checkpoint = load_checkpoint(path)
    policy = LearnedPolicy(checkpoint.network.to(device))
    found = best_temperature(policy, scenario, sizes, min(count, MOST), device)
    save_checkpoint(path, checkpoint.network, {**checkpoint.metadata, "temperature": found})


def best_temperature(
    policy: Policy,
    scenario: Scenario,
    sizes: Sequence[tuple[int, int]],
    count: int,
    device: str = "cpu",
) -> float:
    """Of TRIED, the one whose best of SAMPLES costs least on average, relative to the others.

    Args:
        policy: whose samples.
        sizes: of the instances, each once.
        count: instances of each size, of seeds of their own.
    """
    setting = Setting(scenario.objective, scenario.deciding, device=device)
    ratios = np.zeros(len(TRIED))
    for index, size in enumerate(dict.fromkeys(sizes)):
        instances = sample_instances(scenario, count, SEED + index, *size)
        tried = [BestOfSamples(policy, SAMPLES, temperature) for temperature in TRIED]
        costs = np.stack([one.solve(instances, setting).costs for one in tried])  # (tried, count)
        least = costs.min(axis=0)
        ratios += np.nan_to_num([mean_ratio(one, least)[0] for one in costs])
    return TRIED[int(ratios.argmin())]
