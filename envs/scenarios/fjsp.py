"""fjsp: flexible job shops, makespan; the distributions of the published sets SD1 and SD2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from hetsched.envs.fjs import chains
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["sd1", "sd2"]
KINDS: tuple[Kind, ...] = ("sd1", "sd2")
OPTIONS = ("set",)
LARGEST_MEAN, SPREAD = 20, 0.2  # SD1
LONGEST = 99  # SD2


def sample_kind(rng: np.random.Generator, num_jobs: int, num_machines: int, kind: Kind) -> Instance:
    """One flexible job shop of SD1 or SD2; bounds are inclusive, all numbers integers.

    An operation can run on U{1..machines} machines, drawn evenly.

    * sd1: U{max(1, floor(0.8 machines))..max(1, floor(1.2 machines))} operations per job; a mean
      b ~ U{1..20} per operation, durations U{max(1, round(0.8 b))..min(20, round(1.2 b))}
      (Song, Chen, Li and Cao, IEEE TII 19(2), 2023).
    * sd2: as many operations per job as machines, durations U{1..99}: machines are unrelated
      (Wang, Wang, Sun, Deng and Chen, IEEE TNNLS, 2023).

    Returns:
        An instance whose jobs are the operations, in the order of the ``num_jobs`` jobs.
    """
    if kind == "sd1":
        low, high = (max(1, int(share * num_machines)) for share in (0.8, 1.2))
        sizes = rng.integers(low, high, num_jobs, endpoint=True)
    else:
        sizes = np.full(num_jobs, num_machines)
    operations = int(sizes.sum())
    shape = (operations, num_machines)
    if kind == "sd1":
        mean = rng.integers(1, LARGEST_MEAN, (operations, 1), endpoint=True)
        least = np.maximum(1, np.round((1 - SPREAD) * mean)).astype(np.int64)
        most = np.minimum(LARGEST_MEAN, np.round((1 + SPREAD) * mean)).astype(np.int64)
        durations = rng.integers(least, most, shape, endpoint=True)
    else:
        durations = rng.integers(1, LONGEST, shape, endpoint=True)
    rank = rng.random(shape).argsort(axis=1).argsort(axis=1)
    eligible = rank < rng.integers(1, num_machines, (operations, 1), endpoint=True)
    names = [f"job {job} operation {o}" for job, size in enumerate(sizes) for o in range(size)]
    return Instance.from_matrix(
        durations, eligible, precedence=chains(sizes.tolist()), job_names=tuple(names)
    )


def build(name: str, options: Mapping[str, str]) -> Scenario:
    asked = options.get("set", "").lower()
    if asked and asked not in KINDS:
        raise ValueError(f"option 'set' must be one of {', '.join(KINDS)}, got {asked!r}")
    kinds = tuple(kind for kind in KINDS if asked in ("", kind))

    def sample(rng: np.random.Generator, num_jobs: int, num_machines: int) -> Instance:
        kind = kinds[0] if len(kinds) == 1 else kinds[int(rng.integers(2))]
        return sample_kind(rng, num_jobs, num_machines, kind)

    return Scenario(
        name=name,
        description="flexible job shops: jobs of several operations in a row; makespan",
        objective=Objective(makespan=1.0),
        deciding="plan",
        sampler=sample,
        default_jobs=10,
        default_machines=5,
        rules=("mwkr", "mopnr", "heft", "min-min", "spt"),
        sizes=((6, 4), (8, 5), (10, 5)),
    )
