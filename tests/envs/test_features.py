"""Features by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import asinh, log, log1p
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hetsched.envs.features import observe
from hetsched.envs.graph import (
    GLOBAL_FEATURES,
    JOB_FEATURES,
    MACHINE_FEATURES,
    MODE_FEATURES,
)
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.observation import LARGEST_FEATURE
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.tests.envs.decisions import EVERYTHING, state_after
from hetsched.tests.envs.instances import random_instance

if TYPE_CHECKING:
    from torch import Tensor

FEATURES = ("jobs", "machines", "modes", "overall")


def assert_features(found: Tensor, names: Sequence[str], **expected: float) -> None:
    """One row of features against values by name; all names must be given."""
    assert set(expected) == set(names)
    for name, value in expected.items():
        assert float(found[names.index(name)]) == pytest.approx(value, abs=1e-6), name


# Durations over their mean fastest one, 2.5; weights over their mean, 2.
PLAN = Instance.from_matrix(
    np.array([[2.0, 9.0], [3.0, 4.0]]),
    machine_available=[1.0, 0.0],
    due_times=[5.0, np.inf],
    weights=[1.0, 3.0],
    machine_due_times=[2.0, np.inf],
    machine_weights=[4.0, 1.0],
)
TARDINESS = Objective(makespan=1.0, weighted_tardiness=2.0, machine_tardiness=0.5)


NO_ARRIVALS = {"arrived_able": 0.0, "arrived_slowdown": 0.0, "arrived_fastest": 0.0}


def time(value: float) -> float:
    return asinh(value / 2.5)


def test_features_of_modes_by_hand() -> None:
    graph = observe(state_after(PLAN, TARDINESS, "plan"))
    assert_features(  # job 0 on machine 0: 1..3
        graph.modes[0, 0, 0],
        MODE_FEATURES,
        duration=time(2),
        over_fastest=0.0,
        end=time(3),
        end_over_job_best=0.0,
        end_over_machine_best=0.0,
        start=time(1),
        slack_at_end=time(2),
        setup=0.0,
        adds_makespan=time(2 / 2),  # from 1, when the last machine is free, to 3
        adds_weighted_tardiness=0.0,
        adds_machine_tardiness=time(0.5 * 4 * 1 / 2),
        adds_completion=0.0,
        adds_total=time((2 + 0.5 * 4 * 1) / 2),
        ratio_to_fastest=0.0,
        urgency=(log(0.5 / 0.8) - 0.8 / 2) / 2,
        demand=1.0,
        legal_now=1.0,
    )
    assert_features(  # job 0 on machine 1: 0..9
        graph.modes[0, 0, 1],
        MODE_FEATURES,
        duration=time(9),
        over_fastest=time(7),
        end=time(9),
        end_over_job_best=time(6),
        end_over_machine_best=time(5),
        start=0.0,
        slack_at_end=time(-4),
        setup=0.0,
        adds_makespan=time(8 / 2),
        adds_weighted_tardiness=time(2 * 1 * 4 / 2),
        adds_machine_tardiness=0.0,
        adds_completion=0.0,
        adds_total=time((8 + 8) / 2),
        ratio_to_fastest=log(4.5),
        urgency=log(0.5 / 3.6) / 2,
        demand=1.0,
        legal_now=1.0,
    )


def test_features_of_jobs_by_hand() -> None:
    graph = observe(state_after(PLAN, TARDINESS, "plan"))
    assert_features(
        graph.jobs[0, 0],
        JOB_FEATURES,
        fastest=time(2),
        regret_of_second_fastest=time(7),
        earliest_end=time(3),
        regret_of_second_end=time(6),
        ready_in=0.0,
        slack=time(2),
        waited=0.0,
        tail=0.0,
        weight=log1p(0.5),
        has_due_time=1.0,
        open_predecessors=0.0,
        ready_now=1.0,
    )
    assert_features(
        graph.jobs[0, 1],
        JOB_FEATURES,
        fastest=time(3),
        regret_of_second_fastest=time(1),
        earliest_end=time(4),
        regret_of_second_end=0.0,
        ready_in=0.0,
        slack=0.0,
        waited=0.0,
        tail=0.0,
        weight=log1p(1.5),
        has_due_time=0.0,
        open_predecessors=0.0,
        ready_now=1.0,
    )


def test_features_of_machines_and_of_the_whole_by_hand() -> None:
    graph = observe(state_after(PLAN, TARDINESS, "plan"))
    assert_features(
        graph.machines[0, 0],
        MACHINE_FEATURES,
        free_in=time(1),
        behind_last=0.0,
        due_in=time(1),
        weight=log1p(2.0),
        idle_now=0.0,
        has_due_time=1.0,
        share_fastest=log1p(2.0),  # of both jobs; 1 would be the mean share
        share_earliest=log1p(4 / 3),  # of job 0, and of job 1 as machine 1 is
        capacity=0.0,
        room=0.0,
        **NO_ARRIVALS,
    )
    assert_features(
        graph.machines[0, 1],
        MACHINE_FEATURES,
        free_in=0.0,
        behind_last=time(1),
        due_in=0.0,
        weight=log1p(0.5),
        idle_now=1.0,
        has_due_time=0.0,
        share_fastest=0.0,
        share_earliest=log1p(2 / 3),
        capacity=0.0,
        room=1.0,
        **NO_ARRIVALS,
    )
    assert_features(
        graph.overall[0],
        GLOBAL_FEATURES,
        jobs_per_machine=0.0,
        jobs=log(2) / 4,
        span=time(1),
        time_per_arrival=0.0,
        time_since_arrival=0.0,
        arrived_duration=0.0,
        dispatching=0.0,
        legal_share=1.0,
        arrivals_settled=0.0,
    )


def test_features_in_dispatch_with_precedence_and_units_by_hand() -> None:
    instance = Instance.from_matrix(
        np.array([[4.0, np.inf], [2.0, 6.0], [3.0, 1.0], [8.0, 8.0]]),
        capacity=[4, 1],
        demand=np.array([[3, 1], [2, 1], [1, 1], [1, 1]]),
        precedence=[[0, 2], [2, 3]],
        release_times=[0.0, 1.0, 1.0, 1.0],
    )
    state = state_after(instance, Objective(flow_time=1.0), "dispatch", [0])  # job 0: 0..4
    assert float(state.now) == 1.0
    graph = observe(state)  # jobs 1, 2 and 3 are visible; mean fastest duration 11 / 3
    unit = 11 / 3
    assert_features(
        graph.jobs[0, 2],
        JOB_FEATURES,
        fastest=asinh(1 / unit),
        regret_of_second_fastest=asinh(2 / unit),
        earliest_end=asinh(4 / unit),  # on machine 1: 4..5
        regret_of_second_end=asinh(2 / unit),
        ready_in=asinh(3 / unit),
        slack=0.0,
        waited=0.0,
        tail=asinh(8 / unit),
        weight=log1p(1.0),
        has_due_time=0.0,
        open_predecessors=0.0,  # it is running
        ready_now=0.0,
    )
    assert float(graph.jobs[0, 3, JOB_FEATURES.index("open_predecessors")]) == pytest.approx(log(2))
    assert_features(  # it takes 2 units and 1 is free: 4..6
        graph.modes[0, 1, 0],
        MODE_FEATURES,
        duration=asinh(2 / unit),
        over_fastest=0.0,
        end=asinh(5 / unit),
        end_over_job_best=0.0,
        end_over_machine_best=0.0,
        start=asinh(3 / unit),
        slack_at_end=0.0,
        setup=0.0,
        adds_makespan=0.0,
        adds_weighted_tardiness=0.0,
        adds_machine_tardiness=0.0,
        adds_completion=asinh(5 / unit),
        adds_total=asinh(5 / unit),
        ratio_to_fastest=0.0,
        urgency=log(unit / 2) / 2,
        demand=0.5,
        legal_now=0.0,
    )
    assert_features(
        graph.machines[0, 0],
        MACHINE_FEATURES,
        free_in=0.0,
        behind_last=0.0,
        due_in=0.0,
        weight=log1p(1.0),
        idle_now=1.0,
        has_due_time=0.0,
        share_fastest=log1p(2 / 4 * 2),  # jobs 1 and 3 of 4 best modes
        share_earliest=log1p(2 / 4 * 2),  # likewise
        capacity=log(4),
        room=0.25,
        arrived_able=1.0,
        arrived_slowdown=log(3) / 4,  # of job 2
        arrived_fastest=log1p(3 / 4 * 2),  # all but job 2; 1 would be the mean share
    )


def test_set_ups_show_in_the_modes() -> None:
    setups = np.zeros((3, 2, 1))
    setups[2, 0], setups[0, 1] = 5.0, 2.0
    instance = Instance.from_matrix([[4.0], [6.0]], setup_times=setups)
    objective = Objective(setup_time=3.0)
    fresh = observe(state_after(instance, objective, "plan")).modes[0, :, 0]
    after = observe(state_after(instance, objective, "plan", [0])).modes[0, 1, 0]
    setup, total = MODE_FEATURES.index("setup"), MODE_FEATURES.index("adds_total")
    assert fresh[:, setup].tolist() == pytest.approx([asinh(5 / 5), 0.0])
    assert fresh[:, total].tolist() == pytest.approx([asinh(3 * 5 / 5), 0.0])
    assert float(after[setup]) == pytest.approx(asinh(2 / 6))


@pytest.mark.parametrize("deciding", ["plan", "dispatch"])
def test_no_feature_is_ever_infinite_or_nan(deciding: str) -> None:
    everything = dict.fromkeys(("releases", "precedence", "lags", "parallel"), True)
    for seed, extra in enumerate(("shared", "setups", "shared", "setups")):
        rng = np.random.default_rng(seed)
        noisy = deciding == "dispatch"
        instances = [
            random_instance(rng, **everything, **{extra: True}, noisy=noisy) for _ in range(4)
        ]
        first = instances[0]
        instances[0] = replace(  # nothing is worth anything, nor ever due
            first,
            weights=0 * first.weights,
            due_times=np.full(first.num_jobs, np.inf),
            machine_weights=0 * first.machine_weights,
            machine_due_times=np.full(first.num_machines, np.inf),
        )
        state = State.initial(Problem.from_instances(instances), EVERYTHING, deciding)
        while True:
            graph = observe(state)
            for name in FEATURES:
                assert getattr(graph, name).isfinite().all(), name
                assert getattr(graph, name).abs().max() < LARGEST_FEATURE, name
            if bool(state.done.all()):
                break
            state.step(state.mask().int().argmax(1))
