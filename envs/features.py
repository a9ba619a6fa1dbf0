"""From states to graphs: features of jobs, machines and modes, free of units and sizes.

Times are shifted to now (in a plan: to the first moment at which a machine is free), divided by
the mean fastest duration of the visible jobs, and pass through the inverse hyperbolic sine, a
signed logarithm: scaling all times changes nothing and heavy tails stay small.  Weights are
divided by the mean weight of the visible jobs.  Jobs that are finished or running are not part of
the graph: what remains of them is the time at which their machines are free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hetsched.envs.graph import Graph

if TYPE_CHECKING:
    from hetsched.envs.simulator import State

INF = float("inf")


def observe(state: State) -> Graph:
    """The graph of a state, as its policy may see it."""
    problem = state.problem
    frame = _frame(state)
    mask = state.mask()
    overall = torch.stack(
        [
            (frame.count / frame.machines).log(),
            frame.count.log() / 4,
            ((frame.span - frame.origin) * frame.per_time).squeeze(1).asinh(),
            torch.full_like(frame.count, float(state.deciding == "dispatch")),
            mask[:, :-1].sum(1) / frame.mode_mask.sum((1, 2)).clamp(min=1),
        ],
        dim=1,
    )  # (B, F)
    arc_mask = problem.arc_mask
    if problem.arcs.shape[1]:
        ends = frame.visible.gather(1, problem.arcs.flatten(1)).view(problem.arcs.shape)
        arc_mask = arc_mask & ends.all(2)
    return Graph(
        jobs=_job_features(state, frame),
        machines=_machine_features(state, frame),
        modes=_mode_features(state, frame),
        overall=overall.float(),
        job_mask=frame.visible,
        machine_mask=problem.machine_mask,
        mode_mask=frame.mode_mask,
        mode_machines=problem.mode_machines,
        arcs=problem.arcs,
        arc_mask=arc_mask,
        legal=mask,
        dense=problem.dense,
    )


@dataclass(frozen=True, eq=False)
class _Frame:
    """What the features are relative to, and what they share.

    Shapes: ``visible`` (B, J), ``mode_mask``, ``start``, ``end`` (B, J, K), ``count``, ``machines``
    (B,), ``origin``, ``span``, ``per_time``, ``per_weight`` (B, 1), ``free``, ``busy_until``
    (B, M), ``fastest``, ``ends`` (B, J, 2): the two smallest durations and ends of each job.
    """

    visible: Tensor
    mode_mask: Tensor
    count: Tensor
    machines: Tensor
    per_time: Tensor
    per_weight: Tensor
    origin: Tensor
    span: Tensor
    free: Tensor
    busy_until: Tensor
    start: Tensor
    end: Tensor
    fastest: Tensor
    ends: Tensor


def _frame(state: State) -> _Frame:
    problem = state.problem
    visible = state.visible() & ~state.done[:, None]
    mode_mask = problem.mode_mask & visible[:, :, None]
    count = visible.sum(1).clamp(min=1).double()
    fastest = _two_smallest(problem.processing_times)
    # Not times zero: the fastest duration of padding is infinite.
    scale = fastest[..., 0].masked_fill(~visible, 0.0).sum(1) / count
    scale = torch.where(scale > 0, scale, problem.time_scale)
    weight = problem.weights.masked_fill(~visible, 0.0).sum(1) / count
    weight = torch.where(weight > 0, weight, 1.0)
    free = state.machine_free()
    origin = state.now if state.deciding == "dispatch" else free.amin(1)
    units = state.believed_units
    busy_until = units.masked_fill(units == INF, 0.0).amax(2)
    if state.deciding == "dispatch":  # for how long a machine has been idle tells nothing
        busy_until = busy_until.clamp(min=state.now[:, None])
    end = state.edge_end().masked_fill(~mode_mask, INF)
    return _Frame(
        visible=visible,
        mode_mask=mode_mask,
        count=count,
        machines=problem.machine_mask.sum(1),
        per_time=(1.0 / scale)[:, None],
        per_weight=(1.0 / weight)[:, None],
        origin=origin[:, None],
        span=torch.maximum(busy_until.amax(1), origin)[:, None],
        free=free,
        busy_until=busy_until,
        start=state.edge_start(),
        end=end,
        fastest=fastest,
        ends=_two_smallest(end),
    )


def _mode_features(state: State, frame: _Frame) -> Tensor:
    """(B, J, K, F) float32."""
    problem, objective = state.problem, state.objective
    per_time, origin = frame.per_time[:, :, None], frame.origin[:, :, None]
    durations, end = problem.processing_times, frame.end
    fastest, job_best = frame.fastest[:, :, :1], frame.ends[:, :, :1]
    weights, zero = problem.weights[:, :, None], torch.zeros_like(end)
    setup = zero if state.timing.setup is None else state.timing.setup
    slack = problem.due_times[:, :, None] - end
    times = torch.stack(
        [
            durations,
            durations - fastest,
            end - origin,
            end - job_best,
            end - _on_modes(state, _per_machine(state, end)),
            frame.start - origin,
            slack,
            setup,
        ],
        dim=-1,
    )

    # What choosing the mode adds to each term of the objective at once.
    makespan = machine = zero
    if objective.makespan:
        makespan = objective.makespan * (end - frame.span[:, :, None]).clamp(min=0.0)
    if objective.machine_tardiness:
        finish, due = (
            _on_modes(state, frame.busy_until),
            _on_modes(state, problem.machine_due_times),
        )
        later = torch.maximum(finish, end) - due
        factor = objective.machine_tardiness * _on_modes(state, problem.machine_weights)
        machine = factor * (later.clamp(min=0.0) - (finish - due).clamp(min=0.0))
    tardiness = zero
    if objective.weighted_tardiness:
        tardiness = objective.weighted_tardiness * weights * (-slack).clamp(min=0.0)
    completion = zero
    if objective.weighted_completion or objective.flow_time:
        factor = objective.weighted_completion * weights + objective.flow_time
        completion = factor * (end - origin)
    total = makespan + tardiness + machine + completion + objective.setup_time * setup
    costs = torch.stack([makespan, tardiness, machine, completion, total], dim=-1)
    scaled = torch.cat([times, costs * frame.per_weight[:, :, None, None]], dim=-1)
    scaled = (scaled * per_time[..., None]).nan_to_num(0.0, 0.0, 0.0).asinh()

    # Apparent tardiness cost (Vepsalainen & Morton 1987) with look-ahead 2, as a logarithm.
    urgency = (weights * frame.per_weight[:, :, None] / (durations * per_time)).log()
    urgency = urgency - (slack * per_time).clamp(min=0.0).nan_to_num(0.0, 0.0, 0.0) / 2
    others = torch.stack(
        [
            (durations / fastest).log(),
            urgency.clamp(-10.0, 10.0) / 2,
            problem.demand / _on_modes(state, problem.capacity),
            state.legal().double(),
        ],
        dim=-1,
    ).nan_to_num(0.0, 0.0, 0.0)
    features = torch.cat([scaled, others], dim=-1).float()
    return features.masked_fill(~frame.mode_mask[..., None], 0.0)


def _job_features(state: State, frame: _Frame) -> Tensor:
    """(B, J, F) float32."""
    problem, origin = state.problem, frame.origin
    fastest, job_best = frame.fastest[..., 0], frame.ends[..., 0]
    times = torch.stack(
        [
            fastest,
            frame.fastest[..., 1] - fastest,
            job_best - origin,
            frame.ends[..., 1] - job_best,
            (state.believed_ready.amin(2) - origin).clamp(min=0.0),
            problem.due_times - job_best - problem.tails,
            (origin - problem.release_times).clamp(min=0.0),
            problem.tails,
        ],
        dim=-1,
    )
    times = (times * frame.per_time[:, :, None]).nan_to_num(0.0, 0.0, 0.0).asinh()
    others = torch.stack(
        [
            (problem.weights * frame.per_weight).log1p(),
            problem.due_times.isfinite().double(),
            state.open_predecessors.double().log1p(),
            state.candidates().double(),
        ],
        dim=-1,
    )
    features = torch.cat([times, others], dim=-1).float()
    return features.masked_fill(~frame.visible[..., None], 0.0)


def _machine_features(state: State, frame: _Frame) -> Tensor:
    """(B, M, F) float32."""
    problem = state.problem
    times = torch.stack(
        [
            frame.free - frame.origin,
            frame.span - frame.busy_until,
            problem.machine_due_times - frame.busy_until,
        ],
        dim=-1,
    )
    times = (times * frame.per_time[:, :, None]).nan_to_num(0.0, 0.0, 0.0).asinh()
    is_best = torch.stack(
        [
            problem.processing_times <= frame.fastest[..., :1],
            frame.end <= frame.ends[..., :1],
        ],
        dim=-1,
    )  # (B, J, K, 2)
    shares = _sum_per_machine(state, (is_best & frame.mode_mask[..., None]).double())  # (B, M, 2)
    shares = shares / shares.sum(1, keepdim=True).clamp(min=1) * frame.machines[:, None, None]
    room = (state.believed_units <= frame.origin[:, :, None]).sum(2)
    others = torch.stack(
        [
            (problem.machine_weights * frame.per_weight).log1p(),
            (frame.free <= frame.origin).double(),
            problem.machine_due_times.isfinite().double(),
            *shares.log1p().unbind(2),
            problem.capacity.double().log(),
            room / problem.capacity,
        ],
        dim=-1,
    )
    features = torch.cat([times, others], dim=-1).float()
    return features.masked_fill(~problem.machine_mask[..., None], 0.0)


def _two_smallest(values: Tensor) -> Tensor:
    """(..., 2): the smallest and second smallest of the last axis, twice the same if only one."""
    if values.shape[-1] == 1:
        return values.expand(*values.shape[:-1], 2)
    two = values.topk(2, dim=-1, largest=False, sorted=True).values
    return torch.where(two < INF, two, two[..., :1])


def _on_modes(state: State, values: Tensor) -> Tensor:
    """(B, J, K): a machine's value (B, M) at each of the modes on it."""
    machines = state.problem.mode_machines
    if state.problem.dense:
        return values[:, None, :].expand(machines.shape)
    return values.gather(1, machines.flatten(1)).view(machines.shape)


def _per_machine(state: State, values: Tensor) -> Tensor:
    """(B, M): the smallest value (B, J, K) among a machine's modes, infinity where none."""
    problem = state.problem
    if problem.dense:
        return values.amin(1)
    out = values.new_full((problem.batch_size, problem.num_machines), INF)
    return out.scatter_reduce(1, problem.mode_machines.flatten(1), values.flatten(1), "amin")


def _sum_per_machine(state: State, values: Tensor) -> Tensor:
    """(B, M, F): sums of values (B, J, K, F) over the modes on each machine."""
    problem = state.problem
    if problem.dense:
        return values.sum(1)
    out = values.new_zeros(problem.batch_size, problem.num_machines, values.shape[3])
    index = problem.mode_machines.flatten(1)[..., None].expand(-1, -1, values.shape[3])
    return out.scatter_add(1, index, values.flatten(1, 2))
