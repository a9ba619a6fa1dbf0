"""The clock of dispatch: to which moment it moves, and what is known by then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hetsched.envs.timing import Timing

if TYPE_CHECKING:
    from hetsched.envs.simulator import State

INF = float("inf")


def advance(state: State, moving: Tensor) -> None:
    """Move the clock of rows ``moving`` (B,) bool to the next event at which a job can start.

    What has ended by then, in any row, is known from there on.
    """
    while bool(moving.any()):
        state.now = torch.where(moving, next_event(state), state.now)
        state.timing = Timing(state)
        moving = moving & ~state.timing.legal.flatten(1).any(1)
    if state.separate_beliefs:
        _learn_ends(state)
        state.timing = Timing(state)


def next_event(state: State) -> Tensor:
    """(B,): the next release or completion after now, infinity where there is none."""
    now = state.now[:, None]
    open_jobs = state.problem.job_mask & ~state.scheduled
    releases = state.problem.release_times.masked_fill(~open_jobs, INF)
    times = [releases, state.units.flatten(1)]
    if state.problem.arcs.shape[1]:
        waiting = open_jobs & state.timing.settled
        times.append(state.ready.masked_fill(~waiting[:, :, None], INF).flatten(1))
    all_times = torch.cat(times, dim=1)
    return all_times.masked_fill(all_times <= now, INF).amin(1)


def _learn_ends(state: State) -> None:
    """What has ended by now is known to have; what still runs is believed as before."""
    now = state.now[:, None, None]
    state.believed_units = torch.where(state.units <= now, state.units, state.believed_units)
    if state.problem.arcs.shape[1]:
        state.believed_ready = _ready_as_believed(state)


def _ready_as_believed(state: State) -> Tensor:
    """(B, J, 1) or (B, J, M): releases and predecessors' ends, true where they have ended."""
    problem = state.problem
    slot = state.chosen.clamp(min=0)[:, :, None]  # (B, J, 1)
    expected = state.starts + problem.processing_times.gather(2, slot).squeeze(2)  # (B, J)
    ends = torch.where(state.ends <= state.now[:, None], state.ends, expected)
    before, after = problem.arcs[:, :, 0], problem.arcs[:, :, 1]  # (B, A)
    counts = problem.arc_mask & state.scheduled.gather(1, before)
    end = ends.gather(1, before).masked_fill(~counts, -INF)[:, :, None]  # (B, A, 1)
    if state.ready.shape[2] > 1:
        machine = problem.mode_machines.gather(2, slot).squeeze(2).gather(1, before)  # (B, A)
        machines = torch.arange(state.ready.shape[2], device=problem.device)
        elsewhere = machines != machine[:, :, None]  # (B, A, M)
        end = end + torch.where(elsewhere, problem.arc_lags[:, :, None], 0.0)
    ready = problem.release_times[:, :, None].repeat(1, 1, state.ready.shape[2])
    index = after[:, :, None].expand(end.shape)
    return ready.scatter_reduce(1, index, end, "amax", include_self=True)
