"""Clusters: which GPUs stand together and how much work they can take."""

import numpy as np
import pytest

from hetsched.envs.scenarios import clusters, tables
from hetsched.envs.scenarios.clusters import CLUSTERS, SHARES, fluid_capacity


def capacity(relative: list, demand: list, share: list, units: list) -> float:
    arrays = (np.array(values, dtype=float) for values in (relative, demand, share, units))
    return fluid_capacity(*arrays)


def test_one_kind_of_job_uses_every_machine_at_its_own_speed() -> None:
    assert capacity([[1, 2]], [1], [1], [1, 1]) == pytest.approx(1.5)


def test_kinds_that_fit_different_machines_do_not_share_them() -> None:
    # Each machine does its own kind at speed 1; mixing would cost a factor of four.
    assert capacity([[1, 4], [4, 1]], [1, 1], [0.5, 0.5], [1, 1]) == pytest.approx(2.0)


def test_a_kind_that_runs_on_one_machine_only_is_the_bottleneck() -> None:
    assert capacity([[1, np.inf], [1, 1]], [1, 1], [0.8, 0.2], [1, 9]) == pytest.approx(1.25)


def test_a_gang_of_two_takes_twice_the_units() -> None:
    assert capacity([[1]], [2], [1], [4]) == pytest.approx(2.0)


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda cluster: cluster.name)
def test_the_first_type_runs_every_model_and_the_reference_lasts_as_drawn(
    cluster: clusters.Cluster,
) -> None:
    models, relative = clusters.relative_durations(cluster, cluster.gang)
    assert len(models) == len(tables.speeds(cluster.source, cluster.gang)) >= 7
    assert relative.shape == (len(models), len(cluster.gpus))
    assert np.isfinite(relative[:, 0]).all()
    assert (relative[:, cluster.gpus.index(cluster.reference)] == 1).all()


def test_the_speeds_are_inverted_to_durations() -> None:
    models, relative = clusters.relative_durations(CLUSTERS[0], 1)
    row = tables.speeds("gavel", 1)["CycleGAN"]
    expected = [row["P100"] / row[gpu] for gpu in ("V100", "P100", "K80")]
    assert relative[models.index("CycleGAN")].tolist() == expected


def test_a_model_too_big_for_a_type_has_infinite_duration_there() -> None:
    cluster = clusters.get_cluster("h200-h100-l40s-l4")
    models, relative = clusters.relative_durations(cluster, 1)
    assert np.isinf(relative[models.index("Mixtral 8x7B")][1:]).all()


def test_the_clusters_shares_add_up_to_one() -> None:
    assert sum(SHARES) == pytest.approx(1)
    assert len(SHARES) == len(CLUSTERS)


@pytest.mark.parametrize("num_machines", [1, 2, 3, 4, 12])
def test_counts_add_up_and_hold_one_of_each_type_where_they_can(num_machines: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        counts = clusters.draw_counts(rng, 3, num_machines)
        assert counts.sum() == num_machines
        assert (counts[: min(3, num_machines)] >= 1).all()
