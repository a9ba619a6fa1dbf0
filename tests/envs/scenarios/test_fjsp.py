"""fjsp: the distributions of SD1 and SD2, against the published files and a drift alarm."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from hetsched.envs.benchmark_files import load_benchmark
from hetsched.envs.fjs import load_fjs, save_fjs
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.scenarios import get_scenario, sample_instances

# SHA-256 of instance 0 of seed 0 at 10 x 5 of each set; see test_hitzges.py.
FIRST = {
    "sd1": "166ca0c4a4276ed3031530bfd6a2a273dccc4056251388317b3036f4e0b3ad87",
    "sd2": "887284ea11e2e686867cc25702cea84b84ca570a77f3dde938252f476b6b5659",
}
FOLDERS = {"sd1": "SD1/10x5", "sd2": "SD2/10x5+mix"}


def chain_lengths(instance: Instance) -> np.ndarray:
    """Operations of each job."""
    firsts = np.setdiff1d(np.arange(instance.num_jobs), instance.precedence[1])
    return np.diff(np.append(firsts, instance.num_jobs))


def statistics(instances: list[Instance] | tuple[Instance, ...]) -> dict[str, np.ndarray]:
    """(instances,) means of what is drawn."""
    spread = []
    for one in instances:
        first = np.searchsorted(one.mode_jobs, np.arange(one.num_jobs))
        most = np.maximum.reduceat(one.processing_times, first)
        least = np.minimum.reduceat(one.processing_times, first)
        spread.append((most / least).mean())
    return {
        "operations": np.array([chain_lengths(one).mean() for one in instances]),
        "machines": np.array([one.num_modes / one.num_jobs for one in instances]),
        "duration": np.array([one.processing_times.mean() for one in instances]),
        "square": np.array([(one.processing_times**2).mean() for one in instances]),
        "spread": np.array(spread),
    }


def test_sd1_stays_within_its_bounds() -> None:
    lengths, longest = set(), 0.0
    for instance in sample_instances(get_scenario("fjsp:set=sd1"), 100, seed=0):
        sizes = chain_lengths(instance)
        assert len(sizes) == 10
        lengths |= set(sizes.tolist())
        longest = max(longest, instance.processing_times.max())
        for job in range(instance.num_jobs):
            durations = instance.processing_times[instance.mode_jobs == job]
            # Both ends of the band around some mean, rounded outwards
            assert durations.max() <= 1.2 / 0.8 * durations.min() + 1.25
    assert lengths == {4, 5, 6}
    assert longest == 20


def test_sd2_has_as_many_operations_as_machines_and_unrelated_durations() -> None:
    for instance in sample_instances(get_scenario("fjsp:set=sd2"), 20, 0, 4, 7):
        assert chain_lengths(instance).tolist() == [7] * 4
        assert 1 <= instance.processing_times.min() < instance.processing_times.max() <= 99


def test_plain_fjsp_draws_both_sets() -> None:
    longest = [one.processing_times.max() for one in sample_instances(get_scenario("fjsp"), 40, 0)]
    assert 10 < sum(value > 20 for value in longest) < 30


@pytest.mark.parametrize("kind", ["sd1", "sd2"])
def test_the_means_agree_with_the_published_files(data_dir: Path, kind: str) -> None:
    theirs = statistics(load_benchmark(data_dir / "fjsp" / FOLDERS[kind]).instances)
    ours = statistics(sample_instances(get_scenario(f"fjsp:set={kind}"), 300, seed=1))
    for name, their in theirs.items():
        # The published SD1 files repeat ten vectors of operations ten times each.
        count = 10 if (name, kind) == ("operations", "sd1") else len(their)
        error = np.sqrt(their.var() / count + ours[name].var() / len(ours[name]))
        assert abs(their.mean() - ours[name].mean()) <= 3.5 * error, name


def test_an_instance_is_a_job_shop_that_fjs_can_hold(tmp_path: Path) -> None:
    for index, instance in enumerate(sample_instances(get_scenario("fjsp"), 4, seed=2)):
        save_fjs(tmp_path / f"{index}.fjs", instance)
        assert load_fjs(tmp_path / f"{index}.fjs").same_as(instance)


def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(ValueError, match="option 'set' must be one of sd1, sd2, got 'sd3'"):
        get_scenario("fjsp:set=sd3")


def test_the_makespan_alone_counts() -> None:
    assert get_scenario("fjsp").objective == Objective(makespan=1.0)


@pytest.mark.parametrize("kind", ["sd1", "sd2"])
def test_the_first_instance_is_what_it_always_was(kind: str) -> None:
    one = sample_instances(get_scenario(f"fjsp:set={kind}"), 1, 0, 10, 5)[0]
    arrays = (one.mode_jobs, one.mode_machines, one.processing_times, one.precedence)
    values = np.concatenate([array.ravel() for array in arrays]).astype("<i8")
    assert hashlib.sha256(values.tobytes()).hexdigest() == FIRST[kind]
