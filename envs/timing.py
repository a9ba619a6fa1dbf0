"""Timing: the times that follow from a state, as believed and as they truly are."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hetsched.envs.problem import Problem
    from hetsched.envs.simulator import State

INF = float("inf")


class Timing:
    """What follows from a state until its next transition, computed once and on demand.

    ``believed`` times are what a policy may see; ``true`` times rule what happens.  They differ
    only where actual durations differ from expected ones.
    """

    def __init__(self, state: State) -> None:
        self.state = state

    @cached_property
    def visible(self) -> Tensor:
        """(B, J) bool: known and not started."""
        state = self.state
        open_jobs = state.problem.job_mask & ~state.scheduled
        if state.deciding == "plan":
            return open_jobs
        return open_jobs & (state.problem.release_times <= state.now[:, None])

    @cached_property
    def settled(self) -> Tensor:
        """(B, J) bool: all predecessors have been scheduled."""
        return self.state.open_predecessors == 0

    @cached_property
    def believed_free(self) -> Tensor:
        """(B, J, K): time from which the slot's machine is expected to have room."""
        state = self.state
        free = _room_from(state.problem, state.believed_units)
        return free if state.deciding == "plan" else free.clamp(min=state.now[:, None, None])

    @cached_property
    def true_free(self) -> Tensor:
        """(B, J, K): time from which the slot's machine really has room."""
        state = self.state
        if not state.separate_beliefs:
            return self.believed_free
        return _room_from(state.problem, state.units).clamp(min=state.now[:, None, None])

    @cached_property
    def setup(self) -> Tensor | None:
        """(B, J, K): set-up before the slot's job on its machine as it stands, None without."""
        state, problem = self.state, self.state.problem
        if problem.setup_times is None:
            return None
        batch = torch.arange(problem.batch_size, device=problem.device)[:, None, None]
        job = torch.arange(problem.num_jobs, device=problem.device)[None, :, None]
        machine = problem.mode_machines
        last = state.last_job.gather(1, machine.flatten(1)).view_as(machine)  # (B, J, K)
        return problem.setup_times[batch, last, job, machine]

    @cached_property
    def believed_start(self) -> Tensor:
        """(B, J, K): expected start of processing, infinity at empty slots."""
        ready = self.state.ready_on_slots(self.state.believed_ready)
        start = torch.maximum(self.believed_free, ready)
        if self.setup is not None:
            start = start + self.setup
        return start.masked_fill(~self.state.problem.mode_mask, INF)

    @cached_property
    def believed_end(self) -> Tensor:
        return self.believed_start + self.state.problem.processing_times

    @cached_property
    def legal(self) -> Tensor:
        """(B, J, K) bool: slots that may be chosen now."""
        state, problem = self.state, self.state.problem
        legal = problem.mode_mask & (self.visible & self.settled)[:, :, None]
        if state.deciding == "plan":
            return legal
        now = state.now[:, None, None]
        legal = legal & (state.ready_on_slots(state.ready) <= now)
        return legal & (self.true_free <= now)


def _room_from(problem: Problem, units: Tensor) -> Tensor:
    """(B, J, K): time from which ``demand`` units (B, M, U) of each slot's machine are free."""
    if units.shape[2] == 1:
        free = units[:, :, 0]  # (B, M)
        if problem.dense:
            return free[:, None, :].expand(problem.processing_times.shape)
        return free.gather(1, problem.mode_machines.flatten(1)).view(problem.processing_times.shape)
    ordered = units.sort(dim=2).values.flatten(1)  # (B, M * U)
    index = problem.mode_machines * units.shape[2] + problem.demand - 1  # (B, J, K)
    return ordered.gather(1, index.flatten(1)).view(index.shape)
