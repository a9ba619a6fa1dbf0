"""benchmarks/sim_vs_local.py: the queue sleeps as long as it says, and both makespans are told."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from hetsched.agents.rules import make_rule
from hetsched.tests.benchmarks.loading import load_script


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return load_script("sim_vs_local")


def test_jobs_are_unrelated_and_their_commands_sleep_what_their_modes_say(
    bench: ModuleType, tmp_path: Path
) -> None:
    queue = bench.make_queue(50, seed=1)
    seconds = [[mode.seconds for mode in job.modes] for job in queue.jobs]
    assert all(0.2 <= one <= 2.0 for row in seconds for one in row)
    assert len({one for row in seconds for one in row}) > 150
    assert {row.index(min(row)) for row in seconds} == {0, 1, 2, 3}
    sleep = tmp_path / "sleep"
    sleep.write_text("#!/bin/sh\necho $1\n")
    sleep.chmod(0o755)
    for mode in queue.jobs[0].modes:
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HETSCHED_MACHINE": mode.machine}
        told = subprocess.run(
            queue.jobs[0].command, shell=True, env=env, capture_output=True, text=True, check=True
        )
        assert float(told.stdout) == mode.seconds


def test_the_same_seed_gives_the_same_queue_and_another_another(bench: ModuleType) -> None:
    assert bench.make_queue(5, 1) == bench.make_queue(5, 1) != bench.make_queue(5, 2)


def test_a_short_queue_ends_when_the_simulation_says(bench: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    few = ["--jobs", "5", "--seeds", "1", "--policy", "spt", "--asked", "200", "--out", str(out)]
    with pytest.raises(SystemExit) as end:
        bench.main(few)
    assert end.value.code == 0
    (figure,) = json.loads(out.read_text())["figures"]
    assert figure["policy"] == make_rule("spt").name
    assert figure["local"] >= 0.99 * figure["simulated"] > 0.19  # sleeping takes no less
    assert figure["percent"] == pytest.approx(100 * (figure["local"] / figure["simulated"] - 1))


def test_a_difference_that_is_too_large_is_told_by_the_status(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = bench.Figure(0, "spt", 10.0, 10.4, 4.0, 0, 0.1)
    monkeypatch.setattr(bench, "compare", lambda queue, policy, seed: figure)
    few = ["--seeds", "1", "--policy", "spt", "--out", str(tmp_path / "out.json")]
    with pytest.raises(SystemExit) as end:
        bench.main(few)
    assert end.value.code == 1


def test_columns_stand_below_their_heads(bench: ModuleType) -> None:
    lines = bench.table(
        [
            bench.Figure(0, "ect-wait", 10.0, 10.25, 2.5, 3, 0.1),
            bench.Figure(12, "a-long-name", 9.0, 8.99, -0.11, 0, 12.3),
        ]
    ).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].split() == ["ect-wait", "0", "10.000", "10.250", "2.50", "%", "3", "0.10"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--jobs", "0"], "--jobs must be above 0"),
        (["--seeds", "0"], "--seeds must be above 0"),
        (["--asked", "nan"], "--asked must be above 0"),
        (["--first-seed", "-1"], "--first-seed must be 0 or more"),
        (["--out", "/no/such/folder/x.json"], "there is no folder /no/such/folder"),
        (["--policy", "no-such-rule"], "--policy: "),
    ],
)
def test_options_that_make_no_sense_are_refused_in_one_sentence(
    bench: ModuleType, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        bench.main(arguments)
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err
