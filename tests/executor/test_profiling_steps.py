"""Steady speeds from progress reports, with answers known by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hetsched.executor.profiling_steps import ProgressReader, Report, spread_of, steady


def test_warm_up_and_start_up_stay_out_of_the_speed() -> None:
    """3 s until step 1, four slow steps of 1 s, then 10 steps/s: 7 s are lost but for 0.5 s."""
    slow = [Report(3.0 + i, 1.0 + i) for i in range(5)]  # step 5 at 7 s
    fast = [Report(7.0 + i / 10, 5.0 + i) for i in range(1, 101)]
    measured = steady(slow + fast, warmup=4.0)
    assert measured is not None
    assert measured.speed == pytest.approx(10.0)
    assert measured.blocks == pytest.approx([10.0] * 10)
    assert measured.first == 3.0
    assert measured.startup == pytest.approx(6.5)  # so that step 105 is at 6.5 + 105 / 10 = 17 s


def test_a_job_that_goes_on_from_a_checkpoint_has_the_same_start_up() -> None:
    fresh = [Report(2.0 + i, 10.0 + 10 * i) for i in range(5)]
    resumed = [Report(report.time, report.done + 5000) for report in fresh]
    for reports in (fresh, resumed):
        measured = steady(reports, warmup=0.0)
        assert measured is not None
        assert (measured.speed, measured.startup) == (10.0, 1.0)


def test_blocks_show_a_speed_that_changes() -> None:
    """5 s with 4 units/s, then 5 s with 2: the mean is 3, the blocks are of either kind."""
    reports = [Report(i / 4, float(i)) for i in range(21)]
    reports += [Report(5 + i / 2, 20.0 + i) for i in range(1, 11)]
    measured = steady(reports, warmup=0.0)
    assert measured is not None
    assert measured.speed == pytest.approx(3.0)
    assert measured.blocks == pytest.approx([4.0] * 5 + [2.0] * 5)
    assert spread_of(measured.blocks) == pytest.approx(2.0 / 3.0)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_two_reports_after_the_warm_up_are_needed(count: int) -> None:
    reports = [Report(1.0, 1.0), Report(2.0, 2.0), Report(9.0, 8.0)][:count]
    assert steady(reports, warmup=5.0) is None


def test_the_spread_is_the_quartiles_over_the_median() -> None:
    assert spread_of([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2.0 / 3.0)
    assert spread_of([7.0]) == 0.0


def test_a_file_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    reader = ProgressReader(path)
    reader.read(0.5)
    assert reader.reports == []
    for now, text in (
        (1.0, "1\n2\n"),
        (2.0, "3"),
        (3.0, "0\n"),
        (4.0, "junk here\n30\n\n31 990\n"),
    ):
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
        reader.read(now)
    # "3" was no whole line; of lines that came together the last counts, and units before steps.
    assert reader.reports == [Report(1.0, 2.0), Report(3.0, 30.0), Report(4.0, 990.0)]


@pytest.mark.parametrize(
    ("pattern", "first", "second"),
    [
        (r"step (\d+)", "epoch 1\nstep 5, loss 2.1\n", "epoch 2\nstep 9\n"),
        (r"(?P<total>\d+)#(?P<done>\d+)", "9#5\n", "9#9\n"),
        (r"(\d+)/100", "  5% 5/100\r  6%", " 6/100\r  9% 9/100\r"),
    ],
)
def test_a_pattern_finds_progress_in_the_output(
    tmp_path: Path, pattern: str, first: str, second: str
) -> None:
    path = tmp_path / "log"
    reader = ProgressReader(path, re.compile(pattern))
    for now, text in ((1.0, first), (2.0, first + second)):
        path.write_text(text, encoding="utf-8")
        reader.read(now)
    assert [report.done for report in reader.reports] == [5.0, 9.0]


def test_counting_again_from_the_beginning_is_not_progress(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    reader = ProgressReader(path)
    for now, text in ((1.0, "1\n"), (2.0, "2\n"), (3.0, "1\n"), (4.0, "2\n"), (5.0, "3\n")):
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
        reader.read(now)
    assert reader.reports == [Report(1.0, 1.0), Report(2.0, 2.0), Report(5.0, 3.0)]
