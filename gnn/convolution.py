"""ModeConv: attention between jobs and machines along the modes that join them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing


@dataclass(frozen=True, eq=False)
class Layout:
    """Which modes exist, and which machine each one uses.

    Only visible jobs are listed: N of them over the whole batch, each with K mode slots.

    Attributes:
        mode_mask: (N, K) bool, slot holds a mode.
        batch: (N,) int64, the instance of a job, not decreasing.
        machine: (N, K) int64, machine of a slot numbered through the batch (b * M + k).
        num_instances, num_machines: B and M.
        dense: slot k is machine k of the job's instance, and ``machine`` is not looked at.
        full: every slot holds a mode, so masks can be spared.
    """

    mode_mask: Tensor
    batch: Tensor
    machine: Tensor
    num_instances: int
    num_machines: int
    dense: bool
    full: bool

    def on_jobs(self, values: Tensor) -> Tensor:
        """(N, ...), or (1, ...) to broadcast: values of the instances (B, ...) at their jobs."""
        return values if self.num_instances == 1 else values.index_select(0, self.batch)

    def on_modes(self, machines: Tensor) -> Tensor:
        """(N, K, F), or (1, K, F) to broadcast: machine rows (B, M, F) at the modes on them."""
        if self.dense:
            return self.on_jobs(machines)
        rows = machines.flatten(0, 1).index_select(0, self.machine.flatten())
        return rows.view(*self.machine.shape, machines.shape[2])


class AttentionSum(MessagePassing):
    """Softmax-weighted sum of messages at the node that each of them points to.

    .. math:: x_i = \\sum_{e \\to i} \\mathrm{softmax}_{e \\to i}(a_e)\\, m_e

    Shapes:
        - messages (E, ..., H, D), logits (E, ..., H), target (E,) int64, number of nodes V
        - output (V, ..., H, D), zero at nodes that nothing points to
    """

    def __init__(self) -> None:
        super().__init__(aggr="add", node_dim=0)

    def forward(self, messages: Tensor, logits: Tensor, target: Tensor, nodes: int) -> Tensor:
        edge_index = torch.stack([target, target])  # messages live on edges; sources are unused
        return self.propagate(edge_index, messages=messages, logits=logits, size=(nodes, nodes))

    def message(
        self, messages: Tensor, logits: Tensor, index: Tensor, size_i: int
    ) -> tuple[Tensor, Tensor]:
        weights = (logits - _largest(logits.detach(), index, size_i).index_select(0, index)).exp()
        return weights[..., None] * messages, weights

    def aggregate(self, inputs: tuple[Tensor, Tensor], index: Tensor, dim_size: int) -> Tensor:
        # index_add adds whole rows; scatter_add would expand the index to every element.
        weighted, weights = (
            one.new_zeros(dim_size, *one.shape[1:]).index_add(0, index, one) for one in inputs
        )
        # Normalised here, per node and not per edge; a node without edges hears zero.
        return weighted / weights.clamp(min=torch.finfo(weights.dtype).tiny)[..., None]


def _largest(values: Tensor, index: Tensor, nodes: int) -> Tensor:
    """(V, ...): the largest of the values (E, ...) that point to each node."""
    index = index.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    out = values.new_zeros(nodes, *values.shape[1:])
    return out.scatter_reduce(0, index, values, "amax", include_self=False)


class ModeConv(nn.Module):
    """One round of messages: jobs and machines meet on modes, and modes report back to both.

    .. math::
        m_e &= \\mathrm{ReLU}(W_e e + W_j h_j + W_k h_k), \\qquad e' = e + W_o m_e \\\\
        h_j' &= h_j + \\mathrm{MLP}(h_j, \\textstyle\\sum_{e \\ni j} \\alpha_e m_e, P_j), \\qquad
        h_k' = h_k + \\mathrm{MLP}(h_k, \\textstyle\\sum_{e \\ni k} \\beta_e m_e)

    alpha is a softmax over the modes of a job, beta over the modes of a machine, each of a linear
    map of the message, per head; P_j is what the precedence relation tells the job.

    Shapes:
        - jobs (N, d), machines (B, M, d), modes (N, K, d), told (N, d) or None
        - output: the first three, updated
    """

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_jobs, self.norm_machines = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.from_modes = nn.Linear(hidden, hidden)
        self.from_jobs = nn.Linear(hidden, hidden, bias=False)
        self.from_machines = nn.Linear(hidden, hidden, bias=False)
        self.to_modes = nn.Linear(hidden, hidden)
        self.attention = nn.Linear(hidden, 2 * heads, bias=False)  # a softmax ignores shifts
        self.to_jobs = _mlp(3 * hidden, hidden)
        self.to_machines = _mlp(2 * hidden, hidden)
        self.attention_sum = AttentionSum()

    def forward(
        self,
        jobs: Tensor,
        machines: Tensor,
        modes: Tensor,
        layout: Layout,
        told: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        job_norm, machine_norm = self.norm_jobs(jobs), self.norm_machines(machines)
        message = self.from_modes(modes) + self.from_jobs(job_norm)[:, None]  # (N, K, d)
        message = message.add_(layout.on_modes(self.from_machines(machine_norm))).relu_()
        modes = modes + self.to_modes(message)
        at_jobs, at_machines = self._aggregate(message, layout)
        told = torch.zeros_like(job_norm) if told is None else told
        jobs = jobs + self.to_jobs(torch.cat([job_norm, at_jobs, told], dim=-1))
        machines = machines + self.to_machines(torch.cat([machine_norm, at_machines], dim=-1))
        return jobs, machines, modes

    def _aggregate(self, message: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """(N, d) what each job hears and (B, M, d) what each machine hears."""
        logits = self.attention(message)  # (N, K, 2 H)
        if not layout.full:
            exists = layout.mode_mask[..., None]  # (N, K, 1)
            logits = logits.masked_fill(~exists, torch.finfo(logits.dtype).min)
            message = message * exists
        for_jobs, for_machines = logits.chunk(2, dim=-1)  # (N, K, H) each
        # The modes of a job lie side by side: its softmax is over an axis.
        split = message.unflatten(-1, (self.heads, -1))  # (N, K, H, D)
        at_jobs = (for_jobs.softmax(1)[..., None] * split).sum(1).flatten(1)
        instances, machines = layout.num_instances, layout.num_machines
        if layout.dense and instances == 1:  # the same softmax, over the other axis
            at_machines = (for_machines.softmax(0)[..., None] * split).sum(0).flatten(1)
            return at_jobs, at_machines[None]
        if layout.dense:  # all modes of a job travel together, one per machine
            at_machines = self.attention_sum(split, for_machines, layout.batch, instances)
        else:
            edges = split.flatten(0, 1), for_machines.flatten(0, 1), layout.machine.flatten()
            at_machines = self.attention_sum(*edges, instances * machines)  # (B * M, H, D)
        return at_jobs, at_machines.view(instances, machines, -1)


def _mlp(inputs: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
