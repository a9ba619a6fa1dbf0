"""Feasibility: list schedules pass, and every rule is caught when it is broken."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hetsched.envs.instance import Instance
from hetsched.envs.schedule import InfeasibleSchedule, Schedule
from hetsched.tests.envs.list_schedule import draw, make

SEEDS = st.integers(0, 10_000)


def changed(schedule: Schedule, job: int, **values: float) -> Schedule:
    """A copy with other values for one job."""
    arrays: dict[str, Any] = {}
    for name in ("modes", "starts", "ends", "setups"):
        arrays[name] = getattr(schedule, name).copy()
        if name in values:
            arrays[name][job] = values[name]
    return Schedule(**arrays)


def one_machine(**others: Any) -> Instance:
    return Instance.from_matrix([[2], [3]], **others)


def violations(
    instance: Instance, starts: list[float], ends: list[float], **others: Any
) -> list[str]:
    modes = others.pop("modes", [0, 1])
    return make(modes, starts, ends, **others).violations(instance)


def test_two_jobs_may_touch_but_not_overlap() -> None:
    assert violations(one_machine(), [0, 2], [2, 5]) == []
    assert violations(one_machine(), [0, 1.5], [2, 4.5]) == [
        "job 1 overlaps job 0 on machine 0 at 1.5"
    ]


def test_capacity_is_counted_in_units() -> None:
    instance = one_machine(capacity=[3], demand=[2, 1])
    assert violations(instance, [0, 0], [2, 3]) == []
    crowded = one_machine(capacity=[3], demand=[2, 2])
    assert violations(crowded, [0, 1], [2, 4]) == [
        "job 1 overlaps job 0 on machine 0 at 1, which takes 4 of its 3 units"
    ]


def test_overload_is_found_between_jobs_that_do_not_start_together() -> None:
    instance = Instance.from_matrix([[9], [9], [9], [9], [9]], capacity=[3])
    starts = np.array([0.0, 1, 2, 3, 10])
    found = Schedule(np.arange(5), starts, starts + 9).violations(instance)
    assert found == [
        "job 3 overlaps job 0 and job 1 and job 2 on machine 0 at 3, which takes 4 of its 3 units"
    ]


def test_a_job_never_starts_before_its_release() -> None:
    assert violations(one_machine(release_times=[0, 4]), [0, 3], [2, 6]) == [
        "job 1 starts at 3, but is released at 4"
    ]


def test_a_job_never_starts_while_the_machine_is_initially_occupied() -> None:
    assert violations(one_machine(machine_available=[1]), [0, 2], [2, 5]) == [
        "job 0 starts at 0 on machine 0, which is available from 1"
    ]


def test_a_job_runs_as_long_as_its_mode_takes() -> None:
    assert violations(one_machine(), [0, 2], [2, 4]) == ["job 1 runs for 2, but its mode 1 takes 3"]


def test_true_durations_rule_where_they_are_given() -> None:
    assert violations(one_machine(actual_times=[2.5, 3]), [0, 3], [2.5, 6]) == []
    assert violations(one_machine(actual_times=[2.5, 3]), [0, 3], [2, 6]) == [
        "job 0 runs for 2, but its mode 0 takes 2.5"
    ]


def test_a_job_waits_for_its_predecessor() -> None:
    arc = {"precedence": [[1], [0]]}
    assert violations(one_machine(**arc), [3, 0], [5, 3]) == []
    assert violations(one_machine(**arc), [0, 2], [2, 5]) == [
        "job 0 starts at 0, but job 1 before it ends at 5"
    ]


def test_a_lag_counts_only_between_different_machines() -> None:
    instance = Instance.from_matrix(
        [[2, 2], [3, 3]], precedence=[[0], [1]], precedence_lags=[4], machine_names=["a", "b"]
    )
    assert violations(instance, [0, 2], [2, 5], modes=[0, 2]) == []
    assert violations(instance, [0, 6], [2, 9], modes=[0, 3]) == []
    assert violations(instance, [0, 5], [2, 8], modes=[0, 3]) == [
        "job 1 starts at 5, but job 0 before it ends at 2 and the lag to another machine is 4"
    ]


def test_a_set_up_needs_room_after_the_job_before() -> None:
    setups = np.zeros((3, 2, 1))
    setups[0, 1, 0], setups[2, 0, 0] = 2, 1
    instance = one_machine(setup_times=setups)
    paid = {"setups": [1, 2]}
    assert violations(instance, [1, 5], [3, 8], **paid) == []
    assert violations(instance, [1, 4], [3, 7], **paid) == [
        "job 1 starts 1 after job 0 ends on machine 0, but its set-up takes 2"
    ]
    assert violations(instance, [0, 5], [2, 8], **paid) == [
        "job 0 starts at 0, but is released at 0 and its set-up takes 1",
        "job 0 starts 0 after the initial occupation ends on machine 0, but its set-up takes 1",
    ]


def test_a_set_up_starts_only_when_the_job_is_there() -> None:
    setups = np.zeros((3, 2, 1))
    setups[0, 1, 0] = 2
    released = one_machine(setup_times=setups, release_times=[0, 6])
    assert violations(released, [0, 8], [2, 11], setups=[0, 2]) == []
    assert violations(released, [0, 7], [2, 10], setups=[0, 2]) == [
        "job 1 starts at 7, but is released at 6 and its set-up takes 2"
    ]
    after = one_machine(setup_times=setups, precedence=[[0], [1]])
    assert violations(after, [0, 3], [2, 6], setups=[0, 2]) == [
        "job 1 starts 1 after job 0 ends on machine 0, but its set-up takes 2",
        "job 1 starts at 3, but job 0 before it ends at 2 and its set-up takes 2",
    ]


def test_the_set_ups_paid_are_those_the_order_needs() -> None:
    setups = np.zeros((3, 2, 1))
    setups[0, 1, 0] = 2
    instance = one_machine(setup_times=setups)
    assert violations(instance, [0, 4], [2, 7]) == [
        "job 1 pays a set-up of 0, but its place on machine 0 needs 2"
    ]
    assert violations(one_machine(), [0, 4], [2, 7], setups=[0, 1]) == [
        "job 1 pays a set-up of 1, but its place on machine 0 needs 0"
    ]


def test_a_mode_belongs_to_its_job() -> None:
    assert violations(one_machine(job_names=["a", "b"]), [0, 2], [2, 4], modes=[0, 0]) == [
        "job 1 (b) uses mode 0, which belongs to job 0 (a)"
    ]


@pytest.mark.parametrize("mode", [-1, 2])
def test_an_unscheduled_job_is_named(mode: int) -> None:
    assert violations(one_machine(), [0, 2], [2, 5], modes=[0, mode]) == [
        f"job 1 is not scheduled: its mode is {mode}, not 0 to 1"
    ]


def test_times_that_are_not_finite_mean_not_scheduled() -> None:
    assert violations(one_machine(), [0, np.inf], [2, np.inf]) == [
        "job 1 is not scheduled: it starts at inf and ends at inf"
    ]
    assert len(violations(one_machine(), [0, np.nan], [2, 5])) == 1
    assert len(violations(one_machine(), [0, 2], [2, 5], setups=[0, np.nan])) == 1


def test_a_schedule_of_another_size_is_refused() -> None:
    schedule = make([0], [0], [2])
    assert schedule.violations(one_machine()) == ["the schedule has 1 jobs, but the instance 2"]
    with pytest.raises(ValueError, match="the schedule has 1 jobs and the instance 2; give"):
        schedule.terms(one_machine())


def test_check_names_the_first_violations_and_counts_the_others() -> None:
    instance = Instance.from_matrix(np.full((6, 1), 2.0))
    with pytest.raises(InfeasibleSchedule, match=r"infeasible: job 1 overlaps .*; and 2 more"):
        Schedule(np.arange(6), np.zeros(6), np.full(6, 2.0)).check(instance)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_rounding_errors_are_forgiven_in_every_unit_of_time(unit: float) -> None:
    durations = np.full((50, 1), 0.1 * unit)
    ends = np.cumsum(durations[:, 0])
    late = Schedule(np.arange(50), ends - 0.1 * unit, ends)
    instance = Instance.from_matrix(durations)
    assert late.violations(instance) == []
    early = Schedule(late.modes, late.starts - 0.001 * unit * (np.arange(50) == 9), late.ends)
    assert early.violations(instance)


@given(SEEDS)
def test_list_schedules_are_feasible(seed: int) -> None:
    instance, schedule = draw(seed)
    assert schedule.violations(instance) == []


@given(SEEDS, st.data())
def test_moving_one_start_into_another_job_is_caught(seed: int, data: st.DataObject) -> None:
    instance, schedule = draw(seed, shared=False)
    machines = schedule.machines(instance)
    pairs = [
        (one, two)
        for one, two in itertools.permutations(range(instance.num_jobs), 2)
        if machines[one] == machines[two]
    ]
    assume(pairs)
    job, into = data.draw(st.sampled_from(pairs))
    inside = data.draw(st.floats(0, 0.99))
    length = schedule.ends[job] - schedule.starts[job]
    start = schedule.starts[into] + inside * (schedule.ends[into] - schedule.starts[into])
    moved = changed(schedule, job, starts=start, ends=start + length)
    assert any("overlaps" in one for one in moved.violations(instance))


@given(SEEDS, st.data())
def test_starting_earlier_than_everything_allows_is_caught(seed: int, data: st.DataObject) -> None:
    instance, schedule = draw(seed)
    job = data.draw(st.integers(0, instance.num_jobs - 1))
    length = schedule.ends[job] - schedule.starts[job]
    # A list schedule starts every job as early as its machine and predecessors allow, so no job
    # fits half a unit (all times are whole) before its start unless a gap lies there.
    machines = schedule.machines(instance)
    before = (machines == machines[job]) & (schedule.starts < schedule.starts[job])
    assume(instance.capacity[machines[job]] == 1 or not before.any())
    earlier = schedule.starts[job] - 0.5
    moved = changed(schedule, job, starts=earlier, ends=earlier + length)
    assert moved.violations(instance)
