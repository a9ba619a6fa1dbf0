"""The sets of ``benchmarks/quality.py``, and who is measured on each of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hetsched.envs.files import InstanceSet

# What costs are divided by, best first: proven, best known, a long search, half an hour of CP-SAT.
REFERENCES = ("optimum", "best_known", "annealing", "ortools_1800s")


@dataclass(frozen=True)
class Bench:
    """One set and who is measured on it.

    Attributes:
        name: of the results' folder.
        scenario: gives the objective and the rules a search starts from.
        path: of the set, below the data folder; None: a part of ``benchmarks/dag_set.py``.
        rules: the first stands in for the policy where none ships.
        grids: portfolios of a rule with several parameters.
        samples: how many are drawn of the policy and of the first rule; those that would take a
            minute an instance and more are left out.
        seconds: time limits of searches and solvers.
        variants: of the policy, by what goes behind its name; they decide greedily and by samples.
    """

    name: str
    scenario: str
    path: str | None
    rules: tuple[str, ...]
    grids: tuple[str, ...] = ()
    samples: tuple[int, ...] = (16, 64)
    seconds: tuple[str, ...] = ("0.1", "1", "10")
    variants: tuple[str, ...] = ()

    def contenders(self, learned: bool) -> tuple[str, ...]:
        """Names, as ``hetsched.agents.contenders`` reads them, the quickest first."""
        root = "learned" if learned else self.rules[0]
        quicker = [f"{root}:{one}" for one in self.variants] if learned else []
        deciding = (root, *quicker, self.rules[0])
        sampled = [f"{who}@{count}" for who in deciding for count in self.samples]
        sampled += [
            f"{who}+beam@{count}" for who in (root, self.rules[0]) for count in self.samples
        ]
        timed = [
            f"{who}@{limit}"
            for limit in self.seconds
            for who in (f"{root}+search", "annealing", "cp-sat", f"{root}+cp-sat")
        ]
        return tuple(dict.fromkeys((*self.rules, *self.grids, root, *quicker, *sampled, *timed)))

    def of_policy(self, name: str) -> tuple[str, ...]:
        """What is measured of a policy beside the one that ships: greedy, and samples."""
        return (name, *(f"{name}@{count}" for count in self.samples))

    def available(self, data: Path) -> bool:
        return self.path is None or (data / self.path).exists()


HITZGES = ("atc", "wspt", "min-min")
UPMSP = ("atcs-r", "atcs-r:k1=2,k2=0.2,k3=0.2", "min-min")
RCMAX = ("lpt", "sufferage", "min-min")
FJSP = ("mwkr", "mopnr", "spt")
DAG = ("atc-tails", "atc", "heft")
TOGETHER = "together=0.05"
FEW = ("keep=10", f"keep=10,{TOGETHER}")
BENCHES = (
    *(
        Bench(
            f"hitzges-{size}",
            "hitzges",
            f"hitzges/{size}.npz",
            HITZGES,
            ("atc-grid",),
            variants=(TOGETHER,) if size in ("50x6", "100x10") else (),
        )
        for size in ("8x4", "20x4", "50x6", "100x10")
    ),
    *(
        Bench(
            f"upmsp-{size}",
            "upmsp",
            f"upmsp/{size}.npz",
            UPMSP,
            ("atcs-r-grid",),
            variants=(TOGETHER,) if size == "100x15" else (),
        )
        for size in ("20x5", "50x10", "100x15")
    ),
    *(
        Bench(f"rcmax-{size}", "rcmax", f"rcmax/{size}.npz", RCMAX, samples=samples, variants=few)
        for size, samples, few in (
            *(("20x4", (32,), ()), ("50x10", (32,), ()), ("100x10", (32,), ())),
            *(("100x20", (32,), FEW), ("200x20", (32,), FEW), ("500x50", (), FEW)),
        )
    ),
    Bench("fjsp-SD1-10x5", "fjsp", "fjsp/SD1/10x5", FJSP, samples=(32,)),
    Bench("fjsp-SD2-10x5", "fjsp", "fjsp/SD2/10x5+mix", FJSP, samples=(32,)),
    *(
        Bench(f"dag-{size}", "dag", None, DAG, ("atc-tails-grid",))
        for size in ("20x4", "50x6", "100x10")
    ),
)


def default_data() -> Path:
    """The folder of the benchmark sets: ``HETSCHED_DATA``, or beside the checkout."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("HETSCHED_DATA", beside))


def load(bench: Bench, data: Path) -> InstanceSet:
    """A set with its references; those of the dag set are the best costs known."""
    if bench.path is None:
        return _part_of_dag_set(bench.name)
    from hetsched.envs.benchmark_files import load_benchmark

    return load_benchmark(data / bench.path)


def base_of(some: InstanceSet) -> str:
    """The reference that costs are divided by."""
    return next(name for name in REFERENCES if name in some.references)


def _part_of_dag_set(name: str) -> InstanceSet:
    from hetsched.benchmarks.dag_set import instances, read_known
    from hetsched.envs.files import InstanceSet

    jobs, machines = (int(number) for number in name.removeprefix("dag-").split("x"))
    known = read_known()
    chosen = {
        key: one
        for key, one in sorted(instances().items())
        if (one.num_jobs, one.num_machines) == (jobs, machines)
    }
    costs = np.array([known[key].cost for key in chosen])
    return InstanceSet(tuple(chosen.values()), {"best_known": costs}, name)
