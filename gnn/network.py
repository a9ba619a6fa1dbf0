"""SchedulingNetwork: a score for every action and a value, from the graph of a state."""

from __future__ import annotations

from dataclasses import dataclass

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
            _to_zero(last)

    def forget_value(self) -> None:
        """Every state is worth zero again, as rewards of another kind are to come."""
        _to_zero(self.value[-1])

    def forward(self, graph: Graph) -> tuple[Tensor, Tensor]:
        view = _view(graph)
        seen, summary = self._look(view)
        context = self._context(view, seen, summary)
        return self._scores(view, seen, self.wait_score(context)), self.value(context).squeeze(1)

    def scores(self, graph: Graph) -> Tensor:
        """The scores alone, (B, J * K + 1): what they do not need is left out."""
        view = _view(graph)
        seen, summary = self._look(view)
        if bool(graph.legal[:, -1].any()):
            wait = self.wait_score(self._context(view, seen, summary))
        else:
            wait = seen.new_zeros(len(summary), 1)
        return self._scores(view, seen, wait)

    def keep_at_hand(self) -> None:
        """Make parameters and submodules plain attributes as well, for quick decisions.

        ``nn.Module`` finds them in a Python method after the ordinary look-up has failed, which is
        a fifth of the time of a single decision.  Moving, loading and assigning them works as
        before; what swaps entries of ``_parameters`` (``torch.func.functional_call``) does not.
        """
        for module in self.modules():
            module.__dict__.update({**module._modules, **module._parameters})

    def _look(self, view: _View) -> tuple[Tensor, Tensor]:
        """Exchange messages; (N, K, d) what is known about each mode and (B, d) about the whole."""
        graph, layout = view.graph, view.layout
        overall = graph.overall[:, None]  # (B, 1, G)
        jobs = torch.cat([graph.jobs, overall.expand(-1, graph.jobs.shape[1], -1)], dim=2)
        jobs = self.embed_jobs(view.listed(jobs))  # (N, d)
        machines = torch.cat([graph.machines, overall.expand(-1, layout.num_machines, -1)], dim=2)
        machines = self.embed_machines(machines)  # (B, M, d)
        modes = self.embed_modes(view.listed(graph.modes))  # (N, K, d)
        for layer, convolution in enumerate(self.convolutions):
            told = None
            if view.arcs is not None:
                told = _tell(self.from_predecessors[layer], jobs, view.arcs)
                told = told + _tell(self.from_successors[layer], jobs, view.arcs.flip(0))
            jobs, machines, modes = convolution(jobs, machines, modes, layout, told)

        means = view.mean_of_jobs(jobs), _mean(machines, graph.machine_mask), graph.overall
        summary = self.summary(torch.cat(means, dim=1))  # (B, d)
        of_jobs = self.head_jobs(jobs) + layout.on_jobs(self.head_summary(summary))  # (N, d)
        seen = self.head_modes(modes) + of_jobs[:, None]
        seen = seen.add_(layout.on_modes(self.head_machines(machines))).relu_()
        return seen, summary

    @staticmethod
    def _context(view: _View, seen: Tensor, summary: Tensor) -> Tensor:
        """(B, 2 d): the summary, and the strongest of each channel over legal modes, or zero."""
        legal = view.listed(view.graph.legal[:, :-1].view(view.graph.mode_mask.shape))  # (N, K)
        if not bool(legal.all()):
            seen = seen * legal[..., None]
        strongest = seen.amax(1)  # (N, d), never below zero
        best = scatter(strongest, view.layout.batch, 0, len(summary), reduce="max")
        return torch.cat([torch.relu(summary), best], dim=1)

    def _scores(self, view: _View, seen: Tensor, wait: Tensor) -> Tensor:
        """(B, J * K + 1)."""
        modes = view.unlisted(self.mode_score(seen).squeeze(-1))  # (B, J, K)
        scores = torch.cat([modes.flatten(1), wait], dim=1)
        return scores.masked_fill(~view.graph.legal, -torch.inf)


