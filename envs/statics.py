"""Statics: what features need of a problem alone, so that it is computed once and not per state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hetsched.envs.arrivals import per_job
from hetsched.envs.reductions import best_and_regret, finite, on_modes

if TYPE_CHECKING:
    from hetsched.envs.problem import Problem


@dataclass(frozen=True, eq=False)
class Statics:
    """Float64 where a state's times are added to it, float32 where it is a feature as it stands.

    Attributes:
        fastest, regret: (B, J), smallest duration of a job, and how far the second smallest lies
            behind it; zero at padding.
        over_fastest: (B, J, K), duration over the job's smallest.
        is_fastest: (B, J, K) bool, none is smaller.
        log_ratio: (B, J, K) float32, logarithm of the duration over the job's smallest.
        urgency: (B, J, K) float32, logarithm of weight over duration, in units of ``time_scale``.
        demand: (B, J, K) float32, share of the machine's units.
        latest: (B, J), due time less the longest path behind the job.
        has_due_time: (B, J) float32; machine_has_due_time: (B, M) float32.
        totals: (B, J, 3), what sums over jobs are taken of: one, fastest duration, weight.
        arrival: (B, J, 2 + 3 M), what sums over arrivals are taken of
            (:func:`hetsched.envs.arrivals.per_job`), and no_arrivals: their features in a plan.
        otherwise: (B, 2), mean fastest duration and mean weight where no job is visible.
        log_capacity: (B, M) float32.
        machines: (B, 1), number of machines; log_machines: (B, 1).
        no_machine: (B, M) bool, padding; all_machines: there is none.
    """

    fastest: Tensor
    regret: Tensor
    over_fastest: Tensor
    is_fastest: Tensor
    log_ratio: Tensor
    urgency: Tensor
    demand: Tensor
    latest: Tensor
    has_due_time: Tensor
    machine_has_due_time: Tensor
    totals: Tensor
    arrival: Tensor
    no_arrivals: tuple[Tensor, Tensor, Tensor]
    otherwise: Tensor
    log_capacity: Tensor
    machines: Tensor
    log_machines: Tensor
    no_machine: Tensor
    all_machines: bool

    @staticmethod
    def of(problem: Problem) -> Statics:
        """Compute them; :attr:`Problem.statics` keeps the result."""
        durations, exists = problem.processing_times, problem.job_mask
        fastest, regret = best_and_regret(durations)
        fastest = fastest.masked_fill(~exists, 0.0)
        weighted = (problem.weights * problem.time_scale[:, None])[..., None]  # (B, J, 1)
        capacity = on_modes(problem, problem.capacity)
        machines = problem.machine_mask.sum(1, keepdim=True).double()
        return Statics(
            fastest=fastest,
            regret=finite(regret),
            over_fastest=durations - fastest[..., None],
            is_fastest=durations <= fastest[..., None],
            log_ratio=finite((durations / fastest[..., None]).log()).float(),
            urgency=(weighted / durations).log().float(),
            demand=(problem.demand / capacity).float(),
            latest=problem.due_times - problem.tails,
            has_due_time=problem.due_times.isfinite().float(),
            machine_has_due_time=problem.machine_due_times.isfinite().float(),
            totals=torch.stack([exists.double(), fastest, problem.weights], dim=2),
            arrival=per_job(problem, fastest),
            no_arrivals=_no_arrivals(problem),
            otherwise=torch.stack([problem.time_scale, torch.ones_like(problem.time_scale)], dim=1),
            log_capacity=problem.capacity.float().log(),
            machines=machines,
            log_machines=machines.log(),
            no_machine=~problem.machine_mask,
            all_machines=bool(problem.machine_mask.all()),
        )


def _no_arrivals(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """What :func:`hetsched.envs.arrivals.arrival_features` gives in a plan."""
    batch, machines = problem.machine_mask.shape
    zero = problem.time_scale.new_zeros(batch, 3)
    return zero, zero[:, :1].float(), zero.new_zeros(batch, 3, machines, dtype=torch.float32)
