"""Between machines, modes and jobs: gathers, minima and counts; and signed logarithms."""

from __future__ import annotations

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
    """(F, B, M) float64: how many of the modes on a machine are chosen (F, B, J, K) bool."""
    if problem.dense:
        return chosen.sum(2, dtype=torch.float64)
    out = chosen.new_zeros(
        (len(chosen), problem.batch_size, problem.num_machines), dtype=torch.float64
    )
    index = problem.mode_machines.flatten(1).expand(len(chosen), -1, -1)
    return out.scatter_add(2, index, chosen.flatten(2).double())


def signed_logs(per_time: Tensor, *parts: Tensor) -> list[Tensor]:
    """asinh(part * per_time) as float32 for each (F, B, ...), zero where a time is not finite.

    All in one pass, as most of the cost on small states is the number of calls; and by its
    formula, as torch's own ``asinh`` takes the values one by one.
    """
    scaled = [part * per_time.view(-1, *[1] * (part.dim() - 2)) for part in parts]
    flat = torch.cat([one.flatten() for one in scaled]).float().nan_to_num_(0.0, 0.0, 0.0)
    size = flat.abs()
    # log(x + sqrt(x^2 + 1)) = log1p(x + x^2 / (1 + sqrt(x^2 + 1))), exact also where x is small
    root = torch.hypot(size, torch.ones_like(size[:1]))
    logs = (size / root.add_(1.0)).mul_(size).add_(size).log1p_().copysign_(flat)
    pieces = logs.split([part.numel() for part in parts])
    return [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]
