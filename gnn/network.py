"""SchedulingNetwork: a score for every action and a value, from the graph of a state."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import scatter

from hetsched.envs.graph import (
    GLOBAL_FEATURES,
    JOB_FEATURES,
    MACHINE_FEATURES,
    MODE_FEATURES,
    Graph,
)
from hetsched.gnn.config import NetworkConfig
from hetsched.gnn.convolution import Layout, ModeConv


class SchedulingNetwork(nn.Module):
    """Jobs, machines and modes exchange messages; modes are scored, WAIT from a summary.

    The last layers of the scores and of the value start at zero: an untrained network is
    indifferent between all legal actions.

    Shapes:
        - graph: see :class:`hetsched.envs.graph.Graph`
        - output: scores (B, J * K + 1), minus infinity at illegal actions, and values (B,)
    """

    def __init__(self, config: NetworkConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or NetworkConfig()
        d, context = config.hidden, len(GLOBAL_FEATURES)
        self.embed_jobs = nn.Linear(len(JOB_FEATURES) + context, d)
        self.embed_machines = nn.Linear(len(MACHINE_FEATURES) + context, d)
        self.embed_modes = nn.Linear(len(MODE_FEATURES), d)
        self.convolutions = nn.ModuleList(ModeConv(d, config.heads) for _ in range(config.layers))
        self.from_predecessors = nn.ModuleList(_relation(d) for _ in range(config.layers))
        self.from_successors = nn.ModuleList(_relation(d) for _ in range(config.layers))
        self.summary = nn.Linear(2 * d + context, d)
        self.head_modes = nn.Linear(d, d)
        self.head_jobs = nn.Linear(d, d, bias=False)
        self.head_machines = nn.Linear(d, d, bias=False)
        self.head_summary = nn.Linear(d, d, bias=False)
        self.mode_score = nn.Linear(d, 1)
        self.wait_score = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, 1))
        self.value = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, 1))
        for last in (self.mode_score, self.wait_score[-1], self.value[-1]):
            assert isinstance(last, nn.Linear)
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, graph: Graph) -> tuple[Tensor, Tensor]:
        batch, job = graph.job_mask.nonzero(as_tuple=True)  # (N,) each: the visible jobs
        layout = _layout(graph, batch, job)
        arcs = _arcs_between(graph, batch, job)
        overall = graph.overall  # (B, G)
        jobs = self.embed_jobs(torch.cat([graph.jobs[batch, job], overall[batch]], dim=1))  # (N, d)
        everywhere = overall[:, None].expand(-1, layout.num_machines, -1)
        machines = self.embed_machines(torch.cat([graph.machines, everywhere], dim=2))  # (B, M, d)
        modes = self.embed_modes(graph.modes[batch, job])  # (N, K, d)
        for layer, convolution in enumerate(self.convolutions):
            told = None
            if arcs is not None:
                told = _tell(self.from_predecessors[layer], jobs, arcs)
                told = told + _tell(self.from_successors[layer], jobs, arcs.flip(0))
            jobs, machines, modes = convolution(jobs, machines, modes, layout, told)

        mean_jobs = _mean_over_jobs(jobs, batch, layout.num_instances)  # (B, d)
        mean_machines = (machines * graph.machine_mask[..., None]).sum(1)
        mean_machines = mean_machines / graph.machine_mask.sum(1, keepdim=True)
        summary = self.summary(torch.cat([mean_jobs, mean_machines, overall], dim=1))  # (B, d)
        seen = torch.relu(
            self.head_modes(modes)
            + (self.head_jobs(jobs) + self.head_summary(summary)[batch])[:, None]
            + layout.on_modes(self.head_machines(machines))
        )  # (N, K, d)
        mode_scores = self.mode_score(seen).squeeze(-1)  # (N, K)
        best = self._best_legal(seen, graph, batch, job)  # (B, d)
        context = torch.cat([torch.relu(summary), best], dim=1)  # (B, 2 d)
        scores = mode_scores.new_zeros(graph.mode_mask.shape)  # (B, J, K)
        scores = scores.index_put((batch, job), mode_scores).flatten(1)
        scores = torch.cat([scores, self.wait_score(context)], dim=1)
        return scores.masked_fill(~graph.legal, -torch.inf), self.value(context).squeeze(1)

    @staticmethod
    def _best_legal(seen: Tensor, graph: Graph, batch: Tensor, job: Tensor) -> Tensor:
        """(B, d): the strongest of each channel over the modes that may be chosen, or zero."""
        legal = graph.legal[:, :-1].view(graph.mode_mask.shape)[batch, job]  # (N, K)
        strongest = (seen * legal[..., None]).amax(1)  # (N, d), never below zero
        return scatter(strongest, batch, 0, graph.job_mask.shape[0], reduce="max")


def _layout(graph: Graph, batch: Tensor, job: Tensor) -> Layout:
    instances, machines = graph.machine_mask.shape
    mode_mask = graph.mode_mask[batch, job]
    return Layout(
        mode_mask=mode_mask,
        batch=batch,
        machine=graph.mode_machines[batch, job] + batch[:, None] * machines,
        num_instances=instances,
        num_machines=machines,
        dense=graph.dense,
        full=bool(mode_mask.all()),
    )


def _relation(hidden: int) -> SAGEConv:
    """Messages along one direction of the precedence relation."""
    return SAGEConv(hidden, hidden, aggr="max", root_weight=False)


def _tell(relation: SAGEConv, jobs: Tensor, arcs: Tensor) -> Tensor:
    """(N, d): messages along the arcs; a job at the head of none hears nothing, no bias either."""
    hears = jobs.new_zeros(len(jobs), 1).index_fill(0, arcs[1], 1.0)
    told: Tensor = relation(jobs, arcs) * hears
    return told


def _arcs_between(graph: Graph, batch: Tensor, job: Tensor) -> Tensor | None:
    """(2, E) int64: arcs between visible jobs by their position in the list, None without any."""
    if graph.arcs.shape[1] == 0 or not bool(graph.arc_mask.any()):
        return None
    place = torch.zeros_like(graph.job_mask, dtype=torch.int64)
    place[batch, job] = torch.arange(len(batch), device=batch.device)
    row, arc = graph.arc_mask.nonzero(as_tuple=True)
    ends = graph.arcs[row, arc]  # (E, 2)
    return place[row[:, None], ends].T.contiguous()


def _mean_over_jobs(jobs: Tensor, batch: Tensor, instances: int) -> Tensor:
    """(B, d): mean over the visible jobs of each instance, zero without any."""
    total = jobs.new_zeros(instances, jobs.shape[1]).index_add(0, batch, jobs)
    count = torch.bincount(batch, minlength=instances).clamp(min=1)
    return total / count[:, None]
