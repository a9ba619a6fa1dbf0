"""The half of the Ray executor on a node, as a plain object in plain threads: without Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hetsched.executor import ray_guard
from hetsched.executor.exits import Exits
from hetsched.executor.protocol import Attempt, Machine
from hetsched.executor.ray_worker import LOG_BYTES, Worker, given_devices, to_fields
from hetsched.tests.executor.conformance_processes import is_alive, numbers_in, wait_until


class Pipe:
    """A guard's input that nobody closes."""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    return make(tmp_path, monkeypatch, "mark")


def make(folder: Path, monkeypatch: pytest.MonkeyPatch, mark: str, **machine: Any) -> Worker:
    """A worker without a guard (test_a_guard_... has one); the mark is there if named so."""
    monkeypatch.setattr(ray_guard, "start_guard", lambda token: Pipe())
    for name in ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", ray_guard.VARIABLE):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # to be restored afterwards
    monkeypatch.setattr("tempfile.tempdir", os.fspath(folder))
    (folder / "mark").touch()
    fields = {"capacity": 2, **machine}
    return Worker(Machine("m", **fields), os.fspath(folder), mark, os.fspath(folder), True)


def fields_of(command: str, **fields: Any) -> dict[str, Any]:
    return to_fields(Attempt("job", "m", command=command, **fields))


def test_an_attempt_comes_back_with_how_it_ended(worker: Worker, tmp_path: Path) -> None:
    ended = worker.run(1, fields_of("pwd; exit 3"), (0,), 1.0)
    assert (ended.status, ended.exit_code, ended.reason) == ("failed", 3, "exit status 3")
    assert ended.output is None  # the scheduler sees the same folder
    assert ended.log == str(tmp_path / "job.1.log")
    assert Path(ended.log).read_text() == f"{tmp_path}\n"


def test_output_travels_where_no_folder_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make(tmp_path, monkeypatch, "another mark")
    ended = worker.run(1, fields_of("echo hello"), (0,), 1.0)
    assert ended.output == b"hello\n"
    assert ended.log is not None
    assert not Path(ended.log).exists()  # nobody needs it any more
    big = worker.run(2, fields_of("head -c 2000000 /dev/zero; echo end", number=2), (0,), 1.0)
    assert big.log is not None
    assert big.output is not None
    note = f"[the last 1048576 of 2000004 bytes; all are in {big.log}"
    assert big.output.startswith(note.encode())
    assert big.output.endswith(b"\0end\n")
    assert len(big.output) < LOG_BYTES + 300
    assert Path(big.log).stat().st_size == 2_000_004


def test_a_request_that_overtakes_its_attempt_is_kept(worker: Worker) -> None:
    worker.end(1, "preempt", 5.0)
    ended = worker.run(1, fields_of("sleep 30"), (0,), 5.0)
    assert ended.status == "preempted"


def test_attempts_are_told_apart(worker: Worker) -> None:
    with ThreadPoolExecutor() as pool:
        first = pool.submit(worker.run, 1, fields_of("sleep 30"), (0,), 5.0)
        second = pool.submit(worker.run, 2, fields_of("sleep 0.3", number=2), (1,), 5.0)
        worker.end(1, "stop", 5.0)
        assert first.result(10).status == "cancelled"
        assert second.result(10).status == "done"
    worker.end(2, "stop", 0.0)  # has ended: no error


def noting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Worker, Exits]:
    """A worker, and the folder of exit codes that it shares with its scheduler."""
    make(folder, monkeypatch, "mark")
    exits = Exits(folder / "exits", "this queue")
    exits.path("mark", 0).touch()
    machine = Machine("m", capacity=2)
    return Worker(machine, os.fspath(folder), "mark", os.fspath(folder), True, exits), exits


def test_an_exit_code_stays_on_disk_until_the_scheduler_has_committed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, exits = noting(tmp_path, monkeypatch)
    for number, command, code in ((1, "exit 3", 3), (2, "true", 0)):
        ended = worker.run(number, fields_of(command, number=number), (0,), 1.0)
        assert ended.exit_code == code
        noted = exits.read("job", number)
        assert noted is not None
        assert noted[0] == code


def test_exit_codes_are_not_written_where_nobody_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, monkeypatch, "mark")
    exits = Exits(tmp_path / "exits", "this queue")  # without the mark
    folder = os.fspath(tmp_path)
    worker = Worker(Machine("m", capacity=2), folder, "mark", folder, True, exits)
    assert worker.run(1, fields_of("true"), (0,), 1.0).status == "done"
    assert list((tmp_path / "exits").iterdir()) == []


