"""Clusters: which GPUs stand together, what they measured, and how much work they can take."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetsched.envs.scenarios import tables

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cluster:
    """GPU types whose speeds come from one source.

    Attributes:
        name: what the option ``cluster=`` knows it by.
        source: the name before the colon in the column ``source`` of ``speeds.csv``.
        gpus: the types, as ``speeds.csv`` spells them.  The first runs every model, so that
            any number of machines can be asked for.
        reference: the type on which a job lasts as long as drawn from the trace.
        gang: GPUs whose joint speed is read where a job takes one machine: 1, or 8 where a
            machine is a whole node.
    """

    name: str
    source: str
    gpus: tuple[str, ...]
    reference: str
    gang: int = 1

    @property
    def machine_names(self) -> tuple[str, ...]:
        """What a machine of each type is called, like ``v100`` or, a node, ``a30-x8``."""
        suffix = f"-x{self.gang}" if self.gang > 1 else ""
        return tuple(gpu.lower() + suffix for gpu in self.gpus)


CLUSTERS = (
    # Twice the weight: its speeds are the least related ones (recommenders run faster on an old
    # K80 than on a V100), and the only ones measured with one program on every type.
    Cluster("v100-p100-k80", "gavel", ("V100", "P100", "K80"), reference="P100"),
    Cluster(
        "h200-h100-l40s-l4",
        "mlperf-inference-v4.1",
        ("H200-SXM", "H100-PCIe", "L40S", "L4"),
        reference="H200-SXM",
    ),
    Cluster(
        "h100-a100-a30-l4",
        "mlperf-inference-v3.0",
        ("H100-SXM", "A100-SXM", "A30", "L4"),
        reference="A100-SXM",
    ),
    Cluster(
        "h100-l40s-a30-nodes",
        "mlperf-training-v3.1",
        ("H100-SXM", "H100-PCIe", "L40S", "A30"),
        reference="H100-PCIe",
        gang=8,
    ),
)
SHARES = (0.4, 0.2, 0.2, 0.2)  # how often an instance has each cluster


def get_cluster(name: str) -> Cluster:
    """The cluster called ``name``.

    Raises:
        ValueError: an unknown name.
    """
    for cluster in CLUSTERS:
        if cluster.name == name:
            return cluster
    known = ", ".join(cluster.name for cluster in CLUSTERS)
    raise ValueError(f"no cluster {name!r}; known: {known}")


@functools.cache
def relative_durations(cluster: Cluster, gang: int) -> tuple[tuple[str, ...], Array]:
    """(models, durations (models, types)) of one job each, over its duration on the reference.

    Infinity where the model does not fit the type or was not measured on it.
    """
    table = tables.speeds(cluster.source, gang)
    fits_first = [
        model for model, row in table.items() if cluster.gpus[0] in row and cluster.reference in row
    ]
    durations = np.array(
        [
            [table[model][cluster.reference] / table[model].get(gpu, 0.0) if gpu in table[model]
             else np.inf for gpu in cluster.gpus]
            for model in fits_first
        ]
    )  # fmt: skip
    return tuple(fits_first), durations


def draw_counts(rng: np.random.Generator, num_types: int, num_machines: int) -> Counts:
    """Machines of each type (types,): one of each, the rest split by uniform random shares.

    With fewer machines than types, the first types get one each.
    """
    if num_machines <= num_types:
        return (np.arange(num_types) < num_machines).astype(np.int64)
    shares = rng.dirichlet(np.ones(num_types))
    return 1 + rng.multinomial(num_machines - num_types, shares)


def fluid_capacity(relative: Array, demand: Array, share: Array, units: Array) -> float:
    """Work per second that the machines can take in the long run with the best assignment.

    The linear program: max c subject to sum_k x_tk = c share_t (all work is done) and
    sum_t demand_t relative_tk x_tk <= units_k (no machine works more than all the time).

    Args:
        relative: (kinds, types) duration of a kind of job over its reference duration.
        demand: (kinds,) units that a job of the kind takes.
        share: (kinds,) of the work, in reference seconds, adding up to 1.
        units: (types,) units (GPUs) of each type.

    Returns:
        Reference seconds of work per second; 1.0 is one machine of the reference type.
    """
    # The values recur (a few clusters, a few hundred counts), and the program takes 2 ms.
    key = relative.shape, relative.tobytes(), demand.tobytes(), share.tobytes()
    return _fluid_capacity(key, tuple(float(value) for value in units))


@functools.lru_cache(maxsize=4096)
def _fluid_capacity(
    key: tuple[tuple[int, ...], bytes, bytes, bytes], units: tuple[float, ...]
) -> float:
    from scipy.optimize import linprog  # 0.3 s to import: only where a capacity is asked for

    shape, *raw = key
    relative, demand, share = (np.frombuffer(part, dtype=np.float64) for part in raw)
    relative = relative.reshape(shape)
    kind, machine_type = np.nonzero(np.isfinite(relative))
    variables = len(kind)
    column = np.arange(variables)
    equal = np.zeros((shape[0], variables + 1))
    equal[kind, column] = 1.0
    equal[:, -1] = -share
    busy = np.zeros((shape[1], variables + 1))
    busy[machine_type, column] = (demand[:, None] * relative)[kind, machine_type]
    gain = np.zeros(variables + 1)
    gain[-1] = -1.0
    solution = linprog(gain, A_ub=busy, b_ub=units, A_eq=equal, b_eq=np.zeros(shape[0]))
    # Last digits may differ between solvers; a rounded value keeps instances equal everywhere.
    return float(f"{-solution.fun:.6g}")
