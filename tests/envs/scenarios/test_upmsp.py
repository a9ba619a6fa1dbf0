"""upmsp: the formulas of the generator hold, exactly, for the benchmark sets and for ours."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from hetsched.envs.files import load_set
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.scenarios import get_scenario, sample_instances
from hetsched.envs.scenarios.upmsp import LEVELS, sample_factors

SIZES = ("20x5", "50x10", "100x15")
# SHA-256 of instance 0 of seed 0 at 20 x 5; see test_hitzges.py.
FIRST = "86e5e4874f8b17741b4c0b3ec62054712e8d290323e74ff1ee0c309a7628f474"


def positions(
    processing: np.ndarray, eligible: np.ndarray, instance: Instance, factors: Mapping[str, float]
) -> dict[str, np.ndarray]:
    """Where each drawn number lies between its inclusive bounds; outside of 0..1: not in them.

    Due times are rounded down, so that the bounds of the formula are rounded down too.
    """
    jobs, machines = processing.shape
    mean = processing.mean()
    own = np.array([row[mask].mean() for row, mask in zip(processing, eligible, strict=True)])
    slack = instance.due_times - instance.release_times
    low = np.floor(own * (1 - factors["tau"] - factors["R"] / 2))
    high = np.floor(own * (1 - factors["tau"] + factors["R"] / 2))
    kept = high > low
    assert instance.setup_times is not None
    return {
        "release": instance.release_times / np.floor(jobs * mean / (2 * machines)),
        "setup": instance.setup_times / np.floor(factors["beta"] * mean),
        "slack": ((slack - low) / (high - low))[kept],
        "weight": (instance.weights - 1) / 9,
        "eligible": eligible.sum(1) - np.ceil(factors["delta"] * machines),
    }


def check(found: dict[str, np.ndarray]) -> None:
    for name in ("release", "setup", "slack", "weight"):
        values = found[name]
        assert values.min() >= 0, name
        assert values.max() <= 1, name
        # Uniform: mean 1/2, variance a little above 1/12; rounding moves a mean by less than 0.05.
        assert abs(values.mean() - 0.5) < 0.05 + 4 * 0.35 / np.sqrt(values.size), name
        assert values.min() < 0.1, name
        assert values.max() > 0.9, name
    assert (found["eligible"] == 0).all()


@pytest.mark.parametrize("size", SIZES)
def test_the_benchmark_sets_follow_the_formulas(data_dir: Path, size: str) -> None:
    path = data_dir / "upmsp" / f"{size}.npz"
    known = load_set(path)
    with np.load(path, allow_pickle=False) as arrays:
        processing, eligible = arrays["processing_times"], arrays["eligible"]
    parts = [
        positions(processing[i], eligible[i], one, {k: v[i] for k, v in known.factors.items()})
        for i, one in enumerate(known.instances)
    ]
    check({name: np.concatenate([part[name].ravel() for part in parts]) for name in parts[0]})
    for name, levels in LEVELS.items():
        assert set(known.factors[name].round(9).tolist()) == set(levels)


@pytest.mark.parametrize("delta", [0.75, 1.0])
@pytest.mark.parametrize("tau", [0.2, 0.6])
def test_our_instances_follow_the_same_formulas(tau: float, delta: float) -> None:
    factors = {"tau": tau, "R": 0.6, "beta": 0.25, "delta": delta}
    parts = []
    for seed in range(40):
        instance = sample_factors(np.random.default_rng(seed), 20, 5, **factors)
        eligible = np.isfinite(instance.matrix())
        assert (eligible.sum(1) == np.ceil(delta * 5)).all()
        if delta == 1.0:  # durations of machines that are not eligible are gone
            parts.append(positions(instance.matrix(), eligible, instance, factors))
        assert (instance.release_times == np.round(instance.release_times)).all()
        assert (instance.due_times == np.round(instance.due_times)).all()
    if parts:
        check({name: np.concatenate([p[name].ravel() for p in parts]) for name in parts[0]})


@pytest.mark.parametrize("size", SIZES)
def test_means_agree_with_the_benchmark_set(data_dir: Path, size: str) -> None:
    known = load_set(data_dir / "upmsp" / f"{size}.npz")
    jobs, machines = (int(part) for part in size.split("x"))
    ours = [
        sample_factors(np.random.default_rng([i, r]), jobs, machines,
                       **{k: float(v[i]) for k, v in known.factors.items()})
        for i in range(len(known))
        for r in range(3)
    ]  # fmt: skip
    for name in ("processing_times", "release_times", "due_times", "weights", "setup_times"):
        our = np.array([getattr(one, name).mean() for one in ours]).reshape(-1, 3)
        their = np.array([getattr(one, name).mean() for one in known.instances])
        difference = our.mean(1) - their  # same factors: paired
        error = difference.std() / np.sqrt(len(difference))
        assert abs(difference.mean()) < 3.5 * error, name


def test_options_fix_factors() -> None:
    scenario = get_scenario("upmsp:delta=0.5,beta=0.1,tau=0.4,R=0.2")
    for instance in sample_instances(scenario, 5, seed=1):
        assert (np.isfinite(instance.matrix()).sum(1) == 3).all()
        assert instance.setup_times is not None
        assert instance.setup_times.max() <= 6


def test_levels_are_drawn_evenly_per_instance() -> None:
    instances = sample_instances(get_scenario("upmsp"), 200, seed=0)
    full = sum(bool(np.isfinite(one.matrix()).all()) for one in instances)
    assert 70 < full < 130


@pytest.mark.parametrize("option", ["delta=2", "delta=0", "tau=1.5", "beta=-1"])
def test_a_factor_out_of_range_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match=f"option {option.split('=')[0]!r} must be"):
        get_scenario(f"upmsp:{option}")


def test_the_objective_is_tardiness_and_set_ups() -> None:
    assert get_scenario("upmsp").objective == Objective(weighted_tardiness=1.0, setup_time=1.0)


def test_the_first_instance_is_what_it_always_was() -> None:
    one = sample_instances(get_scenario("upmsp"), 1, seed=0, num_jobs=20, num_machines=5)[0]
    assert one.setup_times is not None
    arrays = (one.processing_times, one.mode_machines, one.release_times, one.due_times,
              one.weights, one.setup_times)  # fmt: skip
    values = np.concatenate([array.ravel() for array in arrays]).astype("<i8")
    assert hashlib.sha256(values.tobytes()).hexdigest() == FIRST
