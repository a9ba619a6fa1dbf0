"""The examples of other schedulers' snapshots: what they print is what a policy would start."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from hetsched.executor.commands.run_options import parse
from hetsched.executor.queue_file import load_queue

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "schedulers"
SPEEDS = str(FOLDER.parent / "gpu-speeds.csv")


def call(
    name: str, *arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    monkeypatch.chdir(FOLDER)
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_pending_jobs_of_slurm_get_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """gpu01 has one H200 free, gpu02 one L40S (of four, three run), gpu03 is drained."""
    options = ["squeue.json", "nodes.json", "--speeds", SPEEDS, "--policy", "fifo"]
    lines = call("slurm.py", *options, monkeypatch=monkeypatch, capsys=capsys)
    # first come, first served: lm-large to the H200; resnet-sweep-2 wants two; ranker the L40S
    assert lines == [
        "# 1007 post-process is left to Slurm: its comment does not say model=... steps=...",
        "scontrol update JobId=1004 ReqNodeList=gpu01  # lm-large: GPUs: 1, about 125 min",
        "scontrol update JobId=1006 ReqNodeList=gpu02  # ranker: GPUs: 1, about 18 min",
    ]


def test_pending_pods_of_kubernetes_get_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """node-a has one H200 free, node-b two L40S, node-c is cordoned."""
    options = ["cluster.json", "--speeds", SPEEDS, "--policy", "fifo"]
    options += ["--now", "2025-11-30T10:53:20Z"]
    lines = call("kubernetes.py", *options, monkeypatch=monkeypatch, capsys=capsys)
    assert lines[0].startswith("# ads/unmeasured is left to the default scheduler: ")
    assert lines[1:] == [
        "research/lm-large -> node-a  (GPUs: 1, about 125 min)",
        "research/resnet-sweep-2 -> node-b  (GPUs: 2, about 26 min)",
    ]


def test_the_shipped_policy_can_be_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["squeue.json", "nodes.json", "--speeds", SPEEDS]
    lines = call("slurm.py", *options, monkeypatch=monkeypatch, capsys=capsys)
    placed = [line for line in lines if line.startswith("scontrol update")]
    assert 1 <= len(placed) <= 2
    jobs = {one["job_id"]: one for one in json.loads((FOLDER / "squeue.json").read_text())["jobs"]}
    numbers = [int(line.split("JobId=")[1].split()[0]) for line in placed]
    assert all(jobs[number]["job_state"] == ["PENDING"] for number in numbers)


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ("gpu01", ["gpu01"]),
        ("gpu[01-03,07],big1", ["gpu01", "gpu02", "gpu03", "gpu07", "big1"]),
        ("a,b[9-10]", ["a", "b9", "b10"]),
    ],
)
def test_lists_of_nodes_are_read(nodes: str, names: list[str]) -> None:
    assert runpy.run_path(str(FOLDER / "slurm.py"))["hosts"](nodes) == names


def test_the_ten_lines_of_the_documentation_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    text = (FOLDER.parents[1] / "docs" / "library.md").read_text(encoding="utf-8")
    exec(text.split("```python\n")[1].split("```")[0], {})
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("bert: ")


def test_the_unit_of_systemd_calls_the_command_with_options_that_it_has() -> None:
    unit = (FOLDER.parent / "systemd" / "hetsched.service").read_text(encoding="utf-8")
    (line,) = [one for one in unit.splitlines() if one.startswith("ExecStart=")]
    command, *arguments = line.removeprefix("ExecStart=").split()
    assert command.endswith("/hetsched-dispatch")
    options = parse(arguments[1:])
    assert (arguments[0], options.queue, options.stay, options.web) == (
        "run",
        "queue.yaml",
        True,
        8765,
    )
    stop = [one for one in unit.splitlines() if one.startswith("TimeoutStopSec=")]
    queue = load_queue(FOLDER.parent / "gpu-queue.yaml")
    assert float(stop[0].partition("=")[2]) > queue.grace