@dataclass(frozen=True, eq=False)
class _View:
    """A graph, and the list of its N visible jobs.

    Attributes:
        rows: (N,) int64, b * J + j of each listed job; everyone: that is all jobs.
        arcs: (2, E) int64, arcs between listed jobs by their position, None without any.
    """

    graph: Graph
    layout: Layout
    rows: Tensor
    everyone: bool
    arcs: Tensor | None

    def listed(self, values: Tensor) -> Tensor:
        """(N, ...): values (B, J, ...) of the listed jobs."""
        return _listed(values, self.rows, self.everyone)

    def unlisted(self, values: Tensor) -> Tensor:
        """(B, J, ...): values (N, ...) at the listed jobs, zero elsewhere."""
        batch, jobs = self.graph.job_mask.shape
        if not self.everyone:
            values = values.new_zeros(batch * jobs, *values.shape[1:]).index_copy(
                0, self.rows, values
            )
        return values.unflatten(0, (batch, jobs))

    def mean_of_jobs(self, jobs: Tensor) -> Tensor:
        """(B, d): mean over the listed jobs (N, d) of each instance, zero without any."""
        instances, batch = self.layout.num_instances, self.layout.batch
        if instances == 1:
            return jobs.sum(0, keepdim=True) / max(1, len(jobs))
        total = jobs.new_zeros(instances, jobs.shape[1]).index_add(0, batch, jobs)
        count = torch.bincount(batch, minlength=instances).clamp(min=1)
        return total / count[:, None]


def _view(graph: Graph) -> _View:
    instances, machines = graph.machine_mask.shape
    rows = graph.job_mask.flatten().nonzero().squeeze(1)  # (N,)
    everyone = len(rows) == graph.job_mask.numel()
    batch = rows.div(graph.job_mask.shape[1], rounding_mode="floor")
    mode_mask = _listed(graph.mode_mask, rows, everyone)
    machine = graph.mode_machines
    if not graph.dense:
        machine = _listed(machine, rows, everyone) + machines * batch[:, None]
    layout = Layout(
        mode_mask=mode_mask,
        batch=batch,
        machine=machine,
        num_instances=instances,
        num_machines=machines,
        dense=graph.dense,
        full=bool(mode_mask.all()),
    )
    return _View(graph, layout, rows, everyone, _arcs_between(graph, rows))


def _listed(values: Tensor, rows: Tensor, everyone: bool) -> Tensor:
    flat = values.flatten(0, 1)
    return flat if everyone else flat.index_select(0, rows)


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    """(B, F): mean of values (B, M, F) where the mask (B, M) says so."""
    share = mask / mask.sum(1, keepdim=True)
    return (share[:, None] @ values).squeeze(1)


def _to_zero(last: nn.Module) -> None:
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)


def _relation(hidden: int) -> SAGEConv:
    """Messages along one direction of the precedence relation."""
    return SAGEConv(hidden, hidden, aggr="max", root_weight=False)


def _tell(relation: SAGEConv, jobs: Tensor, arcs: Tensor) -> Tensor:
    """(N, d): messages along the arcs; a job at the head of none hears nothing, no bias either."""
    hears = jobs.new_zeros(len(jobs), 1).index_fill(0, arcs[1], 1.0)
    told: Tensor = relation(jobs, arcs) * hears
    return told


def _arcs_between(graph: Graph, rows: Tensor) -> Tensor | None:
    """(2, E) int64: arcs between visible jobs by their position in the list, None without any."""
    if graph.arcs.shape[1] == 0 or not bool(graph.arc_mask.any()):
        return None
    jobs = graph.job_mask.shape[1]
    place = torch.zeros(graph.job_mask.numel(), dtype=torch.int64, device=rows.device)
    place[rows] = torch.arange(len(rows), device=rows.device)
    row, arc = graph.arc_mask.nonzero(as_tuple=True)
    ends = graph.arcs[row, arc] + jobs * row[:, None]  # (E, 2)
    return place[ends].T.contiguous()
