"""Estimates that learn: known answers, a misreported prior, and the tree against plain algebra."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.executor.estimates import Beliefs, CompletedRun, Estimates, read_runs
from hetsched.executor.protocol import Attempt, Machine, Outcome, Status
from hetsched.executor.queue import Job, Mode

MACHINES = (
    Machine("a", "h200", "gpu", ("0",)),
    Machine("b", "h200", "gpu", ("1",)),
    Machine("c", "k80", "gpu", ("2",)),
)
BELIEFS = Beliefs(queue=0.5, model=0.8, machine=0.3, run=0.2)


def job(name: str, model: str = "", seconds: float = 100.0) -> Job:
    modes = tuple(Mode(machine.name, seconds) for machine in MACHINES)
    return Job(name, modes, ("true",), model=model)


def ended(
    of: Job, seconds: float, mode: int = 0, status: Status = "done", number: int = 1
) -> Outcome:
    return Outcome(of.attempt(mode, number), status, 5.0, 5.0 + seconds)


def test_without_runs_the_queue_is_believed() -> None:
    one = job("one", seconds=70.0)
    assert [Estimates(MACHINES).seconds(one, mode) for mode in one.modes] == [70.0] * 3


def test_one_run_moves_each_estimate_by_what_it_tells_about_it() -> None:
    """log 3 times covariance / variance: variance .25 + .64 + .09 + .04 = 1.02."""
    estimates = Estimates(MACHINES, beliefs=BELIEFS)
    first, second, other = job("1", "net"), job("2", "net", 10.0), job("3", "else")
    assert estimates.observe(first, ended(first, 300.0))
    same, alike, elsewhere = (estimates.seconds(second, mode) for mode in second.modes)
    assert same == alike == pytest.approx(10.0 * 3 ** (0.98 / 1.02))  # a machine of the same type
    assert elsewhere == pytest.approx(10.0 * 3 ** (0.89 / 1.02))
    assert estimates.seconds(other, other.modes[0]) == pytest.approx(100.0 * 3 ** (0.25 / 1.02))


def test_an_estimate_that_is_wrong_by_a_factor_of_three_is_corrected() -> None:
    """300 s each, within a tenth, where 100 s were said: after three runs within 5 % everywhere."""
    estimates = Estimates(MACHINES)
    for number, seconds in enumerate((300.0, 330.0, 273.0)):
        one = job(str(number), "net")
        estimates.observe(one, ended(one, seconds))
    following = job("next", "net")
    assert estimates.seconds(following, following.modes[0]) == pytest.approx(300.0, rel=0.05)
    # On the type where it has not run most of the error is corrected: 100 s were said.
    assert 240.0 < estimates.seconds(following, following.modes[2]) < 300.0


def test_many_runs_settle_at_their_centre() -> None:
    runs = [CompletedRun("net", "h200", 1, 10.0, 10.0 * f) for f in (1.9, 2.0, 2.1) * 16]
    assert Estimates(MACHINES, runs).factor("net", "h200") == pytest.approx(2.0, rel=0.01)


def test_one_wild_run_among_many_changes_little() -> None:
    calm = [CompletedRun("net", "h200", 1, 10.0, 10.0)] * 9
    wild = CompletedRun("net", "h200", 1, 10.0, 1000.0)
    # Clipped at 2.5 deviations of 0.2: at most 0.5 / 10 in the mean of logarithms, not 4.6 / 10.
    assert 1.0 < Estimates(MACHINES, [*calm, wild]).factor("net", "h200") < math.exp(0.05)


def test_noisy_runs_are_believed_less() -> None:
    def after(*seconds: float) -> float:
        runs = [CompletedRun("net", "h200", 1, 10.0, value) for value in seconds]
        return Estimates(MACHINES, runs).factor("net", "h200")

    assert 1.0 < after(2.0, 200.0) < after(19.0, 21.0) < 2.0


def test_old_runs_are_forgotten() -> None:
    then = [CompletedRun("net", "h200", 1, 10.0, 10.0)] * 80
    now = [CompletedRun("net", "h200", 1, 10.0, 40.0)] * 50
    estimates = Estimates(MACHINES, then + now)
    assert estimates.factor("net", "h200") == pytest.approx(4.0, rel=0.01)
    assert len(estimates.runs) == 50


@pytest.mark.parametrize("status", ["failed", "timeout", "lost", "cancelled", "preempted"])
def test_only_runs_that_were_done_count(status: Status) -> None:
    estimates, one = Estimates(MACHINES), job("one")
    assert not estimates.observe(one, ended(one, 5.0, status=status))
    assert estimates.seconds(one, one.modes[0]) == 100.0


def test_a_second_attempt_may_have_gone_on_from_a_checkpoint_and_does_not_count() -> None:
    estimates, one = Estimates(MACHINES), job("one")
    assert not estimates.observe(one, ended(one, 5.0, number=2))
    assert estimates.runs == ()


def test_numbers_of_gpus_are_places_of_their_own() -> None:
    estimates = Estimates(MACHINES, [CompletedRun("net", "h200", 4, 10.0, 30.0)], BELIEFS)
    assert estimates.factor("net", "h200", 4) == pytest.approx(3 ** (0.98 / 1.02))
    assert estimates.factor("net", "h200", 1) == pytest.approx(3 ** (0.89 / 1.02))


def test_forgetting_undoes_learning() -> None:
    runs = [CompletedRun("net", "h200", 1, 10.0, 30.0), CompletedRun("net", "k80", 1, 10.0, 20.0)]
    estimates = Estimates(MACHINES, runs)
    estimates.forget("net", "h200")
    estimates.forget("net", "h200")
    assert estimates.runs == (runs[1],)
    fresh = Estimates(MACHINES, runs[1:])
    assert estimates.factor("net", "h200") == pytest.approx(fresh.factor("net", "h200"))
    estimates.forget("net", "k80")
    assert estimates.factor("net", "k80") == pytest.approx(1.0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["x", "y", "z"]), st.sampled_from(["h200", "k80"]), st.floats(0.5, 2.0)
        ),
        min_size=1,
        max_size=8,
        unique_by=lambda run: run[:2],  # one run a place: neither clipping nor noise is estimated
    )
)
def test_the_tree_gives_what_the_joint_normal_distribution_gives(
    runs: list[tuple[str, str, float]],
) -> None:
    estimates = Estimates(
        MACHINES, [CompletedRun(m, t, 1, 10.0, 10.0 * ratio) for m, t, ratio in runs], BELIEFS
    )

    def covariance(one: tuple[str, str], two: tuple[str, str]) -> float:
        return (
            BELIEFS.queue**2
            + BELIEFS.model**2 * (one[0] == two[0])
            + BELIEFS.machine**2 * (one == two)
        )

    seen = [run[:2] for run in runs]
    joint = np.array([[covariance(a, b) for b in seen] for a in seen])
    joint += BELIEFS.run**2 * np.eye(len(runs))
    errors = np.log([ratio for _, _, ratio in runs])
    for place in [(m, t) for m in ("x", "y", "z", "new") for t in ("h200", "k80", "l40s")]:
        cross = np.array([covariance(place, other) for other in seen])
        mean = cross @ np.linalg.solve(joint, errors)
        assert math.log(estimates.factor(*place)) == pytest.approx(float(mean), abs=1e-9)


def test_saved_runs_are_read_back(tmp_path: Path) -> None:
    runs = [
        CompletedRun("net, small", "h200", 2, 10.0, 31.5),
        CompletedRun("é", "k80", 1, 1.0, 2.0),
    ]
    path = tmp_path / "estimates.csv"
    Estimates(MACHINES, runs).save(path)
    assert read_runs(path) == runs
    assert [file.name for file in tmp_path.iterdir()] == ["estimates.csv"]
    Estimates(MACHINES).save(path)
    assert read_runs(path) == []


def test_a_wrong_file_is_named_with_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "estimates.csv"
    path.write_text("model,machine,gpus,expected,seconds\nnet,h200,1,10,-3\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"estimates.csv, line 2, column seconds: must be a"):
        read_runs(path)


def test_beliefs_must_be_positive() -> None:
    with pytest.raises(ValueError, match=r"beliefs: run is 0.0; give a number above 0."):
        Beliefs(run=0.0)


def test_an_attempt_reports_the_machine_by_name_and_the_table_by_type() -> None:
    estimates, one = Estimates(MACHINES), job("one", "net")
    estimates.observe(one, Outcome(Attempt("one", "c", mode=2), "done", 0.0, 50.0))
    assert estimates.runs == (CompletedRun("net", "k80", 1, 100.0, 50.0),)
