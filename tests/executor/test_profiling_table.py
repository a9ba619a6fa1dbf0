"""Speeds tables: merged without losing rows, read by what trains and what dispatches."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched.envs.scenarios.own_files import Speed, read_speeds
from hetsched.executor.estimates import CompletedRun, Estimates
from hetsched.executor.profiling_table import (
    SpeedRow,
    corrected,
    merged,
    read_table,
    write_table,
)

ROWS = [
    SpeedRow("net, wide", "h200", 12.5, 4, 3.25, "0.021", "3", 'power cap, "warm"'),
    SpeedRow("net, wide", "cpu", 0.001),
]


def test_a_table_is_read_back_and_the_scenario_reads_it_too(tmp_path: Path) -> None:
    path = tmp_path / "speeds.csv"
    write_table(path, ROWS)
    assert read_table(path) == ROWS
    assert read_speeds(path) == [
        Speed("net, wide", "h200", 12.5, 4, 3.25),
        Speed("net, wide", "cpu", 0.001, 1, 0.0),
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["speeds.csv"]


def test_an_absent_table_has_no_rows_and_a_short_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "speeds.csv"
    assert read_table(path) == []
    path.write_text("speed,model,machine\n4,net,k80\n", encoding="utf-8")
    assert read_table(path) == [SpeedRow("net", "k80", 4.0)]


def test_merging_replaces_what_was_measured_again_and_keeps_the_rest() -> None:
    old = [SpeedRow("a", "k80", 1.0), SpeedRow("b", "k80", 2.0), SpeedRow("a", "k80", 3.0, 4)]
    new = [SpeedRow("c", "k80", 7.0), SpeedRow("b", "k80", 9.0)]
    assert merged(old, new) == [old[0], new[1], old[2], new[0]]


def test_a_wrong_table_is_named_with_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "speeds.csv"
    path.write_text("model,machine,speed\nnet,k80,fast\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"speeds.csv, line 2, column speed: 'fast' is not"):
        read_table(path)


def test_completed_runs_correct_the_rows_of_their_model_once() -> None:
    rows = [
        SpeedRow("net", "k80", 9.0, startup=10.0),
        SpeedRow("net", "h200", 90.0),
        SpeedRow("else", "k80", 5.0),
    ]
    slow = [CompletedRun("net", "k80", 1, 10.0, 30.0)] * 40  # three times what was said
    other = CompletedRun("one of a kind", "k80", 1, 1.0, 1.0)
    estimates = Estimates((), [*slow, other])
    first, second, third = corrected(rows, estimates)
    assert first.speed == pytest.approx(3.0, rel=0.01)
    assert first.startup == pytest.approx(30.0, rel=0.01)
    assert first.note == "corrected by 3 after 40 completed runs"
    assert 30.0 < second.speed < 45.0  # it has not run there, so not by all of the factor
    assert second.note.endswith("after runs on other machines")
    assert third == rows[2]
    assert estimates.runs == (other,)
    assert corrected([first, second, third], estimates) == [first, second, third]
