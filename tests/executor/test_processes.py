"""What /proc says of processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hetsched.executor import processes

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


def test_the_environment_of_a_process_is_known_as_soon_as_it_is_started() -> None:
    # Without patience a tenth of these reads find nothing on a busy computer.
    for _ in range(100):
        process = subprocess.Popen(["sleep", "60"], env={"MARK": "here"})
        try:
            assert b"MARK=here" in processes.environment(process.pid)
        finally:
            process.kill()
            process.wait()


def test_a_process_without_an_environment_has_none() -> None:
    with subprocess.Popen(["sleep", "60"], env={}) as process:
        assert processes.environment(process.pid) == [b""]
        process.kill()


def test_the_environment_of_a_process_that_is_gone_is_an_error() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(FileNotFoundError):
        processes.environment(process.pid)
