"""Graph: a state as features of jobs, machines and modes, free of units and sizes.

Times are shifted to the first moment at which a machine is free, divided by the mean fastest
duration of the visible jobs, and pass through a signed logarithm, so that scaling all times
changes nothing and heavy tails stay small.  Weights are divided by the mean weight of the visible
jobs.  Finished and running jobs are not part of the graph: what remains of them is the time at
which their machines are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hetsched.envs.simulator import State

JOB_FEATURES = (
    "fastest", "regret_of_second_fastest", "earliest_end", "regret_of_second_end", "ready_in",
    "slack", "has_due_time", "weight", "waited", "tail", "open_predecessors", "ready_now",
)  # fmt: skip
MACHINE_FEATURES = (
    "free_in", "behind_last", "idle_now", "due_in", "has_due_time", "weight", "share_fastest",
    "share_earliest", "capacity", "room",
)  # fmt: skip
MODE_FEATURES = (
    "duration", "over_fastest", "ratio_to_fastest", "end", "end_over_job_best",
    "end_over_machine_best", "start_wait", "setup", "slack_at_end", "urgency", "adds_makespan",
    "adds_weighted_tardiness", "adds_machine_tardiness", "adds_completion", "adds_total",
    "demand", "legal_now",
)  # fmt: skip
GLOBAL_FEATURES = ("jobs_per_machine", "jobs", "span", "dispatching", "legal_share")


@dataclass(frozen=True, eq=False)
class Graph:
    """Features (float32) and structure of a batch of B states.

    Attributes:
        jobs: (B, J, len(JOB_FEATURES)); machines: (B, M, len(MACHINE_FEATURES));
            modes: (B, J, K, len(MODE_FEATURES)); overall: (B, len(GLOBAL_FEATURES)).
        job_mask: (B, J) bool, visible jobs; machine_mask: (B, M) bool.
        mode_mask: (B, J, K) bool, modes of visible jobs.
        mode_machines: (B, J, K) int64, machine of each mode.
        arcs: (B, A, 2) int64; arc_mask: (B, A) bool, arcs between visible jobs.
        legal: (B, J * K + 1) bool, actions that may be chosen.
        dense: slot k of every job is machine k.
    """

    jobs: Tensor
    machines: Tensor
    modes: Tensor
    overall: Tensor
    job_mask: Tensor
    machine_mask: Tensor
    mode_mask: Tensor
    mode_machines: Tensor
    arcs: Tensor
    arc_mask: Tensor
    legal: Tensor
    dense: bool

    def rows(self, rows: Tensor) -> Graph:
        """The graph of the given rows (n,) int64 or (B,) bool of the batch."""
        return Graph(**{name: one[rows] for name, one in self._tensors().items()}, dense=self.dense)

    @staticmethod
    def concatenate(graphs: Sequence[Graph]) -> Graph:
        """One batch out of several of the same sizes."""
        parts = [graph._tensors() for graph in graphs]
        joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        return Graph(**joined, dense=graphs[0].dense)

    def _tensors(self) -> dict[str, Tensor]:
        return {name: one for name, one in self.__dict__.items() if isinstance(one, Tensor)}


def signed_log(values: Tensor) -> Tensor:
    """sign(x) log(1 + |x|); infinities become zero."""
    finite = torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    return finite.sign() * finite.abs().log1p()


def observe(state: State) -> Graph:
    """The graph of a state as its policy may see it."""
    problem, objective = state.problem, state.objective
    visible = state.visible() & ~state.done[:, None]  # (B, J)
    mode_mask = problem.mode_mask & visible[:, :, None]  # (B, J, K)
    count = visible.sum(1).clamp(min=1)  # (B,)
    machine_mask = problem.machine_mask  # (B, M)
    machines = machine_mask.sum(1)  # (B,)

    durations = problem.processing_times  # (B, J, K)
    two = _two_smallest(durations)
    fastest = two[..., 0]  # (B, J)
    scale = torch.where(visible, fastest, 0.0).sum(1) / count  # (B,)
    scale = torch.where(scale > 0, scale, problem.time_scale)
    per_time = (1.0 / scale)[:, None]  # (B, 1)
    per_time3 = per_time[:, :, None]  # (B, 1, 1)
    mean_weight = torch.where(visible, problem.weights, 0.0).sum(1) / count
    per_weight = (1.0 / torch.where(mean_weight > 0, mean_weight, 1.0))[:, None]  # (B, 1)

    free = state.machine_free().masked_fill(~machine_mask, float("inf"))  # (B, M)
    origin = free.amin(1, keepdim=True)  # (B, 1)
    if state.deciding == "dispatch":
        origin = state.now[:, None]
    last_free = _busy_until(state)  # (B, M), when the whole machine is free
    span = torch.maximum(last_free.amax(1, keepdim=True), origin)  # (B, 1)

    start, end = state.edge_start(), state.edge_end()  # (B, J, K)
    end = end.masked_fill(~mode_mask, float("inf"))
    two_ends = _two_smallest(end)
    job_best = two_ends[..., 0]  # (B, J)
    machine_best = _per_machine(end, problem.mode_machines, free.shape[1], problem.dense)  # (B, M)
    machine_best_on_modes = _on_modes(machine_best, problem.mode_machines, problem.dense)

    # ---- what choosing a mode adds to each term of the objective, at once
    weights = problem.weights[:, :, None]
    finish = _on_modes(last_free, problem.mode_machines, problem.dense)  # (B, J, K)
    new_finish = torch.maximum(finish, end)
    adds_makespan = (end - span[:, :, None]).clamp(min=0.0)
    late = (end - problem.due_times[:, :, None]).clamp(min=0.0)
    tardiness = objective.weighted_tardiness * weights * late
    machine_due = _on_modes(problem.machine_due_times, problem.mode_machines, problem.dense)
    machine_weight = _on_modes(problem.machine_weights, problem.mode_machines, problem.dense)
    adds_machine = machine_weight * (
        (new_finish - machine_due).clamp(min=0.0) - (finish - machine_due).clamp(min=0.0)
    )
    completion_weight = objective.weighted_completion * weights + objective.flow_time
    adds_completion = completion_weight * (end - origin[:, :, None])
    setup = state.timing.setup
    per_cost = per_time3 * per_weight[:, :, None]
    total = (
        objective.makespan * adds_makespan
        + tardiness
        + objective.machine_tardiness * adds_machine
        + adds_completion
    )
    if setup is not None:
        total = total + objective.setup_time * setup

    zeros = torch.zeros_like(end)
    legal = state.legal()
    slack_at_end = (problem.due_times[:, :, None] - end) * per_time3
    # Apparent tardiness cost (Vepsalainen & Morton 1987) with look-ahead 2, as a logarithm.
    urgency = (weights * per_weight[:, :, None] / (durations * per_time3)).log() - (
        torch.nan_to_num(slack_at_end, posinf=0.0, neginf=0.0, nan=0.0).clamp(min=0.0) / 2
    )
    mode_values = (
        signed_log(durations * per_time3),
        signed_log((durations - fastest[:, :, None]) * per_time3),
        torch.nan_to_num((durations / fastest[:, :, None]).log(), posinf=0.0, nan=0.0),
        signed_log((end - origin[:, :, None]) * per_time3),
        signed_log((end - job_best[:, :, None]) * per_time3),
        signed_log((end - machine_best_on_modes) * per_time3),
        signed_log((start - origin[:, :, None]) * per_time3),
        zeros if setup is None else signed_log(setup * per_time3),
        signed_log(slack_at_end),
        torch.nan_to_num(urgency, nan=0.0, posinf=0.0, neginf=0.0).clamp(-10, 10) / 2,
        signed_log(objective.makespan * adds_makespan * per_cost),
        signed_log(tardiness * per_cost),
        signed_log(objective.machine_tardiness * adds_machine * per_cost),
        signed_log(adds_completion * per_cost),
        signed_log(total * per_cost),
        (problem.demand / _on_modes(problem.capacity, problem.mode_machines, problem.dense)),
        legal,
    )
    modes = torch.stack([value.float() for value in mode_values], dim=-1)  # (B, J, K, F)
    modes = modes.masked_fill(~mode_mask[..., None], 0.0)

    has_due = problem.due_times.isfinite()
    ready = state.believed_ready.amin(2)  # (B, J)
    candidates = state.candidates()
    job_values = (
        signed_log(fastest * per_time),
        signed_log((two[..., 1] - fastest) * per_time),
        signed_log((job_best - origin) * per_time),
        signed_log((two_ends[..., 1] - job_best) * per_time),
        signed_log((ready - origin).clamp(min=0.0) * per_time),
        signed_log((problem.due_times - job_best - problem.tails) * per_time),
        has_due,
        (problem.weights * per_weight).log1p(),
        signed_log((origin - problem.release_times).clamp(min=0.0) * per_time),
        signed_log(problem.tails * per_time),
        state.open_predecessors.float().log1p(),
        candidates,
    )
    jobs = torch.stack([value.float() for value in job_values], dim=-1)  # (B, J, F)
    jobs = jobs.masked_fill(~visible[..., None], 0.0)

    shares = [
        _share(values, best, mode_mask, problem.mode_machines, machine_mask, problem.dense)
        for values, best in ((durations, fastest), (end, job_best))
    ]
    room = (state.believed_units <= origin[:, :, None]).sum(2)  # (B, M)
    machine_values = (
        signed_log((free - origin) * per_time),
        # How long a machine has been idle is over and done with: live states do not know it.
        signed_log((span - torch.maximum(last_free, origin)) * per_time),
        free <= origin,
        signed_log((problem.machine_due_times - last_free) * per_time),
        problem.machine_due_times.isfinite(),
        (problem.machine_weights * per_weight).log1p(),
        shares[0],
        shares[1],
        problem.capacity.float().log(),
        room / problem.capacity,
    )
    machine = torch.stack([value.float() for value in machine_values], dim=-1)  # (B, M, F)
    machine = machine.masked_fill(~machine_mask[..., None], 0.0)

    mask = state.mask()
    overall = torch.stack(
        [
            (count / machines).log(),
            count.log() / 4,
            signed_log((span - origin).squeeze(1) / scale),
            torch.full_like(scale, float(state.deciding == "dispatch")),
            mask[:, :-1].sum(1) / mode_mask.sum((1, 2)).clamp(min=1),
        ],
        dim=1,
    ).float()  # (B, F)
    arc_mask = problem.arc_mask
    if problem.arcs.shape[1]:
        ends_visible = visible.gather(1, problem.arcs.flatten(1)).view(problem.arcs.shape)
        arc_mask = arc_mask & ends_visible.all(2)
    return Graph(
        jobs=jobs,
        machines=machine,
        modes=modes,
        overall=overall,
        job_mask=visible,
        machine_mask=machine_mask,
        mode_mask=mode_mask,
        mode_machines=problem.mode_machines,
        arcs=problem.arcs,
        arc_mask=arc_mask,
        legal=mask,
        dense=problem.dense,
    )


def _busy_until(state: State) -> Tensor:
    """(B, M): expected time at which a machine has nothing left to do, zero at padding."""
    units = state.believed_units
    return units.masked_fill(units == float("inf"), 0.0).amax(2)


def _two_smallest(values: Tensor) -> Tensor:
    """(..., 2): the smallest and second smallest of the last axis (twice the same if only one)."""
    if values.shape[-1] == 1:
        return values.expand(*values.shape[:-1], 2)
    two = values.topk(2, dim=-1, largest=False, sorted=True).values
    return torch.where(two.isfinite(), two, two[..., :1])


def _on_modes(values: Tensor, mode_machines: Tensor, dense: bool) -> Tensor:
    """(B, J, K): a machine's value (B, M) at each of the modes on it."""
    if dense:
        return values[:, None, :].expand(mode_machines.shape)
    return values.gather(1, mode_machines.flatten(1)).view(mode_machines.shape)


def _per_machine(values: Tensor, mode_machines: Tensor, machines: int, dense: bool) -> Tensor:
    """(B, M): the smallest value (B, J, K) among a machine's modes, infinity where none."""
    if dense:
        return values.amin(1)
    out = values.new_full((values.shape[0], machines), float("inf"))
    return out.scatter_reduce(1, mode_machines.flatten(1), values.flatten(1), "amin")


def _share(
    values: Tensor,
    best: Tensor,
    mode_mask: Tensor,
    mode_machines: Tensor,
    machine_mask: Tensor,
    dense: bool,
) -> Tensor:
    """(B, M): for how many of the visible jobs a machine is the best, relative to 1/machines."""
    is_best = ((values <= best[:, :, None]) & mode_mask).float()  # (B, J, K)
    if dense:
        number = is_best.sum(1)  # (B, M)
    else:
        number = is_best.new_zeros(machine_mask.shape)
        number = number.scatter_add(1, mode_machines.flatten(1), is_best.flatten(1))
    total = number.sum(1, keepdim=True).clamp(min=1)
    return (number / total * machine_mask.sum(1, keepdim=True)).log1p()
