"""rcmax: the class U(1, 100), against the benchmark sets and a drift alarm."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from hetsched.envs.files import load_set
from hetsched.envs.objective import Objective
from hetsched.envs.scenarios import get_scenario, sample_instances

# SHA-256 of instance 0 of seed 0 at 20 x 4; see test_hitzges.py.
FIRST = "e114b9ffa3e7b5f33d36115880f8b16225a318662b8afb55ad50f83da828da31"


def test_durations_are_all_whole_numbers_from_1_to_100_alike() -> None:
    times = np.concatenate(
        [one.matrix().ravel() for one in sample_instances(get_scenario("rcmax"), 50, seed=0)]
    )
    values, counts = np.unique(times, return_counts=True)
    assert values.tolist() == list(range(1, 101))
    expected = len(times) / 100
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


def test_the_makespan_alone_counts() -> None:
    scenario = get_scenario("rcmax")
    assert scenario.objective == Objective(makespan=1.0)
    assert scenario.deciding == "plan"


@pytest.mark.parametrize("size", ["20x4", "50x10", "100x10", "100x20", "200x20", "500x50"])
def test_the_mean_duration_agrees_with_the_benchmark_set(data_dir: Path, size: str) -> None:
    theirs = np.concatenate([one.matrix().ravel() for one in load_set(
        data_dir / "rcmax" / f"{size}.npz").instances])  # fmt: skip
    assert (theirs.min(), theirs.max()) == (1, 100)
    deviation = np.sqrt((100**2 - 1) / 12)
    assert abs(theirs.mean() - 50.5) < 4 * deviation / np.sqrt(len(theirs))


def test_the_first_instance_is_what_it_always_was() -> None:
    instance = sample_instances(get_scenario("rcmax"), 1, seed=0, num_jobs=20, num_machines=4)[0]
    assert hashlib.sha256(instance.matrix().astype("<i8").tobytes()).hexdigest() == FIRST
