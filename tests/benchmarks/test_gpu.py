"""benchmarks/gpu.py without a GPU: it says so, and runs what needs none."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from hetsched.executor.discovery import discover
from hetsched.tests.benchmarks.loading import load_script

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"


def load() -> ModuleType:
    return load_script("gpu")


@pytest.mark.skipif(bool(discover().devices), reason="there is a GPU here")
def test_without_a_gpu_it_says_so_in_one_sentence_and_exits_with_2() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "there is no GPU to check" in done.stderr


@pytest.mark.slow
def test_the_parts_that_need_no_gpu_pass(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--cpu", "--json", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["device"] is None
    assert {one["name"]: one["passed"] for one in report["checks"]} == dict.fromkeys(
        (
            "discovery", "profile", "out-of-memory retry", "kill", "two jobs sharing",
            "no CUDA in the parent",
        ),
        True,
    )  # fmt: skip
    assert all(one["name"] in done.stdout for one in report["checks"])


def test_a_check_that_fails_keeps_no_other_from_running_and_late_ones_are_not_begun() -> None:
    gpu = load()

    def bad() -> str:
        raise gpu.Failed("the memory is not back")

    def broken() -> str:
        raise KeyError("x")

    soon = time.monotonic() + 0.2

    def good() -> str:
        time.sleep(max(0.0, soon - time.monotonic()) + 0.01)
        return "fine"

    checks = {"bad": bad, "broken": broken, "good": good, "late": lambda: "never"}
    results = gpu.perform(checks, soon)
    assert [(one.name, one.passed, one.detail) for one in results] == [
        ("bad", False, "the memory is not back"),
        ("broken", False, "KeyError: 'x'"),
        ("good", True, "fine"),
        ("late", None, "not begun: the time is up"),
    ]
