"""gpu-cluster: measured models on measured GPUs, work and arrivals like the Philly trace's."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.scenarios import clusters, tables
from hetsched.envs.scenarios.options import number, number_range
from hetsched.envs.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hetsched.envs.scenarios.clusters import Cluster

Array = npt.NDArray[np.float64]

OPTIONS = ("cluster", "load", "max-duration", "noise")
OFFLINE_OPTIONS = ("cluster", "max-duration")
LONGEST_GAP = 15.0  # mean gaps: the 99 % quantile; beyond lie holidays and holes in the log
PRIORITIES, PRIORITY_SHARES = (1.0, 2.0, 4.0, 8.0), (0.4, 0.3, 0.2, 0.1)


@dataclass(frozen=True)
class Settings:
    """What varies between the gpu-cluster scenarios.

    Attributes:
        cluster: None draws one of ``clusters.CLUSTERS`` per instance.
        load: bounds of the load factor (work arriving over ``clusters.fluid_capacity``).
        shortest, longest: seconds; jobs that last shorter or longer on the
            reference GPU are left out.
        noise: sigma of the job's true over its estimated duration, lognormal with mean 1.
        gangs: (GPUs, share of the jobs); units: GPUs of a machine.
    """

    cluster: Cluster | None = None
    load: tuple[float, float] = (0.7, 1.5)
    shortest: float = 60.0
    longest: float = 4 * 3600.0
    noise: float = 0.0
    gangs: tuple[tuple[int, float], ...] = ((1, 1.0),)
    units: int = 1


@dataclass(frozen=True)
class _Kinds:
    """The kinds of job of a cluster: (gang size, model) pairs, with gang sizes in blocks."""

    models: tuple[str, ...]
    relative: Array  # (kinds, types) duration over the one on the reference
    demand: Array  # (kinds,)
    share: Array  # (kinds,) of the work
    blocks: tuple[tuple[int, int], ...]  # gang size index -> (first kind, kinds)


@functools.cache
def _kinds(cluster: Cluster, settings: Settings) -> _Kinds:
    bounds = settings.shortest, settings.longest
    names: list[str] = []
    relative, demand, share, blocks = [], [], [], []
    for gpus, portion in settings.gangs:
        # A machine of `gang` GPUs is one unit here; otherwise a unit is a GPU.
        models, durations = clusters.relative_durations(cluster, max(gpus, cluster.gang))
        mean = tables.mean("duration_s", bounds, gpus)
        blocks.append((len(names), len(models)))
        names += models
        relative.append(durations)
        demand.append(np.full(len(models), float(gpus)))
        share.append(np.full(len(models), portion * mean / len(models)))
    shares = np.concatenate(share)
    return _Kinds(
        tuple(names),
        np.concatenate(relative),
        np.concatenate(demand),
        shares / shares.sum(),
        tuple(blocks),
    )


@dataclass(frozen=True)
class _Queue:
    """Jobs and machines of one instance, without times of arrival or due times."""

    fields: dict[str, Any]  # of Instance.from_matrix
    processing: Array  # (jobs, machines) seconds, infinity where a job cannot run
    work: Array  # (jobs,) seconds on the reference GPU
    capacity: float  # seconds of work per second


def _draw_queue(
    settings: Settings, rng: np.random.Generator, num_jobs: int, num_machines: int
) -> _Queue:
    cluster = settings.cluster
    if cluster is None:
        cluster = clusters.CLUSTERS[rng.choice(len(clusters.CLUSTERS), p=clusters.SHARES)]
    counts = clusters.draw_counts(rng, len(cluster.gpus), num_machines)  # (types,)
    kinds = _kinds(cluster, settings)
    gang = rng.choice(len(settings.gangs), num_jobs, p=[share for _, share in settings.gangs])
    first, size = np.array(kinds.blocks)[gang].T  # (jobs,) each
    kind = first + np.floor(rng.random(num_jobs) * size).astype(np.int64)
    work = np.empty(num_jobs)
    for index, (gpus, _) in enumerate(settings.gangs):
        mine = gang == index
        bounds = settings.shortest, settings.longest
        work[mine] = tables.draw(rng, "duration_s", int(mine.sum()), bounds, gpus)
    machine_type = np.repeat(np.arange(len(counts)), counts)  # (machines,)
    # Milliseconds, so that the last digits of a platform's arithmetic change nothing.
    processing = np.round(work[:, None] * kinds.relative[kind][:, machine_type], 3)
    fields: dict[str, Any] = {
        "job_names": tuple(f"{kinds.models[k]} #{j}" for j, k in enumerate(kind.tolist())),
        "machine_names": tuple(
            f"{machine}-{index}"
            for machine, count in zip(cluster.machine_names, counts.tolist(), strict=True)
            for index in range(count)
        ),
    }
    if settings.units > 1:
        demand = kinds.demand[kind].astype(np.int64)
        fields["demand"] = np.repeat(demand[:, None], num_machines, axis=1)
        fields["capacity"] = np.full(num_machines, settings.units, dtype=np.int64)
    units = (counts * settings.units).astype(np.float64)
    capacity = clusters.fluid_capacity(kinds.relative, kinds.demand, kinds.share, units)
    return _Queue(fields, processing, work, capacity)


def sample_online(
    settings: Settings, rng: np.random.Generator, num_jobs: int, num_machines: int
) -> Instance:
    """Jobs that arrive in the trace's rhythm; the last at work / (load * capacity).

    Gaps between arrivals are drawn independently from the trace's distribution and scaled
    together, so that the load is as drawn from ``settings.load`` in every instance.
    """
    queue = _draw_queue(settings, rng, num_jobs, num_machines)
    load = rng.uniform(*settings.load)
    gaps = tables.draw(rng, "gap", num_jobs, (0.0, LONGEST_GAP))
    arrivals = np.cumsum(gaps) - gaps[0]
    if arrivals[-1] > 0:
        arrivals *= queue.work.sum() / (load * queue.capacity) / arrivals[-1]
    fields = dict(queue.fields, release_times=np.round(arrivals, 3))
    if settings.noise > 0:
        # One factor per job: the amount of work is misjudged, not the GPU's speed.
        spread = settings.noise * rng.standard_normal(num_jobs) - settings.noise**2 / 2
        fields["actual_times"] = queue.processing * np.exp(spread)[:, None]
    return Instance.from_matrix(queue.processing, **fields)


def sample_offline(
    settings: Settings, rng: np.random.Generator, num_jobs: int, num_machines: int
) -> Instance:
    """A queue known at time 0 on machines that may be busy, with due times and priorities.

    With H = work / capacity (the least makespan of a divisible queue), tau ~ U(0.2, 0.6) and
    R ~ U(0.4, 1) per instance: due times ~ U(H (1 - tau - R/2), H (1 - tau + R/2)), but no
    earlier than the job's fastest duration.  Weights 1, 2, 4, 8 with shares 0.4, 0.3, 0.2, 0.1.
    Each machine is busy at time 0 with probability 1/2, for a uniform part of a drawn duration.
    """
    queue = _draw_queue(settings, rng, num_jobs, num_machines)
    horizon = queue.work.sum() / queue.capacity
    tardy, spread = rng.uniform(0.2, 0.6), rng.uniform(0.4, 1.0)
    due = horizon * (1 - tardy + spread * (rng.random(num_jobs) - 0.5))
    busy = tables.draw(rng, "duration_s", num_machines, (settings.shortest, settings.longest))
    busy *= rng.random(num_machines) * (rng.random(num_machines) < 0.5)
    return Instance.from_matrix(
        queue.processing,
        due_times=np.round(np.maximum(due, queue.processing.min(axis=1)), 3),
        weights=rng.choice(PRIORITIES, num_jobs, p=PRIORITY_SHARES),
        machine_available=np.round(busy, 3),
        **queue.fields,
    )


def _settings(options: Mapping[str, str], base: Settings) -> Settings:
    changes: dict[str, Any] = {}
    if "cluster" in options:
        changes["cluster"] = clusters.get_cluster(options["cluster"])
    if "load" in options:
        changes["load"] = number_range("load", options["load"], above=0.0)
    if "max-duration" in options:
        changes["longest"] = number("max-duration", options["max-duration"], above=base.shortest)
    if "noise" in options:
        changes["noise"] = number("noise", options["noise"], above=None)
    return replace(base, **changes)


def _online(name: str, description: str, settings: Settings) -> Scenario:
    return Scenario(
        name=name,
        description=description,
        objective=Objective(flow_time=1.0, per_job=True),
        deciding="dispatch",
        sampler=functools.partial(sample_online, settings),
        default_jobs=30,
        default_machines=8,
        rules=("allox", "ect-wait", "atc", "min-min", "fifo"),
        sizes=((20, 4), (20, 6), (30, 8), (40, 12)),
    )


# Gavel's generator draws 70, 10, 15 and 5 % for 1, 2, 4 and 8 GPUs; 8 do not fit a node of 4.  Only
# its own cluster has measured speeds of such gangs on all types.
NODES = Settings(cluster=clusters.CLUSTERS[0], units=4, gangs=((1, 0.7), (2, 0.1), (4, 0.2)))


def build(name: str, options: Mapping[str, str]) -> Scenario:
    """Nodes of four GPUs and jobs of 1, 2 or 4."""
    return _nodes(name, options, NODES, "jobs of 1, 2 or 4 GPUs arrive at nodes of four")


def build_noisy(name: str, options: Mapping[str, str]) -> Scenario:
    settings = replace(NODES, noise=0.3)
    return _nodes(name, options, settings, "as gpu-cluster, with durations known to about 30 %")


def _nodes(name: str, options: Mapping[str, str], base: Settings, description: str) -> Scenario:
    settings = _settings(options, base)
    if settings.cluster is not base.cluster:
        raise ValueError(
            f"cluster {options['cluster']!r} has no measured speeds of jobs on several GPUs; use "
            "gpu-cluster-single"
        )
    scenario = _online(name, f"{description}; mean flow time", settings)
    return replace(
        scenario,
        default_jobs=32,
        default_machines=4,
        rules=("ect-wait", "atc", "allox", "sufferage", "fifo"),
        sizes=((24, 3), (32, 4), (40, 4), (60, 6)),
    )


def build_single(name: str, options: Mapping[str, str]) -> Scenario:
    """Machines of one GPU and jobs of one."""
    settings = _settings(options, Settings())
    return _online(name, "jobs of one GPU arrive at machines of one; mean flow time", settings)


def build_offline(name: str, options: Mapping[str, str]) -> Scenario:
    settings = _settings(options, Settings())
    return Scenario(
        name=name,
        description="a known queue on a GPU cluster, with due times and priorities",
        # Promises first; the makespan keeps a signal where every due time can be met.
        objective=Objective(makespan=1.0, weighted_tardiness=1.0),
        deciding="plan",
        sampler=functools.partial(sample_offline, settings),
        default_jobs=30,
        default_machines=8,
        rules=("wspt", "edd", "allox", "atc:k=0.5", "min-min"),
        sizes=((20, 4), (20, 6), (30, 8), (40, 12)),
    )
