"""Arrivals: what the jobs that have come so far tell about those still to come (dispatch)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hetsched.envs.reductions import finite

if TYPE_CHECKING:
    from hetsched.envs.problem import Problem
    from hetsched.envs.simulator import State

INF = float("inf")
ENOUGH = 8  # arrivals after which their means are taken for settled


@dataclass(frozen=True, eq=False)
class Arrivals:
    """What is kept of jobs that have arrived, whatever has become of them.

    Attributes:
        sums: (B, 2 + 3 M) float64, sums of :func:`per_job`.
        first, last: (B, 1) float64, times of the first and the latest arrival; infinity and minus
            infinity where nothing has arrived.
    """

    sums: Tensor
    first: Tensor
    last: Tensor

    @classmethod
    def of(cls, problem: Problem, arrived: Tensor) -> Arrivals:
        """Of the jobs (B, J) bool of a problem."""
        release = problem.release_times
        return cls(
            sums=(arrived.double()[:, None] @ problem.statics.arrival).squeeze(1),
            first=release.masked_fill(~arrived, INF).amin(1, keepdim=True),
            last=release.masked_fill(~arrived, -INF).amax(1, keepdim=True),
        )

    def __add__(self, other: Arrivals) -> Arrivals:
        return Arrivals(
            self.sums + other.sums,
            torch.minimum(self.first, other.first),
            torch.maximum(self.last, other.last),
        )


def per_job(problem: Problem, fastest: Tensor) -> Tensor:
    """(B, J, 2 + 3 M) float64, what is summed over jobs.

    One, the fastest duration (B, J), and for each machine: whether the job can run there, the
    logarithm of its least duration there over its fastest, and whether that is its fastest.
    """
    exists, on_machine = problem.job_mask, problem.processing_times
    if not problem.dense:
        shape = *exists.shape, problem.num_machines
        empty = on_machine.new_full(shape, INF)
        on_machine = empty.scatter_reduce(2, problem.mode_machines, on_machine, "amin")
    runs = on_machine < INF  # (B, J, M)
    slower = finite((on_machine / fastest[..., None]).log()) * runs
    best = runs & (on_machine <= fastest[..., None])
    alone = torch.stack([exists.double(), fastest], dim=2)
    return torch.cat([alone, runs.double(), slower, best.double()], dim=2)


def arrival_features(state: State) -> tuple[Tensor, Tensor, Tensor]:
    """Times (B, 3), another feature (B, 1), and features of machines (B, 3, M); zero in a plan.

    Elapsed time per arrival, time since the latest one, and mean fastest duration of all that have
    arrived; how settled such means are; and for each machine the share of arrivals that can run
    on it, the mean logarithm of their duration there over their fastest, and the share of
    arrivals that are fastest there, relative to an even share.
    """
    problem, static = state.problem, state.problem.statics
    if state.deciding == "plan":
        return static.no_arrivals
    known = Arrivals.of(problem, state.counted & (problem.release_times <= state.now[:, None]))
    if state.past is not None:
        known = known + state.past
    machines = problem.num_machines
    count, work, runs, slower, best = known.sums.split([1, 1, *[machines] * 3], dim=1)
    number, now = count.clamp(min=1.0), state.now[:, None]
    times = torch.cat([(now - known.first) / number, now - known.last, work / number], dim=1)
    settled = (count / ENOUGH).clamp(max=1.0).float()
    shares = torch.stack(
        [
            runs / number,
            slower / runs.clamp(min=1.0),
            (best / number * static.machines).log1p(),
        ],
        dim=1,
    )
    return finite(times), settled, shares.float()
