"""List rules: an order of the jobs, then the machine that completes the chosen one first.

None of them waits by choice.  In dispatch only the machines with room now are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hetsched.agents.rules_parts import INF, PerProblem, fastest_times, lay_out, two_level

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetsched.envs.problem import Problem
    from hetsched.envs.simulator import State


@dataclass(eq=False)
class ListRule:
    """Jobs by a key, smallest first, each on the machine with the earliest completion.

    Attributes:
        name: as the user calls it.
        key: state -> (B, J), the order of the jobs; ties by index.
    """

    name: str
    key: Callable[[State], Tensor]

    def scores(self, state: State) -> Tensor:
        """(B, J * K + 1): minus the job's rank, plus a preference below one for its machine."""
        return two_level(state, self.key(state))


def release_key(state: State) -> Tensor:
    """fifo: r_j."""
    return state.problem.release_times


def index_key(state: State) -> Tensor:
    """ect: the order in which the instance lists its jobs, whatever their release times."""
    return torch.zeros_like(state.problem.release_times)


def due_key(state: State) -> Tensor:
    """edd: d_j (Jackson 1955)."""
    return state.problem.due_times


def longest_key(state: State) -> Tensor:
    """lpt: -min_k p_jk (Graham 1969, with the fastest duration as the length of a job)."""
    return -fastest_times(state)


def weighted_key(state: State) -> Tensor:
    """wspt: -w_j / min_k p_jk (Smith 1956)."""
    return -state.problem.weights / fastest_times(state)


def max_min_key(state: State) -> Tensor:
    """max-min: minus the job's best completion among the slots that may be chosen now."""
    return -state.edge_end().masked_fill(~state.legal(), INF).amin(2)


def sufferage_key(state: State) -> Tensor:
    """sufferage: minus what the job loses if another job takes the machine that is best for it.

    The best completion is over the slots that may be chosen now, the second best over all other
    machines, busy ones included: a job whose other machines are busy may be better off waiting
    for one of them.  A job that can run on one machine only loses most.
    """
    problem = state.problem
    end = state.edge_end()  # (B, J, K)
    best, slot = end.masked_fill(~state.legal(), INF).min(2)  # (B, J)
    machine = problem.mode_machines.gather(2, slot[:, :, None])  # (B, J, 1)
    second = end.masked_fill(problem.mode_machines == machine, INF).amin(2)
    return (best - second).masked_fill(best == INF, INF)


@dataclass(eq=False)
class MinMinRule:
    """The pair of job and machine with the earliest completion (Ibarra and Kim 1977)."""

    name: str

    def scores(self, state: State) -> Tensor:
        """(B, J * K + 1): minus the expected completion, in mean fastest durations from now."""
        shift = state.now[:, None, None]
        return lay_out((shift - state.edge_end()) / state.problem.time_scale[:, None, None])


class HeftRule:
    """Jobs by upward rank, each on the machine with the earliest finish (HEFT).

    rank(j) = mean duration of the modes of j + max over successors i of (lag_ji + rank(i)).
    Source: Topcuoglu, Hariri and Wu, IEEE TPDS 13(3), 2002, equation 8.  Unlike the paper's, a
    job is never inserted into an idle gap before jobs that are already placed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._ranks = PerProblem(upward_ranks)

    def scores(self, state: State) -> Tensor:
        """(B, J * K + 1): as a list rule."""
        return two_level(state, -self._ranks(state.problem))


def upward_ranks(problem: Problem) -> Tensor:
    """(B, J): longest path of mean durations and lags from the job to a sink, itself included."""
    count = problem.mode_mask.sum(2).clamp(min=1)  # (B, J)
    mean = problem.processing_times.masked_fill(~problem.mode_mask, 0.0).sum(2) / count
    ranks = mean
    if problem.arcs.shape[1] == 0:
        return ranks
    before, after = problem.arcs.unbind(2)  # (B, A)
    for _ in range(problem.num_jobs):  # a path has fewer arcs than there are jobs
        along = problem.arc_lags + ranks.gather(1, after)  # (B, A)
        along = along.masked_fill(~problem.arc_mask, 0.0)
        tail = torch.zeros_like(mean).scatter_reduce_(1, before, along, "amax")
        longer = mean + tail
        if torch.equal(longer, ranks):
            break
        ranks = longer
    return ranks


class RandomRule:
    """Any legal edge with equal probability; waits only where it must."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self._generator = torch.Generator().manual_seed(seed)

    def scores(self, state: State) -> Tensor:
        """(B, J * K + 1): uniform in [0, 1) for edges; every call draws anew."""
        drawn = torch.rand(
            state.problem.processing_times.shape, generator=self._generator, dtype=torch.float64
        )
        return lay_out(drawn.to(state.problem.device))
