"""A lower bound of the objective that meets the cost when everything is scheduled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hetsched.envs.simulator import State


def objective_bound(state: State) -> Tensor:
    """(B,) float64: what the objective will be at least.

    A job that is not scheduled completes no sooner than its best mode allows when every machine
    does nothing else from now on: max(machine free, head of the job) + true duration, where the
    head follows releases, predecessors and, in dispatch, the clock.  The makespan is no less than
    any completion and the longest path of fastest durations behind it.  Set-ups to come count as
    zero.  Deciding only moves machines and heads later, so the bound never falls.
    """
    problem, objective = state.problem, state.objective
    completion = _completions(state)  # (B, J), zero at padding
    exists = problem.job_mask
    zero = torch.zeros(problem.batch_size, dtype=torch.float64, device=problem.device)
    terms = dict.fromkeys(objective.active_terms(), zero)
    if "makespan" in terms or "machine_tardiness" in terms:
        finish = state.units.masked_fill(state.units == float("inf"), 0.0).amax(2)  # (B, M)
        if "makespan" in terms:
            # Tails are of expected durations: where those may be too long they bound nothing.
            path = completion if problem.noisy else completion + problem.tails
            terms["makespan"] = torch.maximum(finish.amax(1), path.amax(1))
        if "machine_tardiness" in terms:
            late = (finish - problem.machine_due_times).clamp(min=0.0)
            terms["machine_tardiness"] = (problem.machine_weights * late).sum(1)
    if "weighted_tardiness" in terms:
        late = (completion - problem.due_times).clamp(min=0.0)
        terms["weighted_tardiness"] = (problem.weights * late).sum(1)
    if "weighted_completion" in terms:
        terms["weighted_completion"] = (problem.weights * completion).sum(1)
    if "flow_time" in terms:
        flow = (completion - problem.release_times).masked_fill(~exists, 0.0)
        terms["flow_time"] = flow.sum(1)
    if "setup_time" in terms:
        terms["setup_time"] = state.setups.sum(1)
    return objective.value(terms, exists.sum(1))


def _completions(state: State) -> Tensor:
    """(B, J): completion of scheduled jobs, a lower bound of the others', zero at padding."""
    problem = state.problem
    ready = torch.maximum(state.ready_on_slots(state.ready), problem.heads[:, :, None])
    start = torch.maximum(state.timing.true_free, ready)  # (B, J, K)
    if state.deciding == "dispatch":
        start = torch.maximum(start, state.now[:, None, None])
    soonest = (start + problem.actual_times).amin(2)
    completion = torch.where(state.scheduled, state.ends, soonest)
    return completion.masked_fill(~problem.job_mask, 0.0)
