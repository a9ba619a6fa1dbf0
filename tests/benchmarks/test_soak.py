"""The short form of benchmarks/soak.py: kills at random instants, and everything accounted for."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import ModuleType

import pytest

from hetsched.executor import store
from hetsched.executor.protocol import Attempt, Outcome
from hetsched.executor.store_ledger import StoreLedger
from hetsched.tests.benchmarks.loading import FOLDER, load_script


@pytest.fixture(scope="module")
def soaking() -> ModuleType:
    if not (FOLDER / "soak.py").exists():
        pytest.skip("benchmarks are not part of this copy")
    return load_script("soak")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="jobs are found again in /proc")
def test_a_queue_under_kills_drains_and_outages_comes_to_its_right_end(
    soaking: ModuleType, tmp_path: Path
) -> None:
    report = soaking.soak(
        tmp_path, 40, seed=1, kill_every=0.4, limit=300.0, most_kills=3, away_every=1.0
    )
    assert report.wrong == []
    assert report.kills >= 1
    assert report.outages >= 1
    assert sum(report.states.values()) == 40
    assert report.memory[0].mb > 10.0
    assert report.mb_per_1000_jobs is None  # too few to say


def told(state: Path, job: str, status: str, reason: str, number: int) -> None:
    """An attempt that has ended, and its job with it."""
    attempt = Attempt(job, "fast", number=number)
    with contextlib.closing(StoreLedger(state)) as ledger:
        ledger.load()
        ledger.starting(attempt, 1.0)
        ledger.ended(Outcome(attempt, status, 1.0, 2.0, reason=reason))
        ledger.fate(job, "done" if status == "done" else "waiting", "")


def test_the_checks_see_a_job_that_ran_twice_and_one_that_is_lost(
    soaking: ModuleType, tmp_path: Path
) -> None:
    state, ends = tmp_path / "state", tmp_path / "ends"
    queue, right = soaking.make_queue(2, ends, seed=0)
    store.create(state, queue)
    ends.write_text("job 0/1\njob 0/2\n", encoding="utf-8")
    wrong = soaking.checks.mistakes(state, ends, {**right, "job 2": "done"})
    assert "3 jobs went in, 2 are there" in wrong
    assert "job 0 is waiting" in wrong
    assert "job 0 is waiting and ran to its end 2 times" in wrong


def test_what_was_killed_with_its_machine_at_the_very_end_has_not_run(
    soaking: ModuleType, tmp_path: Path
) -> None:
    state, ends = tmp_path / "state", tmp_path / "ends"
    queue, _ = soaking.make_queue(1, ends, seed=0)
    store.create(state, queue)
    told(state, "job 0", "lost", "machine 'fast' went away", 1)
    told(state, "job 0", "done", "", 2)
    ends.write_text("job 0/1\njob 0/2\n", encoding="utf-8")
    assert soaking.checks.mistakes(state, ends, {"job 0": "done"}) == []
    ends.write_text("job 0/1\n", encoding="utf-8")
    (wrong,) = soaking.checks.mistakes(state, ends, {"job 0": "done"})
    assert wrong == "job 0 is done and ran to its end 0 times"


def test_memory_is_followed_within_the_last_scheduler(soaking: ModuleType) -> None:
    sample, slope = soaking.checks.Sample, soaking.checks.mb_per_1000_jobs
    first = [sample(0, over, 100.0 + over) for over in range(0, 1000, 100)]
    last = [sample(1, over, 300.0 + 0.004 * over) for over in range(1000, 2000, 100)]
    assert slope(first + last) == pytest.approx(4.0)
    warm = [sample(1, 900, 10.0)]  # what is loaded at first is no growth
    assert slope([*first, *warm, *last]) == pytest.approx(4.0)
    assert slope(first + last[:5]) is None
    assert slope([]) is None


@pytest.mark.parametrize(
    "arguments", [["--jobs", "0"], ["--kill-every", "-1"], ["--out", "/no/such/folder/x.json"]]
)
def test_options_that_make_no_sense_are_refused(
    soaking: ModuleType, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        soaking.main(arguments)
    assert error.value.code == 2
    assert "error: --" in capsys.readouterr().err
