"""What a policy may know of the rhythm and the kind of arrivals."""

from __future__ import annotations

from math import asinh, log, log1p

import numpy as np
import pytest
import torch

from hetsched.envs.arrivals import Arrivals
from hetsched.envs.features import observe
from hetsched.envs.graph import GLOBAL_FEATURES, MACHINE_FEATURES
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.tests.envs.decisions import state_after

FLOW = Objective(flow_time=1.0)
# Job 0 starts at 10 and ends at 12; jobs 1 and 2 come at 14 and 16, job 3 never in time.
INSTANCE = Instance.from_matrix(
    np.array([[2.0, 8.0], [6.0, 3.0], [4.0, np.inf], [1.0, 100.0]]),
    release_times=[10.0, 14.0, 16.0, 50.0],
)


def at_sixteen() -> State:
    """Jobs 0 and 1 have started on their fastest machines, job 2 has just come."""
    state = state_after(INSTANCE, FLOW, "dispatch", [0, 1 * 2 + 1])
    assert float(state.now) == 16.0
    return state


def test_arrivals_by_hand() -> None:
    graph = observe(at_sixteen())
    overall = dict(zip(GLOBAL_FEATURES, graph.overall[0].tolist(), strict=True))
    unit = 4.0  # job 2, the only one in sight
    assert overall["time_per_arrival"] == pytest.approx(asinh(6 / 3 / unit))
    assert overall["time_since_arrival"] == 0.0
    assert overall["arrived_duration"] == pytest.approx(asinh((2 + 3 + 4) / 3 / unit))
    assert overall["arrivals_settled"] == pytest.approx(3 / 8)
    first, second = (
        dict(zip(MACHINE_FEATURES, row, strict=True)) for row in graph.machines[0].tolist()
    )
    assert first["arrived_able"] == pytest.approx(1.0)
    assert first["arrived_slowdown"] == pytest.approx(log(2) / 3)
    assert first["arrived_fastest"] == pytest.approx(log1p(2 / 3 * 2))
    assert second["arrived_able"] == pytest.approx(2 / 3)
    assert second["arrived_slowdown"] == pytest.approx(log(4) / 2)
    assert second["arrived_fastest"] == pytest.approx(log1p(1 / 3 * 2))


def test_the_slots_of_a_list_count_at_their_machines() -> None:
    state = at_sixteen()
    listed = State(Problem.from_instances([INSTANCE], keep_fastest=1), FLOW, "dispatch")
    assert not listed.problem.dense
    listed.now = state.now.clone()
    found = Arrivals.of(listed.problem, torch.tensor([[True, True, True, False]]))
    assert found.sums[0].tolist() == [3.0, 9.0, 2.0, 1.0, 0.0, 0.0, 2.0, 1.0]


def test_nothing_is_told_in_a_plan() -> None:
    graph = observe(state_after(INSTANCE, FLOW, "plan"))
    told = [name for name in GLOBAL_FEATURES if "arriv" in name]
    assert all(float(graph.overall[0, GLOBAL_FEATURES.index(name)]) == 0.0 for name in told)
    assert not bool(graph.machines[:, :, -3:].any())
