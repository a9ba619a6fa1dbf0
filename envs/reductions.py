"""Between machines, modes and jobs: gathers, minima and counts; and signed logarithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hetsched.envs.problem import Problem

INF = float("inf")


def finite(values: Tensor) -> Tensor:
    """Zero in place of infinities and of what is not a number."""
    return values.nan_to_num(0.0, 0.0, 0.0)


def best_and_regret(values: Tensor) -> tuple[Tensor, Tensor]:
    """(B, J) each: the smallest of (B, J, K), and the second smallest less the smallest.

    The regret is not finite where there are less than two finite values.
    """
    two = values.topk(min(2, values.shape[2]), dim=2, largest=False).values
    best, second = two[..., 0], two[..., -1]
    return best, second - best


def on_modes(problem: Problem, values: Tensor) -> Tensor:
    """(B, J, K), or (B, 1, K) to broadcast: a machine's value (B, M) at each mode on it."""
    if problem.dense:
        return values[:, None]
    machines = problem.mode_machines
    return values.gather(1, machines.flatten(1)).view(machines.shape)


def smallest_per_machine(problem: Problem, values: Tensor) -> Tensor:
    """(B, M): the smallest value (B, J, K) among a machine's modes, infinity where none."""
    if problem.dense:
        return values.amin(1)
    out = values.new_full((problem.batch_size, problem.num_machines), INF)
    return out.scatter_reduce(1, problem.mode_machines.flatten(1), values.flatten(1), "amin")


def count_per_machine(problem: Problem, chosen: Tensor) -> Tensor:
    """(B, F, M) float64: how many of the modes on a machine are chosen (B, F, J, K) bool."""
    if problem.dense:
        return chosen.sum(2, dtype=torch.float64)
    batch, features = chosen.shape[:2]
    out = chosen.new_zeros((batch, features, problem.num_machines), dtype=torch.float64)
    index = problem.mode_machines.flatten(1)[:, None].expand(-1, features, -1)
    return out.scatter_add(2, index, chosen.flatten(2).double())


def tails_in_sight(problem: Problem, visible: Tensor) -> Tensor:
    """(B, J): longest path of fastest durations after each job, over visible jobs only."""
    before, after = problem.arcs.unbind(2)  # (B, A) each
    seen = problem.arc_mask & visible.gather(1, after)
    lengths = problem.statics.fastest  # (B, J)
    tails = torch.zeros_like(lengths)
    for _ in range(problem.num_jobs):  # as many rounds as the longest path has jobs
        through = (lengths + tails).gather(1, after).masked_fill(~seen, 0.0)
        longer = torch.zeros_like(tails).scatter_reduce(1, before, through, "amax")
        if torch.equal(longer, tails):
            break
        tails = longer
    return tails


def scaled_rows(factor: Tensor, parts: Sequence[Tensor]) -> Tensor:
    """(B, L) float32: parts (B, ...) times a factor (B, 1), zero where that is not finite."""
    flat = torch.cat([part.flatten(1) for part in parts], dim=1)
    return flat.mul_(factor).float().nan_to_num_(0.0, 0.0, 0.0)


def as_rows(flat: Tensor, parts: Sequence[Tensor]) -> list[Tensor]:
    """Pieces of (B, L) in the shapes of the parts (B, ...) that it was made of."""
    pieces = flat.split([part[0].numel() for part in parts], dim=1)
    return [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]


def signed_log(values: Tensor) -> Tensor:
    """The inverse hyperbolic sine, by its formula: torch's own takes values one by one."""
    size = values.abs()
    root = torch.hypot(size, torch.ones_like(size[:1, :1]))  # sqrt(x^2 + 1)
    # log(x + root) = log1p(x + x^2 / (1 + root)), exact also where x is small
    return (size / root.add_(1.0)).mul_(size).add_(size).log1p_().copysign_(values)
