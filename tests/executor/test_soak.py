"""The short form of benchmarks/soak.py: kills at random instants, and everything accounted for."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from hetsched.tests.benchmarks.loading import FOLDER, load_script


@pytest.fixture(scope="module")
def soaking() -> ModuleType:
    if not (FOLDER / "soak.py").exists():
        pytest.skip("benchmarks are not part of this copy")
    return load_script("soak")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="jobs are found again in /proc")
def test_a_queue_under_kills_and_drains_comes_to_its_right_end(
    soaking: ModuleType, tmp_path: Path
) -> None:
    report = soaking.soak(tmp_path, 40, seed=1, kill_every=0.4, limit=300.0, most_kills=3)
    assert report.wrong == []
    assert report.kills >= 1
    assert sum(report.states.values()) == 40


def test_the_checks_of_the_soak_see_a_job_that_ran_twice_and_one_that_is_lost(
    soaking: ModuleType, tmp_path: Path
) -> None:
    from hetsched.executor import store

    queue, right = soaking.make_queue(2, tmp_path / "ends", seed=0)
    store.create(tmp_path / "state", queue)
    (tmp_path / "ends").write_text("job 0\njob 0\n", encoding="utf-8")
    wrong = soaking._mistakes(tmp_path / "state", tmp_path / "ends", {**right, "job 2": "done"})
    assert "3 jobs went in, 2 are there" in wrong
    assert "job 0 is waiting" in wrong
    assert "job 0 is waiting and ran to its end 2 times" in wrong
