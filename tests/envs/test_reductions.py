"""Between machines, modes and jobs, by hand; signed logarithms against torch's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hetsched.envs.instance import Instance
from hetsched.envs.problem import Problem
from hetsched.envs.reductions import (
    as_rows,
    best_and_regret,
    count_per_machine,
    finite,
    on_modes,
    scaled_rows,
    signed_log,
    smallest_per_machine,
    tails_in_sight,
)

INF = math.inf
TIMES = np.array([[5.0, 1.0, 3.0], [2.0, 9.0, 4.0]])


@pytest.mark.parametrize("keep_fastest", [None, 2])
def test_machines_and_modes_meet_whether_slots_are_machines_or_not(
    keep_fastest: int | None,
) -> None:
    problem = Problem.from_instances([Instance.from_matrix(TIMES)], keep_fastest=keep_fastest)
    times, mask = problem.processing_times, problem.mode_mask
    assert smallest_per_machine(problem, times).tolist() == [[2.0, 1.0, 3.0]]
    expected = [[2.0, 2.0, 2.0]] if keep_fastest is None else [[1.0, 1.0, 2.0]]
    assert count_per_machine(problem, mask[:, None]).tolist() == [expected]
    values = torch.tensor([[10.0, 20.0, 30.0]])
    spread = on_modes(problem, values).expand(mask.shape)
    assert torch.equal(spread, 10.0 * (problem.mode_machines + 1))


def test_the_smallest_and_how_far_the_next_lies_behind() -> None:
    best, regret = best_and_regret(torch.tensor([[[5.0, 1.0, 3.0], [INF, 4.0, INF], [INF] * 3]]))
    assert best.tolist() == [[1.0, 4.0, INF]]
    assert finite(regret).tolist() == [[2.0, 0.0, 0.0]]
    best, regret = best_and_regret(torch.tensor([[[7.0]]]))
    assert (best.tolist(), regret.tolist()) == ([[7.0]], [[0.0]])


def test_signed_logs_are_asinh_from_tiny_to_huge() -> None:
    powers = 10.0 ** torch.arange(-30, 31, dtype=torch.float64)
    values = torch.cat([-powers, powers])[None].float()
    expected = values.double().asinh().float()
    torch.testing.assert_close(signed_log(values), expected, rtol=1e-6, atol=0.0)
    assert signed_log(torch.zeros(1, 1)).tolist() == [[0.0]]


def test_rows_are_scaled_per_instance_and_zero_where_not_finite() -> None:
    factor = torch.tensor([[0.5], [2.0]], dtype=torch.float64)
    one = torch.tensor([[[1.0, INF, 3.0]], [[4.0, -INF, math.nan]]]).double()  # (B, F, J)
    other = torch.tensor([[10.0], [20.0]]).double()  # (B, F)
    flat = scaled_rows(factor, [one, other])
    assert flat.dtype == torch.float32
    first, second = as_rows(flat, [one, other])
    assert first.tolist() == [[[0.5, 0.0, 1.5]], [[8.0, 0.0, 0.0]]]
    assert second.tolist() == [[5.0], [40.0]]


def test_tails_follow_visible_jobs_only() -> None:
    instance = Instance.from_matrix([[3.0], [5.0], [7.0]], precedence=[[0, 1], [1, 2]])
    problem = Problem.from_instances([instance])
    for seen, tails in ([True] * 3, [12.0, 7.0, 0.0]), ([True, True, False], [5.0, 0.0, 0.0]):
        assert tails_in_sight(problem, torch.tensor([seen])).tolist() == [tails]