def test_an_attempt_of_a_scheduler_that_was_killed_is_ended_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = noting(tmp_path, monkeypatch)
    new, _ = noting(tmp_path, monkeypatch)
    ready = tmp_path / "ready"
    with ThreadPoolExecutor() as pool:
        command = f"echo 1 >> {ready}; sleep 30"
        first = pool.submit(old.run, 1, fields_of(command, number=1), (0,), 5.0)
        second = pool.submit(old.run, 2, fields_of(command, number=2), (1,), 5.0)
        numbers_in(ready, 2)
        new.settle("job", 1)
        assert first.result(10).exit_code == -signal.SIGKILL
        assert not second.done()
        new.settle("job", 2)
        assert second.result(10).exit_code == -signal.SIGKILL


def test_units_are_devices_or_shares_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make(tmp_path, monkeypatch, "mark", kind="gpu", devices=("a", "b", "c"), capacity=3)
    shared = make(tmp_path, monkeypatch, "mark", kind="gpu", devices=("a",), capacity=3)
    cases = ((node, (0, 2), "a,c"), (node, (1,), "b"), (shared, (1, 2), "a"))
    for worker, units, devices in cases:
        see = fields_of("echo $CUDA_VISIBLE_DEVICES", demand=len(units))
        ended = worker.run(1, see, units, 1.0)
        assert ended.log is not None
        assert Path(ended.log).read_text() == f"{devices}\n"


def test_jobs_do_not_get_the_single_thread_that_ray_gives_actors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import os, sys; os.environ['OMP_NUM_THREADS'] = '1'; os.environ['RAY_JOB_ID'] = '7'\n"
        "from hetsched.executor import ray_worker; ray_worker._restore_environment()\n"
        "print(os.environ.get('OMP_NUM_THREADS'), os.environ.get('RAY_JOB_ID'))"
    )
    for given, seen in (({}, "None"), ({"OMP_NUM_THREADS": "6"}, "6")):
        env = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
        answer = subprocess.run(
            [sys.executable, "-c", script],
            env={**env, **given},
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stdout.split() == [seen, "None"]


def test_devices_are_named_as_ray_names_them_where_no_driver_knows_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class FakeRay:
        @staticmethod
        def get_gpu_ids() -> list[int]:
            return [1, 3]

    monkeypatch.setitem(sys.modules, "ray", FakeRay)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert given_devices() == ("1", "3")


def test_devices_are_uuids_where_the_driver_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeRay:
        @staticmethod
        def get_gpu_ids() -> list[object]:
            return [1, "GPU-x"]

    class FakeNvml:
        NVMLError = RuntimeError
        nvmlInit = nvmlShutdown = staticmethod(lambda: None)
        nvmlDeviceGetHandleByIndex = staticmethod(lambda index: index)
        nvmlDeviceGetUUID = staticmethod(lambda handle: f"GPU-{handle}")

    monkeypatch.setitem(sys.modules, "ray", FakeRay)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml)
    assert given_devices() == ("GPU-1", "GPU-x")


def test_a_guard_kills_what_a_killed_worker_leaves_and_nothing_else(tmp_path: Path) -> None:
    pids, bystander = tmp_path / "pids", subprocess.Popen(("sleep", "60"))
    script = (
        "import os, subprocess, sys, time\n"
        "from hetsched.executor import ray_guard\n"
        "guard = ray_guard.start_guard('secret')\n"
        "os.environ[ray_guard.VARIABLE] = 'secret'\n"
        f"job = 'sleep 60 & echo $! >> {pids}; setsid sleep 60 & echo $$ >> {pids}; wait'\n"
        "subprocess.Popen(('sh', '-c', job), start_new_session=True)\n"
        "time.sleep(60)\n"
    )
    worker = subprocess.Popen((sys.executable, "-c", script))
    try:
        children = numbers_in(pids, 2)
        assert all(is_alive(pid) for pid in children)
        assert wait_until(lambda: len(ray_guard.groups_with("secret")) == 2)  # one by setsid
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        assert wait_until(lambda: not any(is_alive(pid) for pid in children))
        assert wait_until(lambda: not ray_guard.groups_with("secret"))
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_guard_is_nobody_s_child_before_anything_can_start() -> None:
    """Ray kills a worker's children first, and then nobody would be left to act."""
    guard = ray_guard.start_guard("nobody has this one")
    assert guard.returncode == 0
    assert guard.stdin is not None
    guard.stdin.close()


def test_a_vigil_never_ends(worker: Worker) -> None:
    thread = threading.Thread(target=worker.vigil, daemon=True)
    thread.start()
    time.sleep(0.05)
    assert thread.is_alive()
