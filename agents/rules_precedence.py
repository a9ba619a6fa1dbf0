"""Rules for precedence: most work remaining, most operations remaining, and ATC for whole tails.

All stand behind the gate of ``rules_index.py``: a mode may be chosen only if no other machine is
expected to complete its job sooner.  Of the modes behind the gate those with the earliest start
compete, so that decisions follow the order of time.  In dispatch only what starts now competes,
and where the gate holds every mode back the rule waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from hetsched.agents.rules_parts import (
    ENDLESS_SLACK,
    INF,
    PerProblem,
    acting_first,
    tolerance,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hetsched.envs.problem import Problem
    from hetsched.envs.simulator import State


@dataclass(eq=False)
class TailRule:
    """Of the modes that can start first behind the gate, the job with the longest tail.

    Attributes:
        name: as the user calls it.
        tail: problem -> (B, J), what lies behind a job, itself included.
    """

    name: str
    tail: Callable[[Problem], Tensor]

    def __post_init__(self) -> None:
        self._tails = PerProblem(self.tail)

    def scores(self, state: State) -> Tensor:
        """(B, J * K + 1): the tail at competing modes, lower than WAIT elsewhere."""
        index = self._tails(state.problem)[:, :, None]
        return acting_first(state, _competing(state), index.expand_as(state.edge_end()))


def remaining_work(problem: Problem) -> Tensor:
    """(B, J): longest path of fastest durations from the start of a job.

    In a job shop this is the work that remains of the job: MWKR (see Haupt, OR Spektrum 11, 1989);
    in other graphs the level of highest-level-first scheduling (Adam, Chandy and Dickson, 1974).
    """
    return problem.tails + _finite_fastest(problem)


def remaining_operations(problem: Problem) -> Tensor:
    """(B, J): number of jobs on the longest path behind a job, itself included: MOPNR."""
    count = torch.ones_like(problem.tails)
    before, after = problem.arcs.unbind(2)  # (B, A)
    for _ in range(problem.num_jobs):  # as many rounds as the longest path has jobs
        through = (1.0 + count.gather(1, after)).masked_fill(~problem.arc_mask, 0.0)
        longer = count.scatter_reduce(1, before, through, "amax")
        if torch.equal(longer, count):
            break
        count = longer
    return count


@dataclass(eq=False)
class AtcTailsRule:
    """Apparent tardiness cost, summed over a job and all that has to wait for it.

    sum_i w_i / (p_j + L_ji) exp(-max(0, d_i - t - p_j - L_ji) / (k p_mean)) over the job i = j
    (L_jj = 0) and its successors, direct or not, with L_ji the longest path of fastest durations
    from the end of j to the end of i, t the earliest start behind the gate and p_mean the mean
    fastest duration of the visible jobs.  Without precedence this is ATC (Vepsalainen and Morton,
    1987); that a job is urgent for what waits for it is the idea of the weighted tardiness indices
    for assembly trees and job shops in Morton and Pentico, Heuristic Scheduling Systems (1993).

    Attributes:
        name: as the user calls it.
        k: look-ahead, > 0; larger values count jobs as urgent earlier.
    """

    name: str
    k: float = 1.0
    _paths: PerProblem[Tensor] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._paths = PerProblem(path_lengths)

    def scores(self, state: State) -> Tensor:
        """(B, J * K + 1): log index at competing modes, lower than WAIT elsewhere."""
        problem, competing = state.problem, _competing(state)
        fastest = _finite_fastest(problem)
        when = state.edge_start().masked_fill(~competing, INF).amin((1, 2))  # (B,)
        when = when.masked_fill(when == INF, 0.0)
        visible = state.visible()
        total = fastest.masked_fill(~visible, 0.0).sum(1)
        mean = (total / visible.sum(1).clamp(min=1)).clamp(min=1e-300)  # (B,)
        path = fastest[:, :, None] + self._paths(problem)  # (B, J, J), minus infinity without one
        slack = problem.due_times[:, None, :] - when[:, None, None] - path
        waits = (slack / (self.k * mean[:, None, None])).clamp(min=0.0, max=ENDLESS_SLACK)
        weight = problem.weights.clamp(min=1e-300)[:, None, :]
        terms = (weight / path.clamp(min=1e-300)).log() - waits
        index = terms.masked_fill(path == -INF, -INF).logsumexp(2)  # (B, J), finite: i = j exists
        return acting_first(state, competing, index[:, :, None].expand_as(state.edge_end()))


def path_lengths(problem: Problem) -> Tensor:
    """(B, J, J): longest path of fastest durations from the end of a job to the end of another.

    Zero on the diagonal, minus infinity where no path leads.
    """
    fastest = _finite_fastest(problem)
    jobs = problem.num_jobs
    lengths = fastest.new_full((problem.batch_size, jobs, jobs), -INF)
    lengths.diagonal(dim1=1, dim2=2).zero_()
    before, after = (ends[:, :, None].expand(-1, -1, jobs) for ends in problem.arcs.unbind(2))
    step = fastest.gather(1, problem.arcs[:, :, 1])[:, :, None]  # (B, A, 1)
    for _ in range(jobs):  # as many rounds as the longest path has jobs
        through = (step + lengths.gather(1, after)).masked_fill(~problem.arc_mask[:, :, None], -INF)
        longer = lengths.scatter_reduce(1, before, through, "amax")
        if torch.equal(longer, lengths):
            break
        lengths = longer
    return lengths


def _finite_fastest(problem: Problem) -> Tensor:
    """(B, J): fastest durations, zero at padding."""
    return problem.processing_times.amin(2).masked_fill(~problem.job_mask, 0.0)


def _competing(state: State) -> Tensor:
    """(B, J, K) bool: legal modes behind the gate that start first; in dispatch all start now."""
    end, tol = state.edge_end(), tolerance(state)
    behind = state.legal() & (end <= end.amin(2, keepdim=True) + tol) & (end < INF)
    start = state.edge_start()
    return behind & (start <= start.masked_fill(~behind, INF).amin((1, 2), keepdim=True) + tol)
