"""Metrics on disk: a CSV that survives a kill, and the picture drawn from it."""

from pathlib import Path

import pytest

from hetsched.agents.metrics import MetricsFile, draw_learning_curve, read_curves, read_rows


def test_rows_are_on_disk_as_soon_as_they_are_written(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.csv")
    file.write(10, {"loss": 0.5})
    assert (tmp_path / "metrics.csv").read_text() == "step,loss\n10,0.5\n"


def test_a_metric_may_appear_late(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.csv")
    file.write(10, {"loss": 0.5})
    file.write(20, {"loss": 0.25, "validation/cost": 3.0})
    file.write(30, {"validation/cost": 2.0})
    assert read_curves(tmp_path / "metrics.csv") == {
        "loss": ([10, 20], [0.5, 0.25]),
        "validation/cost": ([20, 30], [3.0, 2.0]),
    }


def test_a_resumed_file_forgets_what_will_be_written_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    file = MetricsFile(path)
    for step in (10, 20, 30):
        file.write(step, {"loss": step / 10})
    MetricsFile(path, resume_step=20).write(30, {"loss": 7.0})
    assert read_curves(path) == {"loss": ([10, 20, 30], [1.0, 2.0, 7.0])}


def test_a_row_cut_short_by_a_kill_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n10,0.5\n20,0.")
    assert [row["step"] for row in read_rows(path)] == ["10"]
    MetricsFile(path, resume_step=100)
    assert path.read_text() == "step,loss\n10,0.5\n"


def test_a_new_run_replaces_an_old_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    MetricsFile(path).write(10, {"loss": 0.5})
    MetricsFile(path)
    assert read_rows(path) == []


def test_names_with_commas_survive(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    MetricsFile(path).write(1, {"atcs-r:k1=1,k2=2": 4.0})
    assert read_curves(path) == {"atcs-r:k1=1,k2=2": ([1], [4.0])}


def test_a_metric_cannot_take_the_name_of_the_step(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="another name"):
        MetricsFile(tmp_path / "metrics.csv").write(1, {"step": 2.0})


def test_the_learning_curve_is_a_png_even_without_any_row(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    file = MetricsFile(path)
    panels = {"cost": ("validation/cost", "validation/best rule"), "loss": ("loss",)}
    for _ in range(2):
        draw_learning_curve(path, tmp_path / "curve.png", panels, title="hitzges")
        assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
        file.write(10, {"validation/cost": 3.0, "validation/best rule": 2.5})
        file.write(20, {"validation/cost": 2.0, "validation/best rule": 2.5})
