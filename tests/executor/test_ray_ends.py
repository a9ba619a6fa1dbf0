"""What is learnt of an attempt that the Ray executor did not see end."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hetsched.executor.exits import Exits
from hetsched.executor.protocol import PREEMPTED_EXIT, Attempt
from hetsched.executor.ray_ends import Ends, cancelled

ATTEMPT = Attempt("job", "m", number=2)


@pytest.fixture
def exits(tmp_path: Path) -> Exits:
    return Exits(tmp_path / "exits", "queue")


@pytest.fixture
def ends(tmp_path: Path, exits: Exits) -> Ends:
    return Ends(tmp_path, exits)


def test_without_a_note_an_orphan_is_preempted_and_uses_up_nothing(ends: Ends) -> None:
    outcome = ends.orphaned(ATTEMPT, 5.0, 8.0)
    assert (outcome.status, outcome.exit_code, outcome.ended) == ("preempted", None, 8.0)
    assert outcome.log is None
    assert ends.orphaned(ATTEMPT, 5.0, 3.0).ended == 5.0  # the clock was set back meanwhile


def test_without_a_note_what_went_with_its_machine_is_lost(ends: Ends, tmp_path: Path) -> None:
    ends.log_of(ATTEMPT).touch()
    outcome = ends.lost(ATTEMPT, 5.0, 8.0)
    assert (outcome.status, outcome.machine_failed) == ("lost", True)
    assert outcome.log == os.fspath(tmp_path / "job.2.log")


def test_with_one_it_has_ended_as_the_note_says_and_when_it_was_written(
    ends: Ends, exits: Exits
) -> None:
    path = exits.path("job", 2)
    for text, status, code in (("0", "done", 0), ("3", "failed", 3), ("139", "lost", -11)):
        path.write_text(f"{text}\n")
        an_hour_ago = time.time() - 3600
        os.utime(path, (an_hour_ago, an_hour_ago))
        for outcome in (ends.orphaned(ATTEMPT, 5.0, 7200.0), ends.lost(ATTEMPT, 5.0, 7200.0)):
            assert (outcome.status, outcome.exit_code) == (status, code)
            assert outcome.ended == pytest.approx(3600.0, abs=5.0)
    ends.forget([outcome])
    assert not path.exists()


def test_an_end_lies_between_its_start_and_now_whatever_the_node_s_clock_says(
    ends: Ends, exits: Exits
) -> None:
    path = exits.path("job", 2)
    path.write_text("0\n")
    for seconds, ended in ((3600, 8.0), (-3600, 5.0)):
        os.utime(path, (time.time() + seconds,) * 2)
        assert ends.orphaned(ATTEMPT, 5.0, 8.0).ended == ended


def test_a_kill_is_no_end_of_the_job_s_own(ends: Ends, exits: Exits) -> None:
    exits.path("job", 2).write_text("137\n")  # a shell that lived a moment longer than its command
    assert ends.orphaned(ATTEMPT, 5.0, 8.0).status == "preempted"
    assert ends.lost(ATTEMPT, 5.0, 8.0).machine_failed


def test_a_job_that_saved_itself_goes_on(ends: Ends, exits: Exits) -> None:
    exits.path("job", 2).write_text(f"{PREEMPTED_EXIT}\n")
    outcome = ends.orphaned(ATTEMPT, 5.0, 8.0)
    assert outcome.status == "preempted"
    assert "has saved its state" in outcome.reason


def test_who_stopped_a_job_does_not_see_it_run_again(ends: Ends, exits: Exits) -> None:
    outcome = ends.orphaned(ATTEMPT, 5.0, 8.0)
    assert cancelled(outcome).status == "cancelled"
    exits.path("job", 2).write_text("0\n")
    done = ends.orphaned(ATTEMPT, 5.0, 8.0)
    assert cancelled(done) == done
    assert ends.lost(ATTEMPT, 5.0, 8.0, stopped=True).status == "cancelled"


def test_where_nobody_keeps_exit_codes_nothing_is_known(tmp_path: Path) -> None:
    ends = Ends(tmp_path, None)
    assert ends.lost(ATTEMPT, 5.0, 8.0).machine_failed
    ends.forget([ends.lost(ATTEMPT, 5.0, 8.0)])
