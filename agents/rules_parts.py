"""What the dispatching rules share: ranking jobs, preferring machines, and laying out scores."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetsched.envs.problem import Problem
    from hetsched.envs.simulator import State

T = TypeVar("T")
INF = float("inf")
ENDLESS_SLACK = 1e6  # in units of k * mean duration: jobs without a due time come last, by weight
NEVER = -1e9  # below the score of any edge: the action is only taken where nothing else is legal


class PerProblem(Generic[T]):
    """What follows from a problem alone, computed once and kept while the problem lives."""

    def __init__(self, compute: Callable[[Problem], T]) -> None:
        self._compute = compute
        self._known: weakref.WeakKeyDictionary[Problem, T] = weakref.WeakKeyDictionary()

    def __call__(self, problem: Problem) -> T:
        known = self._known.get(problem)
        if known is None:
            known = self._known[problem] = self._compute(problem)
        return known


def job_ranks(key: Tensor) -> Tensor:
    """(B, J) int64: 0 for the smallest key, then 1, 2, ...; equal keys in order of their index.

    Args:
        key: (B, J) real numbers without NaN.
    """
    order = key.argsort(dim=1, stable=True)  # (B, J)
    positions = torch.arange(key.shape[1], device=key.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, positions)


def machine_preference(cost: Tensor, scale: Tensor) -> Tensor:
    """(B, J, K) in [0, 0.5]: a job's cheapest slot gets 0.5, dearer ones less, infinite ones 0.

    Args:
        cost: (B, J, K) times, infinity at slots that do not exist.
        scale: (B,) time unit that makes the result free of units.
    """
    best = cost.amin(2, keepdim=True).clamp(max=1e300)  # keeps padded jobs free of inf - inf
    excess = (cost - best) / scale[:, None, None]  # (B, J, K) >= 0
    return 0.5 / (1.0 + excess)


def two_level(state: State, key: Tensor, cost: Tensor | None = None) -> Tensor:
    """Scores of a rule that first picks the job with the smallest key, then its cheapest slot.

    A job's rank is a whole number and the machine preference stays below one, so a slot of a job
    further back never overtakes.

    Args:
        key: (B, J), smallest first, ties by index.
        cost: (B, J, K) what the slot should have least of; default: the expected completion.

    Returns:
        (B, J * K + 1), WAIT far below every edge.
    """
    cost = state.edge_end() if cost is None else cost
    preference = machine_preference(cost, state.problem.time_scale)
    return lay_out(preference - job_ranks(key)[:, :, None])


def lay_out(edges: Tensor, wait: float = NEVER) -> Tensor:
    """(B, J * K + 1): scores of the edges (B, J, K) in the order of the actions, WAIT last."""
    flat = edges.flatten(1)
    return torch.cat([flat, flat.new_full((len(flat), 1), wait)], dim=1)


def by_completion(state: State) -> Tensor:
    """(B, J, K): below WAIT, earlier completions first: for edges that a rule does not want."""
    late = (state.edge_end() - state.now[:, None, None]) / state.problem.time_scale[:, None, None]
    return 2 * NEVER - late


def acting_first(state: State, acting: Tensor, index: Tensor) -> Tensor:
    """(B, J * K + 1): acting edges by index, then WAIT, then the others; both (B, J, K)."""
    return lay_out(torch.where(acting, index, by_completion(state)), NEVER)


def fastest_times(state: State) -> Tensor:
    """(B, J): each job's shortest expected duration, infinity at padding."""
    return state.problem.processing_times.amin(2)


def tolerance(state: State) -> Tensor:
    """(B, 1, 1): times closer than this are equal; far below any duration, above rounding."""
    return 1e-9 * state.problem.time_scale[:, None, None]
