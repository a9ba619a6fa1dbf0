"""Index rules for due times: ATC and ATCS with ready times, each behind an earliest-end gate.

The gate: an edge may be chosen only if no other machine is expected to complete its job sooner.
Behind it the acting machine takes the job with the largest index.  In plan the acting machine is
the one that is free first (of those with an edge behind the gate), so that decisions follow the
order of time; in dispatch it is any machine with room now, and where the gate holds every edge
back the rule waits.

Without a gate, index rules made for identical machines put jobs on machines that are slow for
them.  Indices are compared as logarithms: a job with much slack keeps its place in the order
where the index itself would underflow to zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from hetsched.agents.rules_parts import (
    ENDLESS_SLACK,
    INF,
    PerProblem,
    acting_first,
    fastest_times,
    tolerance,
)
from hetsched.envs.reductions import on_modes

if TYPE_CHECKING:
    from torch import Tensor

    from hetsched.envs.problem import Problem
    from hetsched.envs.simulator import State


class _Fixed(NamedTuple):
    """What the rules need of a problem that no decision changes.

    Attributes:
        log_rate: (B, J, K), log(w_j / p_jk).
        order: (B, M) int64, rank of machines that are free at the same time: larger machine
            weight first, then earlier machine due time, then index.
        order_on_slots: (B, J, K), the same by slot.
        sequential: (B, 1) bool, nothing has to be waited for: no release times, no precedence,
            machines of one unit.
    """

    log_rate: Tensor
    order: Tensor
    order_on_slots: Tensor
    sequential: Tensor


def _fix(problem: Problem) -> _Fixed:
    weight = problem.weights.clamp(min=1e-300)[:, :, None]
    due = problem.machine_due_times.argsort(dim=1, stable=True)  # (B, M)
    heavy = problem.machine_weights.gather(1, due).argsort(dim=1, descending=True, stable=True)
    machines = due.gather(1, heavy)
    positions = torch.arange(machines.shape[1], device=machines.device).expand_as(machines)
    order = torch.empty_like(machines).scatter_(1, machines, positions)
    sequential = (problem.release_times == 0.0).all(1) & (problem.capacity <= 1).all(1)
    return _Fixed(
        log_rate=(weight / problem.processing_times).clamp(min=1e-300).log(),
        order=order,
        order_on_slots=on_modes(problem, order).expand(problem.processing_times.shape),
        sequential=(sequential & ~problem.arc_mask.any(1))[:, None],
    )


class AtcRule:
    """Apparent tardiness cost: (w_j / p_jk) exp(-max(0, d_j - p_jk - t) / (k p_mean)).

    t is the time at which the acting machine is free, p_mean the mean fastest duration of the
    visible jobs.  Source: Vepsalainen and Morton, Management Science 33(8), 1987; the gate and
    the switching off of machines follow the dispatching rule of Hitzges and Sagnol, ICMLA 2025.

    Attributes:
        name: as the user calls it.
        k: look-ahead, > 0; larger values count jobs as urgent earlier.
    """

    def __init__(self, name: str, k: float = 2.0) -> None:
        self.name, self.k = name, k
        self._fixed = PerProblem(_fix)

    def scores(self, state: State) -> Tensor:
        """(B, J * K + 1): log index at the acting machines, lower than WAIT elsewhere."""
        fixed = self._fixed(state.problem)
        behind = _behind_gate(state, fixed)
        if state.deciding == "plan":
            start = state.edge_start()
            if state.problem.setup_times is not None:
                start = start - state.edge_setup()
            when = _earliest(start, behind)  # (B, 1, 1)
            acting = _first_machine(fixed, behind & (start <= when + tolerance(state)))
        else:
            when, acting = state.now[:, None, None], behind
        index = _log_atc(state, fixed, when, self.k * _mean_fastest(state))
        return acting_first(state, acting, index)


class AtcsReadyRule:
    """ATC with set-up and ready-time terms.

    (w_j / p_jk) exp(-max(0, d_j - p_jk - max(t, a_j)) / (k1 p_mean))
                 exp(-s_ijk / (k2 s_mean)) exp(-max(0, a_j - t) / (k3 p_mean))

    with a_j the time at which the job is ready on the machine, s_ijk the set-up after the
    machine's last job and s_mean the mean of that over the visible jobs' modes.  In plan the
    acting machine may so reserve itself for a job that is not ready yet.
    Sources: Lee, Bhaskaran and Pinedo, IIE Transactions 29(1), 1997 (set-ups); Pfund, Fowler,
    Gadkari and Chen, Computers & Industrial Engineering 54(4), 2008 (ready times).

    Attributes:
        name: as the user calls it.
        k1, k2, k3: look-ahead for due times, set-ups, ready times, each > 0.
    """

    def __init__(self, name: str, k1: float = 2.0, k2: float = 1.0, k3: float = 1.0) -> None:
        self.name, self.k1, self.k2, self.k3 = name, k1, k2, k3
        self._fixed = PerProblem(_fix)

    def scores(self, state: State) -> Tensor:
        """(B, J * K + 1): log index at the acting machines, lower than WAIT elsewhere."""
        fixed = self._fixed(state.problem)
        behind = _behind_gate(state, fixed)
        mean_p, setup = _mean_fastest(state), state.edge_setup()
        ready = state.edge_start() - setup  # (B, J, K), max(machine free, job ready)
        if state.deciding == "plan":
            free = on_modes(state.problem, state.machine_free())
            when = _earliest(free, behind)
            acting = _first_machine(fixed, behind & (free <= when + tolerance(state)))
        else:
            when, acting = state.now[:, None, None], behind
        index = _log_atc(state, fixed, torch.maximum(ready, when), self.k1 * mean_p)
        index = index - (ready - when).clamp(min=0.0) / (self.k3 * mean_p)
        if state.problem.setup_times is not None:
            exists = state.problem.mode_mask & state.visible()[:, :, None]
            count = exists.sum((1, 2)).clamp(min=1)
            mean_s = (setup * exists).sum((1, 2)) / count  # (B,)
            relative = setup / mean_s.clamp(min=1e-300)[:, None, None]
            index = index - relative / self.k2
        return acting_first(state, acting, index)


def _log_atc(state: State, fixed: _Fixed, when: Tensor, horizon: Tensor) -> Tensor:
    """(B, J, K): logarithm of the ATC index.

    Args:
        when: (B, 1, 1) or (B, J, K), the time of the decision or the later start of the job.
        horizon: (B, 1, 1), k times the mean duration.
    """
    problem = state.problem
    slack = problem.due_times[:, :, None] - problem.processing_times - when
    return fixed.log_rate - (slack / horizon).clamp(min=0.0, max=ENDLESS_SLACK)


def _mean_fastest(state: State) -> Tensor:
    """(B, 1, 1): mean over the visible jobs of their fastest duration."""
    visible = state.visible()
    total = fastest_times(state).masked_fill(~visible, 0.0).sum(1)
    return (total / visible.sum(1).clamp(min=1)).clamp(min=1e-300)[:, None, None]


def _behind_gate(state: State, fixed: _Fixed) -> Tensor:
    """(B, J, K) bool: legal edges whose job no machine in use completes sooner."""
    end = state.edge_end()
    if state.deciding == "plan":
        off = _switched_off(state, fixed)
        if bool(off.any()):
            end = end.masked_fill(on_modes(state.problem, off), INF)
    best = end.amin(2, keepdim=True)  # (B, J, 1)
    return state.legal() & (end <= best + tolerance(state)) & (end < INF)


def _switched_off(state: State, fixed: _Fixed) -> Tensor:
    """(B, M) bool: machines that stood free but took no job while later starts were decided.

    Where nothing has to be waited for, a machine whose gate once held every job back gets none
    any more; otherwise it would later start jobs in the past.  Seen from a state: it is free
    before the last start; or just then, and a machine after it in the order of the machines has
    taken a job that starts then.
    """
    starts = (state.starts - state.setups).masked_fill(~state.scheduled, -INF)  # (B, J)
    last = starts.amax(1, keepdim=True)  # (B, 1)
    slot = state.chosen.clamp(min=0)[:, :, None]
    machine = state.problem.mode_machines.gather(2, slot).squeeze(2)  # (B, J)
    place = fixed.order.gather(1, machine).masked_fill(starts < last, -1).amax(1, keepdim=True)
    free = state.machine_free()
    return fixed.sequential & ((free < last) | ((free == last) & (fixed.order < place)))


def _earliest(times: Tensor, where: Tensor) -> Tensor:
    """(B, 1, 1): the smallest of the times (B, J, K) at the marked edges, zero without any."""
    earliest = times.masked_fill(~where, INF).amin((1, 2), keepdim=True)
    return earliest.masked_fill(earliest == INF, 0.0)


def _first_machine(fixed: _Fixed, edges: Tensor) -> Tensor:
    """(B, J, K) bool: of the marked edges, those on the first machine in the order."""
    rank = fixed.order_on_slots
    first = rank.masked_fill(~edges, fixed.order.shape[1]).amin((1, 2), keepdim=True)
    return edges & (rank == first)
