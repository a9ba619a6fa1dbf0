"""The Ray executor on a real cluster of three nodes of this computer, with logical GPUs.

One cluster for all tests: the head has only CPUs, one node has two "v100", one has an "a100".
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hetsched.agents.rules import make_rule
from hetsched.executor import ray_executor
from hetsched.executor.adapter import Silent, run_queue
from hetsched.executor.protocol import Attempt, Executor, Machine
from hetsched.executor.queue import Job, Mode, Queue
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

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")
pytestmark = pytest.mark.slow
STORE = 80 * 2**20
PATIENCE = 180.0  # seconds; a busy computer starts a worker in some of them
AGENTS = (
    "metrics_agent_port", "metrics_export_port", "runtime_env_agent_port",
    "dashboard_agent_listen_port",
)  # fmt: skip


def add_node(cluster: Any, **options: object) -> Any:
    """A node whose agents have their ports."""
    with contextlib.ExitStack() as stack:
        holders = [stack.enter_context(socket.create_server(("", 0))) for _ in AGENTS]
        ports = [holder.getsockname()[1] for holder in holders]
    return cluster.add_node(
        **options, object_store_memory=STORE, **dict(zip(AGENTS, ports, strict=True))
    )


def add_gpus(cluster: Any, kind: str, count: int) -> Any:
    return add_node(cluster, num_cpus=1, num_gpus=count, resources={f"machine:{kind}": count})


def patient(get_node: Callable[..., Any]) -> Callable[..., Any]:
    """Ray gives a node half a minute to start, which is little on a busy computer."""

    def get(*arguments: Any) -> Any:
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                return get_node(*arguments)
            except RuntimeError:  # it is not there yet
                if time.monotonic() > give_up:
                    raise

    return get


def processes_with(variable: str) -> list[int]:
    """All living processes that were started with this in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and variable.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def without_waiting(start_raylet: Callable[..., Any]) -> Callable[..., Any]:
    """A node gives up when its agent, a Python program, has not told its port within 20 seconds.

    Nobody here asks that port, so it is told beforehand.
    """

    def start(*arguments: Any, **options: Any) -> Any:
        given = inspect.signature(start_raylet).bind(*arguments, **options).arguments
        name = f"{AGENTS[-1]}_{given['node_id']}"
        Path(given["session_dir"], name).write_text(str(given[AGENTS[-1]]), encoding="ascii")
        return start_raylet(*arguments, **options)

    return start


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Everything of Ray's is in a folder of its own, and neither that nor a process is left."""
    from ray._private import services
    from ray.cluster_utils import Cluster

    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(services, "get_node", patient(services.get_node))
        patch.setattr(services, "start_raylet", without_waiting(services.start_raylet))
        patch.setattr(ray_executor, "OPEN_SECONDS", PATIENCE)
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_prestart_worker_first_driver", "0")  # processes that nobody would use
        patch.setenv("RAY_agent_register_timeout_ms", str(int(1000 * PATIENCE)))
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
            gone = wait_until(lambda: not processes_with(f"RAY_TMPDIR={folder}"), seconds=20.0)
            for process in processes_with(f"RAY_TMPDIR={folder}"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        assert gone


class Midway(Silent):
    """Does something when a job whose name is at least so much has started on a machine."""

    def __init__(self, least: int, machine: str, action: Callable[[], None]) -> None:
        self.least, self.machine, self.action = least, machine, action

    def started(self, attempt: Attempt, at: float) -> None:
        if int(attempt.job) >= self.least and attempt.machine == self.machine:
            self.action()


def test_a_node_goes_away_and_comes_back_and_nothing_is_lost(cluster: Any, tmp_path: Path) -> None:
    executor = open_ray(tmp_path / "logs", grace=GRACE)
    with contextlib.closing(executor):
        assert [machine.name for machine in executor.machines] == ["a100-0", "v100-0", "v100-1"]
        assert executor.down() == frozenset()
        modes = (Mode("a100-0", 0.2), Mode("v100-0", 0.4), Mode("v100-1", 0.4))
        ends = tmp_path / "ends"
        stuck = '[ "$HETSCHED_MACHINE" != a100-0 ] || sleep 60; '  # until its node is removed
        jobs = tuple(
            Job(f"{at}", modes, f"{stuck * (at >= 6)}sleep 0.2; echo {at} >> {ends}")
            for at in range(18)
        )
        remove = functools.partial(cluster.remove_node, cluster.a100, allow_graceful=False)
        run = run_queue(
            Queue(jobs, executor.machines),
            make_rule("ect-wait"),
            executor,
            observer=Midway(6, "a100-0", remove),
        )
        assert executor.down() == {"a100-0"}

        names = sorted(job.name for job in jobs)
        assert sorted(ends.read_text().split()) == names  # each has come to its end, and once
        done = [one.attempt.job for one in run.outcomes if one.status == "done"]
        assert sorted(done) == names
        (lost,) = (one for one in run.outcomes if one.status != "done")
        assert (lost.status, lost.attempt.machine) == ("lost", "a100-0")
        assert lost.machine_failed
        assert "went away" in lost.reason
        assert run.last[lost.attempt.job].attempt.number == 2

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
        assert executor.poll(executor.now() + PATIENCE) == []  # first that the machine is away
        assert executor.down() == {"cpu"}
        (outcome,) = executor.poll(executor.now() + PATIENCE)
        assert (outcome.status, outcome.machine_failed) == ("lost", True)
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


def test_a_queue_survives_kill_9_of_its_scheduler_and_no_job_ends_twice(
    cluster: Any, tmp_path: Path
) -> None:
    state, ends, queue = tmp_path / "state", tmp_path / "ends", tmp_path / "queue.yaml"
    ends.touch()
    jobs = [
        f"{{name: job {n}, command: sleep 0.7; echo {n} >> {ends}, durations: {{v100: 1}}}}"
        for n in range(7)
    ]
    queue.write_text("machines: [{name: ignored}]\njobs:\n" + "\n".join(f"  - {j}" for j in jobs))
    where = ("--executor", "ray", "--ray-address", cluster.address, "--policy", "ect-wait")
    command = (sys.executable, "dispatch.py", "run", queue, *where, "--state", state, "--json=-")
    root = Path(__file__).parents[2]
    killed = subprocess.Popen(
        command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        assert wait_until(lambda: len(ends.read_text().split()) >= 2, PATIENCE)
    finally:
        killed.kill()
        killed.wait()
    assert len(ends.read_text().split()) < 7  # the others run or wait
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["executor"] == "ray"
    assert {job["machine"] for job in report["jobs"]} <= {"v100-0", "v100-1"}
    assert [job["status"] for job in report["jobs"]] == ["done"] * 7
    assert sorted(ends.read_text().split()) == [str(n) for n in range(7)]
    assert list((state / "exits").iterdir()) == []


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
