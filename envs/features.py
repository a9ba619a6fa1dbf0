"""From states to graphs: features of jobs, machines and modes, free of units and sizes.

Times are shifted to now (in a plan: to the first moment at which a machine is free), divided by
the mean fastest duration of the visible jobs, and pass through the inverse hyperbolic sine, a
signed logarithm: scaling all times changes nothing and heavy tails stay small.  Weights are
divided by the mean weight of the visible jobs.  Jobs that are finished or running are not part of
the graph: what remains of them is the time at which their machines are free.

Features are computed as rows, (B, F, ...), which torch stacks and copies fastest where they have
one type, and turned into columns, (B, ..., F), at the end.  What a problem determines alone comes
from its ``statics``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hetsched.envs.arrivals import arrival_features
from hetsched.envs.graph import MODE_FEATURES, Graph
from hetsched.envs.reductions import (
    as_rows,
    best_and_regret,
    count_per_machine,
    on_modes,
    scaled_rows,
    signed_log,
    smallest_per_machine,
    tails_in_sight,
)

if TYPE_CHECKING:
    from hetsched.envs.simulator import State

INF = float("inf")
SLACK = MODE_FEATURES.index("slack_at_end")


def observe(state: State) -> Graph:
    """The graph of a state, as its policy may see it."""
    problem, frame = state.problem, _frame(state)
    rhythm, settled, of_arrivals = arrival_features(state)
    times = (
        _mode_times(state, frame),
        _job_times(state, frame),
        _machine_times(state, frame),
        torch.cat([frame.span - frame.origin, rhythm], dim=1),
    )
    scaled = scaled_rows(frame.per_time, times)  # (B, L): all in one, as each call costs
    modes, jobs, machines, overall = as_rows(signed_log(scaled), times)
    slack = as_rows(scaled, times)[0][:, SLACK]  # (B, J, K)
    arc_mask = problem.arc_mask
    if problem.arcs.shape[1]:
        ends = frame.visible.gather(1, problem.arcs.flatten(1)).view(problem.arcs.shape)
        arc_mask = arc_mask & ends.all(2)
    return Graph(
        jobs=_columns(~frame.visible, jobs, _other_job_features(state, frame)),
        machines=_columns(
            problem.statics.no_machine,
            machines,
            _other_machine_features(state, frame),
            of_arrivals,
        ),
        modes=_columns(frame.hidden, modes, _other_mode_features(state, frame, slack)),
        overall=torch.cat([overall, _other_features(state, frame), settled], dim=1),
        job_mask=frame.visible,
        machine_mask=problem.machine_mask,
        mode_mask=frame.mode_mask,
        mode_machines=problem.mode_machines,
        arcs=problem.arcs,
        arc_mask=arc_mask,
        legal=state.mask(),
        dense=problem.dense,
    )


@dataclass(frozen=True, eq=False)
class _Frame:
    """What the features are relative to, and what they share.

    Shapes: ``visible`` (B, J), ``mode_mask`` and its opposite ``hidden``, ``start``, ``end``,
    ``slack``, ``over_best`` (B, J, K), ``count``, ``origin``, ``span``, ``per_time``,
    ``per_weight`` (B, 1), ``free``, ``busy_until`` (B, M), ``weights`` (over their mean),
    ``best_end``, ``regret`` (B, J).
    """

    visible: Tensor
    mode_mask: Tensor
    hidden: Tensor
    count: Tensor
    per_time: Tensor
    per_weight: Tensor
    origin: Tensor
    span: Tensor
    free: Tensor
    busy_until: Tensor
    weights: Tensor
    start: Tensor
    end: Tensor
    slack: Tensor
    over_best: Tensor
    best_end: Tensor
    regret: Tensor


def _frame(state: State) -> _Frame:
    problem, static = state.problem, state.problem.statics
    visible = state.visible()
    mode_mask = problem.mode_mask & visible[..., None]
    hidden = ~mode_mask
    totals = (visible.double()[:, None] @ static.totals).squeeze(1)  # (B, 3)
    count = totals[:, :1].clamp(min=1)
    means = totals[:, 1:] / count  # of fastest durations and of weights
    factors = torch.where(means > 0, means, static.otherwise).reciprocal()  # (B, 2)
    per_time, per_weight = factors[:, :1], factors[:, 1:]
    weights = problem.weights
    if not state.objective.weighs_jobs:  # then they play no part
        per_weight, weights = torch.ones_like(per_weight), torch.ones_like(weights)
    free = state.machine_free()
    plan = state.deciding == "plan"
    origin = free.amin(1, keepdim=True) if plan else state.now[:, None]
    busy_until = _busy_until(state, free)
    end = state.edge_end().masked_fill(hidden, INF)
    best_end, regret = best_and_regret(end)
    return _Frame(
        visible=visible,
        mode_mask=mode_mask,
        hidden=hidden,
        count=count,
        per_time=per_time,
        per_weight=per_weight,
        origin=origin,
        span=torch.maximum(busy_until.amax(1, keepdim=True), origin),
        free=free,
        busy_until=busy_until,
        weights=weights * per_weight,
        start=state.edge_start(),
        end=end,
        slack=problem.due_times[..., None] - end,
        over_best=end - best_end[..., None],
        best_end=best_end,
        regret=regret,
    )


def _busy_until(state: State, free: Tensor) -> Tensor:
    """(B, M): when the last unit is free; for how long it has been so by now tells nothing."""
    units = state.believed_units
    if units.shape[2] == 1 and state.problem.statics.all_machines:
        return free
    busy_until = units.masked_fill(units == INF, 0.0).amax(2)
    return busy_until if state.deciding == "plan" else busy_until.clamp(min=state.now[:, None])


# ---- times: everything that is scaled and passes through the signed logarithm -------------------


def _mode_times(state: State, frame: _Frame) -> Tensor:
    """(B, F, J, K): times, and what choosing the mode adds to the objective."""
    problem, static, end = state.problem, state.problem.statics, frame.end
    origin, zero = frame.origin[..., None], torch.zeros_like(end)
    since = end - origin
    setup = zero if state.timing.setup is None else state.timing.setup
    rows = [
        problem.processing_times,
        static.over_fastest,
        since,
        frame.over_best,
        end - on_modes(problem, smallest_per_machine(problem, end)),
        frame.start - origin,
        frame.slack,
        setup,
    ]

    objective, per_weight = state.objective, frame.per_weight[..., None]
    makespan = tardiness = machine = completion = total = zero
    if objective.makespan:
        makespan = (end - frame.span[..., None]).clamp_(min=0.0)
        makespan = makespan.mul_(objective.makespan * per_weight)
    if objective.weighted_tardiness:
        late = frame.slack.clamp(max=0.0)
        tardiness = late.mul_((-objective.weighted_tardiness * frame.weights)[..., None])
    if objective.machine_tardiness:  # max(end - due, finish - due, 0) - max(finish - due, 0)
        punctual = torch.maximum(frame.busy_until, problem.machine_due_times)  # (B, M)
        factor = objective.machine_tardiness * problem.machine_weights * frame.per_weight
        machine = (end - on_modes(problem, punctual)).clamp_(min=0.0)
        machine = machine.mul_(on_modes(problem, factor))
    if objective.weighted_completion or objective.flow_time:
        factor = objective.weighted_completion * frame.weights
        completion = since * (factor + objective.flow_time * frame.per_weight)[..., None]
    terms = [term for term in (makespan, tardiness, machine, completion) if term is not zero]
    if objective.setup_time and setup is not zero:
        terms.append(setup * (objective.setup_time * per_weight))
    total = reduce(torch.add, terms, zero) if len(terms) != 1 else terms[0]
    return torch.stack([*rows, makespan, tardiness, machine, completion, total], dim=1)


def _job_times(state: State, frame: _Frame) -> Tensor:
    """(B, F, J)."""
    problem, static, origin = state.problem, state.problem.statics, frame.origin
    tails, latest = problem.tails, static.latest
    if state.deciding == "dispatch" and problem.arcs.shape[1]:
        tails = tails_in_sight(problem, frame.visible)
        latest = problem.due_times - tails
    return torch.stack(
        [
            static.fastest,
            static.regret,
            frame.best_end - origin,
            frame.regret,
            (state.believed_ready.amin(2) - origin).clamp_(min=0.0),
            latest - frame.best_end,
            (origin - problem.release_times).clamp_(min=0.0),
            tails,
        ],
        dim=1,
    )


def _machine_times(state: State, frame: _Frame) -> Tensor:
    """(B, F, M)."""
    return torch.stack(
        [
            frame.free - frame.origin,
            frame.span - frame.busy_until,
            state.problem.machine_due_times - frame.busy_until,
        ],
        dim=1,
    )


# ---- the other features -------------------------------------------------------------------------


def _other_mode_features(state: State, frame: _Frame, slack: Tensor) -> Tensor:
    """(B, F, J, K) float32; the slack (B, J, K) is scaled, and zero where there is no due time.

    Urgency is the apparent tardiness cost (Vepsalainen & Morton 1987) with look-ahead 2, as a
    logarithm.
    """
    static, scale = state.problem.statics, state.problem.time_scale[:, None]
    relative = (frame.per_weight / (frame.per_time * scale)).log().float()  # (B, 1)
    urgency = static.urgency + relative[..., None]
    urgency = urgency.sub_(slack.clamp(min=0.0), alpha=0.5).clamp_(-10.0, 10.0).mul_(0.5)
    legal = state.legal().float()
    return torch.stack([static.log_ratio, urgency, static.demand, legal], dim=1)


def _other_job_features(state: State, frame: _Frame) -> Tensor:
    """(B, F, J) float32."""
    weights, waits_for = frame.weights.log1p().float(), state.open_predecessors.float()
    if state.problem.arcs.shape[1]:
        waits_for = waits_for.log1p_()
    due, ready = state.problem.statics.has_due_time, state.candidates().float()
    return torch.stack([weights, due, waits_for, ready], dim=1)


def _other_machine_features(state: State, frame: _Frame) -> Tensor:
    """(B, F, M) float32."""
    problem, static = state.problem, state.problem.statics
    weights = (problem.machine_weights * frame.per_weight).log1p().float()
    idle = (frame.free <= frame.origin).float()  # (B, M)
    fastest = static.is_fastest & frame.mode_mask
    earliest = frame.over_best <= 0  # not a number where hidden
    best = count_per_machine(problem, torch.stack([fastest, earliest], dim=1))  # (B, 2, M)
    share = best / best.sum(2, keepdim=True).clamp_(min=1) * static.machines[:, None]
    shares = share.log1p_().float().unbind(1)
    room = idle
    if state.believed_units.shape[2] > 1:
        room = (state.believed_units <= frame.origin[..., None]).sum(2) / problem.capacity
    due, capacity = static.machine_has_due_time, static.log_capacity
    return torch.stack([weights, idle, due, *shares, capacity, room], dim=1)


def _other_features(state: State, frame: _Frame) -> Tensor:
    """(B, F) float32."""
    log_count = frame.count.log()  # (B, 1)
    visible_modes = frame.mode_mask.sum((1, 2)).clamp_(min=1)
    return torch.cat(
        [
            log_count - state.problem.statics.log_machines,
            log_count / 4,
            torch.full_like(log_count, float(state.deciding == "dispatch")),
            (state.legal().sum((1, 2)) / visible_modes)[:, None],
        ],
        dim=1,
    ).float()


def _columns(hidden: Tensor, *rows: Tensor) -> Tensor:
    """(B, ..., F) from several (B, F', ...), zero where hidden (B, ...)."""
    return torch.cat(rows, dim=1).masked_fill_(hidden[:, None], 0.0).movedim(1, -1).contiguous()
