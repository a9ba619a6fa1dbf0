"""Graphs as fixed-size dictionaries of arrays, for libraries that want one observation space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from hetsched.envs.graph import (
    GLOBAL_FEATURES,
    JOB_FEATURES,
    MACHINE_FEATURES,
    MODE_FEATURES,
    Graph,
)

if TYPE_CHECKING:
    from hetsched.envs.problem import Problem

MASKS = ("job_mask", "machine_mask", "mode_mask", "arc_mask", "legal")
LARGEST_FEATURE = 1e4  # of a signed logarithm or a share: far beyond anything that occurs


@dataclass(frozen=True)
class Extent:
    """The sizes that observations are padded to.

    Attributes:
        jobs, machines, slots, arcs: J, M, K and A; dense: slot k is machine k.
    """

    jobs: int
    machines: int
    slots: int
    arcs: int = 0
    dense: bool = True

    @property
    def num_actions(self) -> int:
        return self.jobs * self.slots + 1

    @classmethod
    def of(cls, problem: Problem) -> Extent:
        """The extent of a batch itself: nothing is padded."""
        return cls(
            jobs=problem.num_jobs,
            machines=problem.num_machines,
            slots=problem.num_modes,
            arcs=problem.arcs.shape[1],
            dense=problem.dense,
        )

    @classmethod
    def around(cls, extents: Sequence[Extent]) -> Extent:
        """The smallest extent that holds what each of the given ones does.

        Slots are machines only if they are in each of them; otherwise there are as many slots as
        machines, for a batch that happens to need no list.
        """
        machines = max(one.machines for one in extents)
        return cls(
            jobs=max(one.jobs for one in extents),
            machines=machines,
            slots=max(machines, *(one.slots for one in extents)),
            arcs=max(one.arcs for one in extents),
            dense=all(one.dense for one in extents),
        )

    def holds(self, other: Extent) -> bool:
        """Whether observations of the other extent can be padded to this one."""
        return (
            (other.jobs <= self.jobs and other.machines <= self.machines)
            and (other.slots <= self.slots and other.arcs <= self.arcs)
            and (other.dense or not self.dense)
        )

    def to_problem(self, actions: Tensor, problem: Problem) -> Tensor:
        """(B,) actions of this extent as actions of a batch that was padded to it."""
        job, slot = actions // self.slots, actions % self.slots
        wait = actions == self.num_actions - 1
        return torch.where(wait, problem.num_actions - 1, job * problem.num_modes + slot)


def observation_space(extent: Extent) -> spaces.Dict:
    """The space of padded observations of one row."""
    jobs, machines, slots, arcs = extent.jobs, extent.machines, extent.slots, extent.arcs

    def real(*shape: int) -> spaces.Box:
        return spaces.Box(-LARGEST_FEATURE, LARGEST_FEATURE, shape, np.float32)

    found: dict[str, spaces.Space[Any]] = {
        "jobs": real(jobs, len(JOB_FEATURES)),
        "machines": real(machines, len(MACHINE_FEATURES)),
        "modes": real(jobs, slots, len(MODE_FEATURES)),
        "overall": real(len(GLOBAL_FEATURES)),
        "job_mask": spaces.MultiBinary(jobs),
        "machine_mask": spaces.MultiBinary(machines),
        "mode_mask": spaces.MultiBinary((jobs, slots)),
        "legal": spaces.MultiBinary(extent.num_actions),
    }
    if not extent.dense:
        found["mode_machines"] = spaces.Box(0, machines - 1, (jobs, slots), np.int64)
    if arcs:
        found["arcs"] = spaces.Box(0, jobs - 1, (arcs, 2), np.int64)
        found["arc_mask"] = spaces.MultiBinary(arcs)
    return spaces.Dict(found)


def arrays_from_graph(graph: Graph, extent: Extent) -> dict[str, NDArray[Any]]:
    """Batched arrays (B, ...) of a graph, padded to the extent.

    Raises:
        ValueError: the graph is larger than the extent, or lists modes where slots are machines.
    """
    batch, jobs, slots = graph.mode_mask.shape
    machines, arcs = graph.machines.shape[1], graph.arcs.shape[1]
    wide, more, long = extent.machines - machines, extent.slots - slots, extent.jobs - jobs
    arc = extent.arcs - arcs
    if min(wide, more, long, arc) < 0:
        raise ValueError(
            f"a graph of {jobs} jobs, {machines} machines, {slots} slots and {arcs} arcs does not "
            f"fit into {extent}; widen it"
        )
    if extent.dense and not graph.dense:
        raise ValueError(
            f"a graph that lists modes in its slots does not fit into {extent}, where slots are "
            "machines; use one with dense=False"
        )
    legal = graph.legal[:, :-1].view(batch, jobs, slots)
    padded = {
        "jobs": pad(graph.jobs, (0, 0, 0, long)),
        "machines": pad(graph.machines, (0, 0, 0, wide)),
        "modes": pad(graph.modes, (0, 0, 0, more, 0, long)),
        "overall": graph.overall,
        "job_mask": pad(graph.job_mask, (0, long)),
        "machine_mask": pad(graph.machine_mask, (0, wide)),
        "mode_mask": pad(graph.mode_mask, (0, more, 0, long)),
        "legal": torch.cat([pad(legal, (0, more, 0, long)).flatten(1), graph.legal[:, -1:]], 1),
    }
    if not extent.dense:
        padded["mode_machines"] = pad(graph.mode_machines, (0, more, 0, long))
    if extent.arcs:
        padded["arcs"] = pad(graph.arcs, (0, 0, 0, arc))
        padded["arc_mask"] = pad(graph.arc_mask, (0, arc))
    return {
        name: (value.to(torch.int8) if value.dtype == torch.bool else value).cpu().numpy()
        for name, value in padded.items()
    }


def graph_from_tensors(observation: Mapping[str, Tensor], extent: Extent) -> Graph:
    """The graph (B, ...) behind padded observations."""
    batch = observation["jobs"].shape[0]
    device = observation["jobs"].device
    values: dict[str, Tensor] = {
        name: value.bool() if name in MASKS else value for name, value in observation.items()
    }
    if extent.dense:
        slots = torch.arange(extent.slots, device=device)
        values["mode_machines"] = slots.expand(batch, extent.jobs, extent.slots)
    if not extent.arcs:
        values["arcs"] = torch.zeros(batch, 0, 2, dtype=torch.int64, device=device)
        values["arc_mask"] = torch.zeros(batch, 0, dtype=torch.bool, device=device)
    return Graph(**values, dense=extent.dense)
