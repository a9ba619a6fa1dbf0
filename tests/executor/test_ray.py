"""The Ray executor on a real cluster of three nodes of this computer, with logical GPUs.

One cluster for all tests: the head has only CPUs, one node has two "v100", one has an "a100".
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hetsched.executor import ray_guard
from hetsched.executor.protocol import Attempt, Executor, Machine, Outcome
from hetsched.executor.ray_cluster import RayUnavailable
from hetsched.executor.ray_executor import RayExecutor, open_ray
from hetsched.tests.executor.conformance import EVERYWHERE, GRACE, MACHINES, Check, Subject
from hetsched.tests.executor.conformance_processes import (
    OPENING,
    PROCESSES,
    is_alive,
    numbers_in,
    wait_until,
)

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'hetsched[ray]'")
STORE = 80 * 2**20


def add_a100(cluster: Cluster) -> Any:
    return cluster.add_node(
        num_cpus=1, num_gpus=1, resources={"machine:a100": 1}, object_store_memory=STORE
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        head = {"num_cpus": 4, "object_store_memory": STORE}
        # Each of these would be one more Python process to wait for.
        head |= {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        made = Cluster(initialize_head=True, head_node_args=head)
        made.add_node(
            num_cpus=1, num_gpus=2, resources={"machine:v100": 2}, object_store_memory=STORE
        )
        made.a100 = add_a100(made)
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture(scope="module")
def shared(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayExecutor]:
    """The conformance suite's machines: two on the head's CPUs, one is the node of two GPUs."""
    executor = open_ray(tmp_path_factory.mktemp("logs"), MACHINES, grace=GRACE)
    with contextlib.closing(executor):
        yield executor


@pytest.mark.parametrize("check", EVERYWHERE + PROCESSES, ids=lambda check: check.__name__)
def test_ray_keeps_the_promises_of_executors(
    check: Check, shared: RayExecutor, tmp_path: Path
) -> None:
    def never(wake: int | None) -> Executor:
        raise AssertionError("opens no other")

    check(Subject(shared, never, tmp_path))
