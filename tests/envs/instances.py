"""Random instances with every feature of the model, for property tests."""

from __future__ import annotations

import numpy as np

from hetsched.envs.instance import Instance


def random_instance(
    rng: np.random.Generator,
    *,
    jobs: int | None = None,
    machines: int | None = None,
    shared: bool = False,
    setups: bool = False,
    precedence: bool = False,
    lags: bool = False,
    releases: bool = False,
    noisy: bool = False,
    parallel: bool = False,
) -> Instance:
    """Small, with the features that are asked for; whole numbers, so that sums are exact."""
    n = jobs or int(rng.integers(1, 9))
    m = machines or int(rng.integers(1, 5))
    times = rng.integers(1, 30, (n, m)).astype(float)
    eligible = rng.random((n, m)) < 0.8
    eligible[np.arange(n), rng.integers(0, m, n)] = True
    job, machine = np.nonzero(eligible)
    duration = times[job, machine]
    capacity = rng.integers(1, 4, m) if shared else np.ones(m, np.int64)
    if parallel:  # a second implementation of every job on the same machine
        job, machine = np.repeat(job, 2), np.repeat(machine, 2)
        duration = rng.integers(1, 30, len(job)).astype(float)
    demand = rng.integers(1, capacity[machine] + 1)
    arcs = np.zeros((2, 0), np.int64)
    if precedence:
        before, after = np.nonzero(np.triu(rng.random((n, n)) < 0.3, 1))
        order = rng.permutation(n)
        arcs = np.stack([order[before], order[after]])
    return Instance(
        num_jobs=n,
        num_machines=m,
        mode_jobs=job,
        mode_machines=machine,
        processing_times=duration,
        release_times=rng.integers(0, 40, n).astype(float) if releases else np.zeros(n),
        due_times=np.where(rng.random(n) < 0.7, rng.integers(5, 60, n), np.inf),
        weights=rng.integers(1, 5, n).astype(float),
        machine_available=rng.integers(0, 10, m).astype(float),
        machine_due_times=rng.integers(5, 40, m).astype(float),
        machine_weights=rng.integers(1, 5, m).astype(float),
        capacity=capacity,
        demand=demand,
        setup_times=rng.integers(0, 9, (n + 1, n, m)).astype(float) if setups else None,
        precedence=arcs,
        precedence_lags=rng.integers(0, 9, arcs.shape[1]).astype(float)
        if lags
        else np.zeros(arcs.shape[1]),
        actual_times=np.maximum(1.0, np.round(duration * rng.uniform(0.5, 2, len(duration))))
        if noisy
        else None,
    )
