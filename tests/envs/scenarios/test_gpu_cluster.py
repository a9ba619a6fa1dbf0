"""gpu-cluster and its variants: distribution, load, names, noise, gangs, due times."""

import hashlib

import numpy as np
import pytest

from hetsched.envs.instance import Instance
from hetsched.envs.scenarios import clusters, get_scenario, sample_instances, tables

# SHA-256 of instance 0 of seed 0.  If it changes, earlier results are of other instances.
FIRST = "267c7fdf4f759f6d676f15d321f37f9bf7bdbbd7f6cac4394cc172cd2d1884e3"


def draw(name: str, count: int = 200, **size: int) -> list[Instance]:
    return sample_instances(get_scenario(name), count, 0, **size)


def test_jobs_arrive_over_time_from_zero_on_free_machines() -> None:
    for instance in draw("gpu-cluster-single"):
        assert instance.release_times[0] == 0
        assert (np.diff(instance.release_times) >= 0).all()
        assert instance.release_times[-1] > 0
        assert (instance.machine_available == 0).all()
        assert (instance.capacity == 1).all()
        assert instance.actual_times is None


def test_the_objective_is_the_mean_flow_time_by_dispatch() -> None:
    scenario = get_scenario("gpu-cluster-single")
    assert str(scenario.objective) == "mean(flow_time)"
    assert scenario.deciding == "dispatch"


def test_durations_are_work_over_measured_speed() -> None:
    table = tables.speeds("gavel", 1)
    for instance in draw("gpu-cluster-single:cluster=v100-p100-k80", 20):
        matrix = instance.matrix()
        for job, name in enumerate(instance.job_names):
            model, number = name.rsplit(" #", 1)
            assert int(number) == job
            gpus = [machine.rsplit("-", 1)[0].upper() for machine in instance.machine_names]
            speed = np.array([table[model][gpu] for gpu in gpus])
            work = matrix[job] * speed
            assert work == pytest.approx(work[0], rel=1e-3)  # durations are in milliseconds


def test_durations_on_the_reference_lie_within_a_minute_and_four_hours() -> None:
    seen = [np.inf, 0.0]
    for instance in draw("gpu-cluster-single:cluster=v100-p100-k80", 300):
        gpus = [machine.split("-")[0] for machine in instance.machine_names]
        reference = instance.matrix()[:, gpus.index("p100")]
        seen = [min(seen[0], reference.min()), max(seen[1], reference.max())]
    assert 60 <= seen[0] < 62
    assert 14000 < seen[1] <= 14400


def test_machines_are_named_by_type_and_number() -> None:
    instance = draw("gpu-cluster-single:cluster=v100-p100-k80", 1, num_machines=3)[0]
    assert instance.machine_names == ("v100-0", "p100-0", "k80-0")
    instance = draw("gpu-cluster-single:cluster=h100-l40s-a30-nodes", 1, num_machines=4)[0]
    assert instance.machine_names[-1] == "a30-x8-0"  # a node of eight


def test_every_cluster_comes_up_about_as_often_as_its_share() -> None:
    instances = draw("gpu-cluster-single", 1000, num_jobs=2, num_machines=4)
    for cluster, share in zip(clusters.CLUSTERS, clusters.SHARES, strict=True):
        first = {f"{machine}-0" for machine in cluster.machine_names}
        seen = sum(first <= set(instance.machine_names) for instance in instances)
        assert seen / 1000 == pytest.approx(share, abs=0.06)


def test_the_last_arrival_follows_from_load_and_capacity() -> None:
    cluster = clusters.CLUSTERS[0]
    _, relative = clusters.relative_durations(cluster, 1)
    share = np.full(len(relative), 1 / len(relative))
    capacity = clusters.fluid_capacity(relative, np.ones(len(relative)), share, np.ones(3))
    name = "gpu-cluster-single:cluster=v100-p100-k80,load=0.8"
    for instance in draw(name, 20, num_jobs=12, num_machines=3):
        work = instance.matrix()[:, 1].sum()  # on the reference, a P100
        assert instance.release_times[-1] == pytest.approx(work / (0.8 * capacity), rel=1e-3)


def test_jobs_come_in_bursts() -> None:
    gaps = np.concatenate(
        [
            np.diff(instance.release_times) / np.diff(instance.release_times).mean()
            for instance in draw("gpu-cluster-single")
        ]
    )
    assert gaps.std() > 1.5  # a Poisson stream has 1


def test_the_noisy_variant_hides_durations_that_are_right_on_average() -> None:
    factors = []
    for instance in draw("gpu-cluster-noisy", 300):
        assert instance.actual_times is not None
        factor = instance.actual_times / instance.processing_times
        for job in range(instance.num_jobs):
            mine = factor[instance.mode_jobs == job]
            assert mine == pytest.approx(mine[0])  # the work is misjudged, not a machine
            factors.append(mine[0])
    assert np.mean(factors) == pytest.approx(1.0, abs=0.02)
    assert np.log(factors).std() == pytest.approx(0.3, abs=0.01)


def test_noise_changes_nothing_else() -> None:
    plain, noisy = draw("gpu-cluster-single", 1)[0], draw("gpu-cluster-single:noise=0.3", 1)[0]
    assert (plain.processing_times == noisy.processing_times).all()
    assert (plain.release_times == noisy.release_times).all()


def test_gangs_take_one_two_or_four_gpus_of_nodes_of_four() -> None:
    seen = set()
    for instance in draw("gpu-cluster", 50):
        assert (instance.capacity == 4).all()
        seen |= set(instance.demand.tolist())
        for job in range(instance.num_jobs):
            assert len(set(instance.demand[instance.mode_jobs == job].tolist())) == 1
    assert seen == {1, 2, 4}


def test_gangs_need_a_cluster_that_measured_them() -> None:
    with pytest.raises(ValueError, match="'h200-h100-l40s-l4' has no measured speeds of jobs"):
        get_scenario("gpu-cluster:cluster=h200-h100-l40s-l4")


def test_the_offline_queue_is_known_and_promises_no_job_the_impossible() -> None:
    busy = []
    for instance in draw("gpu-cluster-offline"):
        assert (instance.release_times == 0).all()
        assert (instance.due_times >= instance.matrix().min(axis=1)).all()
        assert np.isfinite(instance.due_times).all()
        assert set(instance.weights.tolist()) <= {1, 2, 4, 8}
        busy.append((instance.machine_available > 0).mean())
    assert np.mean(busy) == pytest.approx(0.5, abs=0.05)
    scenario = get_scenario("gpu-cluster-offline")
    assert str(scenario.objective) == "makespan + weighted_tardiness"
    assert scenario.deciding == "plan"


def test_simultaneous_arrivals_and_a_single_job_are_fine() -> None:
    for instance in draw("gpu-cluster-single", 200, num_jobs=2):
        assert np.isfinite(instance.release_times).all()
    assert draw("gpu-cluster-single", 1, num_jobs=1)[0].release_times.tolist() == [0]


def test_the_first_instance_is_what_it_always_was() -> None:
    instance = draw("gpu-cluster-single", 1)[0]
    values = np.concatenate([instance.processing_times, instance.release_times])
    # Whole milliseconds: the last bits of a platform's arithmetic do not matter.
    milliseconds = np.round(values * 1000).astype("<i8")
    assert hashlib.sha256(milliseconds.tobytes()).hexdigest() == FIRST
