"""What is said of a finished run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from hetsched.executor import report
from hetsched.executor.adapter import Run
from hetsched.executor.protocol import Machine, Outcome
from hetsched.executor.queue import Job, Mode, Queue


@pytest.fixture
def run() -> Run:
    """One job done at its second attempt, one lost, one never run."""
    machines = (Machine("one", "v100"), Machine("two", "k80", capacity=2))
    jobs = (
        Job("a", (Mode("one", 5.0), Mode("two", 9.0, 2)), retries=1, release=1.0, due=8.0),
        Job("b", (Mode("two", 4.0),)),
        Job("c [x]", (Mode("one", 1.0),), after=("b",)),
    )
    first, second = jobs[0].attempt(0, 1), jobs[0].attempt(1, 2)
    return Run(
        queue=Queue(jobs, machines),
        policy="fifo",
        outcomes=[
            Outcome(first, "failed", 1.0, 1.0, None, "could not be started: no such file"),
            Outcome(jobs[1].attempt(0, 1), "lost", 0.0, 2.0, -9, "killed by SIGKILL", "logs/b"),
            Outcome(second, "done", 2.0, 10.0, 0),
        ],
        not_run={"c [x]": "comes after 'b', which was not done"},
        ended=10.0,
        decisions=[0.001, 0.003],
    )


def test_the_report_says_who_ran_where_when_and_how_it_ended(run: Run) -> None:
    said = json.loads(json.dumps(report.as_dict(run, "local"), allow_nan=False))
    a, b, c = said["jobs"]
    assert (a["status"], a["machine"], a["started"], a["ended"]) == ("done", "two", 2.0, 10.0)
    assert [one["status"] for one in a["attempts"]] == ["failed", "done"]
    assert (a["attempts"][1]["seconds"], a["attempts"][1]["expected_seconds"]) == (8.0, 9.0)
    assert (b["status"], b["reason"]) == ("lost", "killed by SIGKILL")
    assert (b["attempts"][0]["exit_code"], b["attempts"][0]["log"]) == (-9, "logs/b")
    assert (c["status"], c["attempts"], c["started"]) == ("not run", [], None)
    assert c["reason"] == "comes after 'b', which was not done"
    assert said["totals"] == {
        "jobs": 3,
        "done": 1,
        "attempts": 3,
        "makespan": 10.0,
        "mean_flow_time": 9.0,
        "weighted_completion": 10.0,
        "weighted_tardiness": 2.0,
    }
    assert [one["busy_unit_seconds"] for one in said["machines"]] == [0.0, 18.0]
    assert [one["utilisation"] for one in said["machines"]] == [0.0, 0.9]
    assert said["decisions"] == {"count": 2, "mean_ms": 2.0, "max_ms": 3.0}
    assert (said["policy"], said["executor"], said["interrupted"]) == ("fifo", "local", False)


def test_the_table_has_a_row_per_attempt_and_per_job_that_never_ran(run: Run) -> None:
    console = Console(width=140)
    with console.capture() as captured:
        report.print_report(run, "local", console)
    text = captured.get()
    assert "a (attempt 2)" in text
    assert "c [x]" in text  # no markup
    assert "not run" in text
    assert "killed by SIGKILL" in text
    assert "1 of 3 jobs done; makespan 10.0 s, mean flow time 9.00 s." in text
    assert "Machines in use: one 0%, two 90%." in text


def test_the_picture_shows_a_feasible_schedule_of_all_attempts(run: Run) -> None:
    schedule, instance = report.as_schedule(run)
    assert schedule.violations(instance) == []
    assert instance.job_names == ("a: failed", "b: lost", "a (attempt 2)")


@pytest.mark.parametrize("name", ["run.png", "run.html"])
def test_a_picture_can_be_drawn(run: Run, tmp_path: Path, name: str) -> None:
    report.draw(run, tmp_path / name)
    assert (tmp_path / name).stat().st_size > 1000


def test_another_kind_of_picture_is_refused(run: Run) -> None:
    with pytest.raises(ValueError, match=r"gantt: 'run.gif' must end in .png or .html"):
        report.draw(run, "run.gif")


def test_without_an_attempt_there_is_no_picture(run: Run, tmp_path: Path) -> None:
    run.outcomes.clear()
    with pytest.raises(ValueError, match="nothing has run"):
        report.draw(run, tmp_path / "run.png")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0.00 s"),
        (9.994, "9.99 s"),
        (59.9, "59.9 s"),
        (245.4, "4:05"),
        (3723, "1:02:03"),
    ],
)
def test_durations_read_well(seconds: float | None, text: str) -> None:
    assert report.duration(seconds) == text


def test_of_a_long_queue_the_table_shows_what_went_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs = tuple(Job(f"job{at}", (Mode("m", 1.0),)) for at in range(300))
    outcomes = [
        Outcome(one.attempt(0, 1), "failed" if at == 7 else "done", at, at + 1.0, 0)
        for at, one in enumerate(jobs)
    ]
    long = Run(Queue(jobs, (Machine("m"),)), "fifo", outcomes, ended=300.0)
    report.print_report(long, "local", Console(width=120))
    said = capsys.readouterr().out
    assert "job7 " in said
    assert "job8 " not in said
    assert "Not shown: 299 more" in said
    assert "299 of 300 jobs done" in said


def test_the_plan_is_what_was_expected_of_attempts_that_were_done(run: Run) -> None:
    # "a" on `two`: started at 2, 9 s expected; of the other two nobody knows
    assert report.planned_ends(run)[2] == 11.0
    assert np.isnan(report.planned_ends(run)[:2]).all()


def test_the_picture_has_the_plan_beside_reality(run: Run, tmp_path: Path) -> None:
    report.draw(run, tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert page.count('class="plan"') == 1
    assert "planned end  11" in page
    assert ">planned</span>" in page
