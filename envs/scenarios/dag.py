"""dag: layered graphs of jobs on unrelated machines, releases, weighted tardiness."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.scenarios.options import factorial_sampler, number
from hetsched.envs.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hetsched.envs.checks import FloatArray, IntArray

WORK = (10.0, 100.0)
FASTEST = 4.0  # speed of the fastest machine over that of the slowest, at most
SIGMA = 0.35  # of log durations beyond work and speed: that of measured GPUs (docs/scenarios.md)
LARGEST_WEIGHT = 10
ROOM = 1.5  # due times at tau = R = 0 leave half as much time again as the work must have
# Levels of the test set (benchmarks/dag_set.py); one of each is drawn per instance.
LEVELS: dict[str, tuple[float, ...]] = {"density": (0.1, 0.4), "tau": (0.3, 0.6), "R": (0.6,)}
OPTIONS = tuple(LEVELS)


def sample_factors(
    rng: np.random.Generator,
    num_jobs: int,
    num_machines: int,
    density: float,
    tau: float,
    R: float,
) -> Instance:
    """One instance with given factors; all times are integers.

    * Graph: round(sqrt(jobs)) layers, one job in each and the others anywhere; an arc between any
      two jobs of consecutive layers with probability ``density``; a job that has no predecessor
      then gets one, drawn evenly from the layer before.
    * p_jk = ceil(work_j / speed_k e^z), work ~ U(10, 100), ln speed ~ U(0, ln 4), z ~ N(0, 0.35);
      w_j ~ U{1..10}.
    * H = sum_j 1 / sum_k (1 / p_jk): how long all work takes if every machine works on each job in
      proportion to its speed.  Jobs of the first layer have r_j ~ U{0..floor(H / 4)}, others 0.
    * With E_j the earliest end of a job that waits for releases and predecessors only, each in its
      fastest mode: d_j = floor(1.5 E_j max(1, H / max E) U(1 - tau - R/2, 1 - tau + R/2)).
    """
    layer = _layers(rng, num_jobs)
    arcs = _arcs(rng, layer, density)
    work = rng.uniform(*WORK, (num_jobs, 1))
    speed = np.exp(rng.uniform(0, math.log(FASTEST), num_machines))
    noise = np.exp(SIGMA * rng.standard_normal((num_jobs, num_machines)))
    processing = np.ceil(work / speed * noise)
    horizon = float((1 / (1 / processing).sum(axis=1)).sum())  # H
    drawn = rng.integers(0, math.floor(horizon / 4), num_jobs, endpoint=True)
    release = np.where(layer == 0, drawn, 0).astype(np.float64)
    earliest = _earliest_ends(release, processing.min(axis=1), arcs)
    pace = ROOM * max(1.0, horizon / earliest.max())
    share = rng.uniform(1 - tau - R / 2, 1 - tau + R / 2, num_jobs)
    return Instance.from_matrix(
        processing,
        release_times=release,
        due_times=np.maximum(np.floor(earliest * pace * share), 0),
        weights=rng.integers(1, LARGEST_WEIGHT, num_jobs, endpoint=True),
        precedence=arcs,
    )


def _layers(rng: np.random.Generator, num_jobs: int) -> IntArray:
    """(jobs,) layer of each job, none of them empty, in increasing order."""
    count = max(1, round(math.sqrt(num_jobs)))
    return np.sort(np.append(np.arange(count), rng.integers(count, size=num_jobs - count)))


def _arcs(rng: np.random.Generator, layer: IntArray, density: float) -> IntArray:
    """(2, arcs), by successor."""
    jobs = len(layer)
    consecutive = layer[None, :] == layer[:, None] + 1  # (before, after)
    linked = consecutive & (rng.random((jobs, jobs)) < density)
    guardian = np.where(consecutive, rng.random((jobs, jobs)), -1.0).argmax(axis=0)
    orphans = np.flatnonzero((layer > 0) & ~linked.any(axis=0))
    linked[guardian[orphans], orphans] = True
    after, before = linked.T.nonzero()
    return np.stack([before, after])


def _earliest_ends(release: FloatArray, fastest: FloatArray, arcs: IntArray) -> FloatArray:
    """(jobs,) earliest end of each job; arcs go from lower to higher indices, by successor."""
    ends = release + fastest
    for before, after in arcs.T.tolist():
        ends[after] = max(ends[after], ends[before] + fastest[after])
    return ends


def build(name: str, options: Mapping[str, str]) -> Scenario:
    fixed = {key: _factor(key, text) for key, text in options.items()}
    return Scenario(
        name=name,
        description="layered graphs of jobs with releases and due times; all known",
        objective=Objective(weighted_tardiness=1.0),
        deciding="plan",
        sampler=factorial_sampler(LEVELS, fixed, sample_factors),
        default_jobs=20,
        default_machines=4,
        rules=("atc-tails", "atc", "edd", "mwkr", "heft"),
        sizes=((12, 3), (20, 4), (30, 6)),
    )


def _factor(key: str, text: str) -> float:
    value = number(key, text, None)
    if key != "R" and value > 1:
        raise ValueError(f"option {key!r} must be at most 1, got {text!r}")
    return value
