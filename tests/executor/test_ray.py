"""The Ray executor on a real cluster of three nodes of this computer, with logical GPUs.

One cluster for all tests: the head has only CPUs, one node has two "v100", one has an "a100".
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'hetsched[ray]'")
pytestmark = pytest.mark.slow  # a minute on an idle computer of two cores
STORE = 80 * 2**20
PATIENCE = 120.0  # seconds; a busy computer starts a worker in some of them


def add_node(cluster: Any, **options: object) -> Any:
    """A node; Ray gives it half a minute to start, which a busy computer may need twice."""
    for last in (False, True):
        try:
            return cluster.add_node(**options, object_store_memory=STORE)
        except Exception as error:
            if last or "timed out during startup" not in str(error):
                raise
    raise AssertionError


def add_gpus(cluster: Any, kind: str, count: int) -> Any:
    return add_node(cluster, num_cpus=1, num_gpus=count, resources={f"machine:{kind}": count})


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_prestart_worker_first_driver", "0")  # processes that nobody would use
        made: Any = Cluster()
        # Each of these would be one more Python process to wait for.
        less = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        try:
            add_node(made, num_cpus=4, **less)
            add_gpus(made, "v100", 2)
            made.a100 = add_gpus(made, "a100", 1)
            ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
            yield made
        finally:
            ray.shutdown()
            made.shutdown()


def run_all(
    executor: RayExecutor, jobs: dict[str, float], midway: dict[int, Any], seconds: float = 180.0
) -> list[Outcome]:
    """Run sleeping jobs wherever there is room; again, if their machine goes away.

    Args:
        jobs: seconds that each takes.
        midway: what to call when so many attempts have been started.
    """
    waiting, free = dict(jobs), {machine.name for machine in executor.machines}
    numbers, started, ended = dict.fromkeys(jobs, 0), 0, []
    give_up = executor.now() + seconds
    while waiting or len(free) < len(executor.machines):
        assert executor.now() < give_up, f"{waiting} still wait; down: {executor.down()}"
        for machine in sorted(free - executor.down()):
            if waiting:
                job, length = waiting.popitem()
                numbers[job] += 1
                command = ("sleep", str(length))
                executor.start(Attempt(job, machine, number=numbers[job], command=command))
                free.discard(machine)
                started += 1
                if started in midway:
                    midway[started]()
        for outcome in executor.poll(executor.now() + 1.0):
            free.add(outcome.attempt.machine)
            if outcome.machine_failed:
                waiting[outcome.attempt.job] = jobs[outcome.attempt.job]
            ended.append(outcome)
    return ended


def test_a_node_goes_away_and_comes_back_and_nothing_is_lost(cluster: Any, tmp_path: Path) -> None:
    executor = open_ray(tmp_path, grace=GRACE)
    with contextlib.closing(executor):
        assert [machine.name for machine in executor.machines] == ["a100-0", "v100-0", "v100-1"]
        assert executor.down() == frozenset()
        jobs = {f"job {number}": 0.4 for number in range(20)}
        remove = functools.partial(cluster.remove_node, cluster.a100, allow_graceful=False)
        ended = run_all(executor, jobs, {7: remove})  # the first of its round, on the a100
        assert executor.down() == {"a100-0"}

        lost = [one for one in ended if one.status == "lost"]
        assert [one.attempt.machine for one in lost] == ["a100-0"]
        assert lost[0].machine_failed
        assert "went away" in lost[0].reason
        done = [one.attempt.job for one in ended if one.status == "done"]
        assert sorted(done) == sorted(jobs)  # every job once

        executor.start(Attempt("x", "a100-0", command=("true",)))  # a race that the caller lost
        assert [one.machine_failed for one in executor.poll()] == [True]

        cluster.a100 = add_gpus(cluster, "a100", 1)
        give_up = executor.now() + PATIENCE
        while executor.down():
            assert executor.poll(give_up) == []  # returns early: something has changed
            assert executor.now() < give_up
        executor.start(Attempt("x", "a100-0", number=2, command="echo back"))
        (outcome,) = executor.poll()
        assert outcome.status == "done"


def test_an_actor_that_is_killed_takes_its_jobs_along_and_is_replaced(
    cluster: Any, tmp_path: Path
) -> None:
    executor = open_ray(tmp_path, (Machine("cpu"),), grace=GRACE)
    with contextlib.closing(executor):
        pids = tmp_path / "pids"
        command = f"trap '' TERM; setsid sleep 60 & echo $PPID $$ > {pids}; sleep 60"
        executor.start(Attempt("a", "cpu", command=command))
        actor, job = numbers_in(pids, 2)
        os.kill(actor, signal.SIGKILL)
        (outcome,) = executor.poll(executor.now() + PATIENCE)
        assert (outcome.status, outcome.machine_failed) == ("lost", True)
        assert executor.down() == {"cpu"}
        assert wait_until(lambda: not is_alive(job))
        give_up = executor.now() + PATIENCE
        while executor.down() and executor.now() < give_up:
            executor.poll(give_up)
        executor.start(Attempt("a", "cpu", number=2, command=("true",)))
        assert executor.poll()[0].status == "done"


DRIVER = """
import sys
from hetsched.executor.protocol import Attempt, Machine
from hetsched.executor.ray_executor import open_ray
address, folder = sys.argv[1:]
executor = open_ray(folder, (Machine("cpu"),), address)
command = f"trap '' TERM; sleep 60 & echo $$ $! > {folder}/pids; wait; sleep 60"
executor.start(Attempt("a", "cpu", command=command))
executor.poll()
"""


def test_the_jobs_of_a_scheduler_that_is_killed_end(cluster: Any, tmp_path: Path) -> None:
    command = (sys.executable, "-c", DRIVER, cluster.address, os.fspath(tmp_path))
    driver = subprocess.Popen(command)
    try:
        assert wait_until(lambda: (tmp_path / "pids").exists(), seconds=120.0)
        processes = numbers_in(tmp_path / "pids", 2)
        assert all(is_alive(pid) for pid in processes)
    finally:
        driver.kill()
        driver.wait()
    assert wait_until(lambda: not any(is_alive(pid) for pid in processes), seconds=60.0)


def test_on_a_cluster_of_our_own_devices_are_taken_literally(cluster: Any, tmp_path: Path) -> None:
    machine = Machine("g", "any", "gpu", ("GPU-0a1b", "GPU-2c3d"), capacity=2)
    executor = RayExecutor((machine,), tmp_path, GRACE, own_devices=True, opened=7.0)
    with contextlib.closing(executor):
        assert 7.0 <= executor.now() < 17.0
        executor.start(Attempt("a", "g", demand=2, command="echo $CUDA_VISIBLE_DEVICES"))
        (outcome,) = executor.poll()
        assert outcome.log is not None
        assert Path(outcome.log).read_text() == "GPU-0a1b,GPU-2c3d\n"


def test_a_machine_that_the_cluster_has_not_is_down(cluster: Any, tmp_path: Path) -> None:
    big = Machine("big", "h100", "gpu", ("0",))
    with pytest.raises(RayUnavailable, match=r"type 'h100' such as 'big'.* offers .*2 v100 GPUs"):
        open_ray(tmp_path, (big,))
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
    executor = open_ray(tmp_path, (Machine("cpu"), big))
    with contextlib.closing(executor):
        assert executor.down() == {"big"}


def test_dispatch_runs_a_queue_on_the_gpus_of_a_cluster(cluster: Any, tmp_path: Path) -> None:
    jobs = [f"{{name: job {n}, command: sleep 0.2, durations: {{v100: 1}}}}" for n in range(5)]
    queue = tmp_path / "queue.yaml"
    lines = "\n".join(f"  - {job}" for job in jobs)
    queue.write_text(f"machines: [{{name: ignored}}]\njobs:\n{lines}\n")
    arguments = ("--executor", "ray", "--ray-address", cluster.address, "--policy", "ect-wait")
    done = subprocess.run(
        (sys.executable, "dispatch.py", queue, *arguments, "--state", tmp_path / "s", "--json=-"),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["executor"] == "ray"
    used = {job["machine"] for job in report["jobs"]}
    assert used <= {"v100-0", "v100-1"}
    assert [job["status"] for job in report["jobs"]] == ["done"] * 5


@pytest.mark.parametrize("check", OPENING, ids=lambda check: check.__name__)
def test_ray_is_opened_and_closed_as_promised(check: Check, cluster: Any, tmp_path: Path) -> None:
    def another(wake: int | None) -> Executor:
        return open_ray(tmp_path / "logs", MACHINES[:2], grace=GRACE, wake=wake)

    check(Subject(None, another, tmp_path))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def shared(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayExecutor]:
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
