"""dag: the graphs and the due times are what the description says."""

import hashlib
import math

import numpy as np
import pytest

from hetsched.envs.objective import Objective
from hetsched.envs.scenarios import get_scenario, sample_instances
from hetsched.envs.scenarios.dag import sample_factors

# SHA-256 of instance 0 of seed 0 at 20 x 4; see test_hitzges.py.
FIRST = "45d8980f12773f75e53685dc2524317353bd914cc41154371a365ea8bdfc01ca"
FACTORS = {"density": 0.4, "tau": 0.2, "R": 0.6}


def layers(jobs: int, arcs: np.ndarray) -> np.ndarray:
    """Layer of each job, from the arcs alone."""
    layer = np.zeros(jobs, np.int64)
    for before, after in arcs.T.tolist():
        layer[after] = max(layer[after], layer[before] + 1)
    return layer


@pytest.mark.parametrize("jobs", [1, 2, 5, 20, 50])
def test_arcs_join_consecutive_layers_and_none_is_left_without_a_predecessor(jobs: int) -> None:
    for seed in range(10):
        arcs = sample_factors(np.random.default_rng(seed), jobs, 4, **FACTORS).precedence
        layer = layers(jobs, arcs)
        assert (np.diff(layer) >= 0).all()  # jobs are listed by layer
        assert layer.max() + 1 == max(1, round(math.sqrt(jobs)))
        assert (layer[arcs[1]] == layer[arcs[0]] + 1).all()
        assert set(np.flatnonzero(layer > 0).tolist()) == set(arcs[1].tolist())


@pytest.mark.parametrize("density", [0.1, 0.4])
def test_the_density_is_the_share_of_possible_arcs(density: float) -> None:
    found = possible = orphans = 0
    for seed in range(40):
        one = sample_factors(np.random.default_rng(seed), 50, 6, density, 0.2, 0.6)
        layer = layers(50, one.precedence)
        sizes = np.bincount(layer)
        found += one.precedence.shape[1]
        possible += int((sizes[:-1] * sizes[1:]).sum())
        # Each of the next layer's jobs has no arc by chance with this probability.
        orphans += float((sizes[1:] * (1 - density) ** sizes[:-1]).sum())
    expected = density * possible + orphans
    assert abs(found - expected) < 4 * math.sqrt(density * (1 - density) * possible)


def test_only_the_first_layer_is_released_later() -> None:
    late = 0
    for seed in range(20):
        one = sample_factors(np.random.default_rng(seed), 30, 5, **FACTORS)
        layer = layers(30, one.precedence)
        assert (one.release_times[layer > 0] == 0).all()
        late += int((one.release_times[layer == 0] > 0).sum())
        work = (1 / (1 / one.matrix()).sum(1)).sum()
        assert one.release_times.max() <= work / 4
    assert late > 40


def test_due_times_follow_the_earliest_ends() -> None:
    shares = []
    for seed in range(30):
        one = sample_factors(np.random.default_rng(seed), 40, 4, **FACTORS)
        fastest = one.matrix().min(1)
        earliest = one.release_times + fastest
        for job in range(40):  # listed by layer: predecessors first
            for before in one.precedence[0][one.precedence[1] == job]:
                earliest[job] = max(earliest[job], earliest[before] + fastest[job])
        work = (1 / (1 / one.matrix()).sum(1)).sum()
        pace = 1.5 * max(1.0, work / earliest.max())
        assert (one.due_times <= earliest * pace * 1.1 + 1e-9).all()
        assert (one.due_times > earliest * pace * 0.5 - 1).all()
        shares.append((one.due_times / (earliest * pace)).mean())
    assert np.mean(shares) == pytest.approx(0.8, abs=0.02)


def test_a_larger_tau_leaves_less_time() -> None:
    loose, tight = (
        sample_factors(np.random.default_rng(1), 20, 4, 0.4, tau, 0.6) for tau in (0.2, 0.5)
    )
    assert np.array_equal(loose.matrix(), tight.matrix())
    assert (tight.due_times < loose.due_times).all()


@pytest.mark.parametrize("option", ["density=1.5", "tau=2", "R=-1"])
def test_a_factor_out_of_range_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match=f"option {option.split('=')[0]!r} must be"):
        get_scenario(f"dag:{option}")


def test_options_fix_factors() -> None:
    full = sample_instances(get_scenario("dag:density=1"), 3, 0, 16, 2)
    for one in full:
        sizes = np.bincount(layers(16, one.precedence))
        assert one.precedence.shape[1] == (sizes[:-1] * sizes[1:]).sum()


def test_weighted_tardiness_alone_counts() -> None:
    assert get_scenario("dag").objective == Objective(weighted_tardiness=1.0)


def test_the_first_instance_is_what_it_always_was() -> None:
    one = sample_instances(get_scenario("dag"), 1, seed=0, num_jobs=20, num_machines=4)[0]
    arrays = (one.processing_times, one.release_times, one.due_times, one.weights, one.precedence)
    values = np.concatenate([array.ravel() for array in arrays]).astype("<i8")
    assert hashlib.sha256(values.tobytes()).hexdigest() == FIRST
