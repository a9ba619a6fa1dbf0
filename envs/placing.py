"""Placing: what changes in a state when a job gets its mode and its times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hetsched.envs.simulator import State


def place(
    state: State,
    rows: Tensor,
    jobs: Tensor,
    slots: Tensor,
    start: Tensor,
    end: Tensor,
    believed_end: Tensor,
) -> None:
    """Schedule one job in each of the given rows; the clock stays, timing is not renewed.

    Args:
        rows, jobs, slots: (R,) int64, no row twice.
        start, end, believed_end: (R,) float64, of processing; a set-up lies before the start.
    """
    problem = state.problem
    machine = problem.mode_machines[rows, jobs, slots]
    if problem.setup_times is not None:
        last = state.last_job[rows, machine]
        state.setups[rows, jobs] = problem.setup_times[rows, last, jobs, machine]
    state.last_job[rows, machine] = jobs
    state.scheduled[rows, jobs] = True
    state.chosen[rows, jobs] = slots
    state.starts[rows, jobs], state.ends[rows, jobs] = start, end
    if state.units.shape[2] == 1:
        state.units[rows, machine, 0] = end
        if state.separate_beliefs:
            state.believed_units[rows, machine, 0] = believed_end
    else:
        _occupy(state, rows, machine, problem.demand[rows, jobs, slots], end, believed_end)
    if problem.arcs.shape[1]:
        _release_successors(state, rows, jobs, machine, end, believed_end)


def _occupy(
    state: State, rows: Tensor, machine: Tensor, demand: Tensor, end: Tensor, believed_end: Tensor
) -> None:
    """Give the job the units of its machine that are free first; all arguments (R,)."""
    units = state.units[rows, machine]  # (R, U)
    order = units.argsort(dim=1, stable=True)
    taken = torch.arange(units.shape[1], device=units.device) < demand[:, None]  # (R, U)
    taken = torch.zeros_like(taken).scatter(1, order, taken)
    state.units[rows, machine] = torch.where(taken, end[:, None], units)
    if state.separate_beliefs:
        believed = state.believed_units[rows, machine]
        state.believed_units[rows, machine] = torch.where(taken, believed_end[:, None], believed)


def _release_successors(
    state: State, rows: Tensor, jobs: Tensor, machine: Tensor, end: Tensor, believed_end: Tensor
) -> None:
    """Tell the successors of the jobs when they can start; all arguments (R,)."""
    problem = state.problem
    leaving = problem.arc_mask[rows] & (problem.arcs[rows, :, 0] == jobs[:, None])  # (R, A)
    at, arc = leaving.nonzero(as_tuple=True)  # (L,)
    row, after = rows[at], problem.arcs[rows[at], arc, 1]
    state.open_predecessors.index_put_((row, after), torch.full_like(after, -1), accumulate=True)
    machines = torch.arange(state.ready.shape[2], device=problem.device)  # (M,) or (1,)
    elsewhere = machines != machine[at][:, None] if len(machines) > 1 else machines > 0
    lag = torch.where(elsewhere, problem.arc_lags[row, arc][:, None], 0.0)  # (L, M)
    # No two arcs of one job lead to the same successor, so plain assignment is safe.
    state.ready[row, after] = torch.maximum(state.ready[row, after], end[at][:, None] + lag)
    if state.separate_beliefs:
        state.believed_ready[row, after] = torch.maximum(
            state.believed_ready[row, after], believed_end[at][:, None] + lag
        )
