"""Graph: jobs, machines and the modes between them, as a network sees a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

JOB_FEATURES = (
    # times
    "fastest", "regret_of_second_fastest", "earliest_end", "regret_of_second_end", "ready_in",
    "slack", "waited", "tail",
    # others
    "weight", "has_due_time", "open_predecessors", "ready_now",
)  # fmt: skip
MACHINE_FEATURES = (
    # times
    "free_in", "behind_last", "due_in",
    # others
    "weight", "idle_now", "has_due_time", "share_fastest", "share_earliest", "capacity", "room",
    # of all jobs that have arrived (dispatch)
    "arrived_able", "arrived_slowdown", "arrived_fastest",
)  # fmt: skip
MODE_FEATURES = (
    # times
    "duration", "over_fastest", "end", "end_over_job_best", "end_over_machine_best", "start",
    "slack_at_end", "setup",
    # costs
    "adds_makespan", "adds_weighted_tardiness", "adds_machine_tardiness", "adds_completion",
    "adds_total",
    # others
    "ratio_to_fastest", "urgency", "demand", "legal_now",
)  # fmt: skip
GLOBAL_FEATURES = (
    # times
    "span", "time_per_arrival", "time_since_arrival", "arrived_duration",
    # others
    "jobs_per_machine", "jobs", "dispatching", "legal_share", "arrivals_settled",
)  # fmt: skip


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
