"""The measured tables: sources, absent rows, agreement with the published files."""

import csv
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from hetsched.envs.scenarios import tables

ROOT = Path(__file__).resolve().parents[3]


def test_every_speed_is_positive_and_has_a_unit_and_a_source_with_its_commit() -> None:
    rows = tables.rows("speeds.csv")
    assert len(rows) > 300
    for row in rows:
        assert list(row) == ["model", "gpu", "gpus", "speed", "unit", "source"]
        assert float(row["speed"]) > 0
        assert row["unit"] in ("steps/s", "samples/s", "runs/h")
        assert re.search(r"^[\w.-]+: .*commit [0-9a-f]{7}", row["source"])


def test_no_speed_is_given_twice() -> None:
    rows = tables.rows("speeds.csv")
    keys = {(row["source"], row["model"], row["gpu"], row["gpus"]) for row in rows}
    assert len(keys) == len(rows)


def test_a_job_that_did_not_fit_has_no_row() -> None:
    assert set(tables.speeds("gavel", 1)["ResNet-50 (batch 128)"]) == {"V100", "P100", "K80"}
    for gpus in (2, 4, 8):
        assert set(tables.speeds("gavel", gpus)["ResNet-50 (batch 128)"]) == {"V100", "P100"}


def test_gavel_measured_26_kinds_of_one_gpu_jobs_on_three_types() -> None:
    table = tables.speeds("gavel", 1)
    assert len(table) == 26
    assert all(set(row) == {"V100", "P100", "K80"} for row in table.values())


def test_a_recommender_is_faster_on_an_old_gpu() -> None:
    row = tables.speeds("gavel", 1)["Recommendation (batch 512)"]
    assert row["P100"] > row["K80"] > row["V100"]


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(ValueError, match="no figures from 'nobody' for 1 GPUs"):
        tables.speeds("nobody", 1)
    with pytest.raises(ValueError, match="no duration_s of 3-GPU jobs"):
        tables.quantiles("duration_s", 3)


@pytest.mark.parametrize("quantity", ["duration_s", "gap"])
def test_quantiles_increase_from_probability_zero_to_one(
    quantity: Literal["duration_s", "gap"],
) -> None:
    probability, value = tables.quantiles(quantity, 1)
    assert (np.diff(probability) > 0).all()
    assert (np.diff(value) >= 0).all()
    assert (probability[0], probability[-1]) == (0.0, 1.0)


def test_draws_stay_within_their_bounds_and_have_the_stated_mean() -> None:
    bounds = (60.0, 14400.0)
    drawn = tables.draw(np.random.default_rng(0), "duration_s", 200_000, bounds)
    assert drawn.min() >= 60
    assert drawn.max() <= 14400
    assert drawn.mean() == pytest.approx(tables.mean("duration_s", bounds), rel=0.01)


def test_draws_follow_the_trace(data_dir: Path) -> None:
    with (data_dir / "philly" / "philly.csv").open() as lines:
        jobs = csv.DictReader(lines)
        trace = np.array([float(job["duration"]) for job in jobs if job["num_gpus"] == "1"])
    trace = trace[(trace >= 60) & (trace <= 14400)]
    drawn = tables.draw(np.random.default_rng(0), "duration_s", 200_000, (60.0, 14400.0))
    assert drawn.mean() == pytest.approx(trace.mean(), rel=0.02)
    for probability in (0.25, 0.5, 0.75, 0.9):
        ours, theirs = np.quantile(drawn, probability), np.quantile(trace, probability)
        assert ours == pytest.approx(theirs, rel=0.05)


def test_the_tables_are_what_their_sources_give(data_dir: Path) -> None:
    script = ROOT / "benchmarks" / "tables.py"
    command = [sys.executable, str(script), "--data", str(data_dir), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
