"""What ``benchmarks/quality.py`` measures, instance by instance, and the files that keep it.

A file holds what one contender did on one set.  It is written after every instance, so a run that
was stopped, or is repeated with a larger ``--count``, goes on behind what is there; what another
checkpoint or another number of threads made is measured anew.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.benchmarks.quality_sets import BENCHES, Bench, load

if TYPE_CHECKING:
    from hetsched.agents.evaluation import Contender
    from hetsched.envs.files import InstanceSet

SEED = 4_000_037
LEAST = 3  # instances, however long they take


@dataclass(frozen=True)
class Trained:
    """A checkpoint to measure.

    Attributes:
        name: in tables; checkpoints of one name are training seeds of the same thing.
        path: of the checkpoint.
        scenario: it was trained for.
        seed: of its training; None for the policy that ships.
        fingerprint: of its weights.
    """

    name: str
    path: str
    scenario: str
    seed: int | None
    fingerprint: str


def trained(name: str, path: Path, shipped: bool = False) -> Trained:
    """What a checkpoint says about itself.

    Raises:
        CheckpointError: it cannot be read.
    """
    from hetsched.agents.checkpoint import load_checkpoint

    metadata = load_checkpoint(path).metadata
    seed = None if shipped else int(metadata.get("training", {}).get("seed", 0))
    scenario = str(metadata.get("scenario", "")).partition(":")[0]
    fingerprint = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return Trained(name, str(path), scenario, seed, fingerprint)


@dataclass(frozen=True)
class Task:
    """One contender on one set; plain values, so that it can be handed to another process.

    Attributes:
        bench: name of the set.
        contender: as ``hetsched.agents.contenders`` reads it.
        policy: the checkpoint that the contender's name speaks of, if it does.
        data, results: folders.
        count: instances wanted.
        budget: seconds of deciding after which no further instance is begun, once there are LEAST.
        threads: of torch and of solvers.
    """

    bench: str
    contender: str
    policy: Trained | None
    data: Path
    results: Path
    count: int
    budget: float
    threads: int

    @property
    def path(self) -> Path:
        """Of the result's file."""
        name = re.sub("[^A-Za-z0-9.@+=,-]", "_", self.contender)
        seed = None if self.policy is None else self.policy.seed
        return self.results / self.bench / f"{name}{'' if seed is None else f'~seed{seed}'}.json"

    @property
    def limit(self) -> float | None:
        """Seconds per instance that the contender is given; None where it takes what it takes."""
        base, at, number = self.contender.rpartition("@")
        timed = base in ("annealing", "cp-sat") or base.endswith(("+search", "+cp-sat"))
        return float(number) if at and timed else None

    @property
    def batches(self) -> bool:
        """The contender decides once, or once for each rule of a grid."""
        return self.limit is None and "@" not in self.contender

    def enough(self, result: Result) -> bool:
        """As many instances as wanted, or as the budget allows."""
        spent = math.fsum(result.seconds)
        return result.count >= min(self.count, LEAST if spent >= self.budget else self.count)

    def done(self) -> bool:
        """Nothing is left to measure."""
        result = read(self.path)
        if result is None or not result.same_origin(self) or not self.enough(result):
            return False
        return result.batched_seconds is not None or not self.batches


@dataclass
class Result:
    """What is kept of a contender on a set, growing instance by instance.

    Attributes:
        set, contender: names.
        checkpoint: fingerprint of the policy; empty for those that have none.
        seed: of the policy's training, None for the policy that ships.
        threads, machine: what it ran on.
        cost: by instance, None where no schedule was found in time.
        seconds: by instance, decided one by one, the simulator's time included.
        batched_seconds: per instance when all are decided in one batch; None where that makes no
            sense.
    """

    set: str
    contender: str
    checkpoint: str = ""
    seed: int | None = None
    threads: int = 1
    machine: str = ""
    cost: list[float | None] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    batched_seconds: float | None = None

    @property
    def count(self) -> int:
        return len(self.cost)

    def same_origin(self, task: Task) -> bool:
        """Made with the same weights, on as many threads."""
        checkpoint = "" if task.policy is None else task.policy.fingerprint
        return (self.checkpoint, self.threads) == (checkpoint, task.threads)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        partial.replace(path)


def read(path: Path) -> Result | None:
    """The result in a file, None where there is none that can be read."""
    try:
        return Result(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def carry_out(task: Task) -> Result:
    """Measure what is missing of a task, and keep it."""
    from hetsched.agents.evaluation import Setting, measure
    from hetsched.cli import prepare_process
    from hetsched.envs.scenarios import get_scenario

    prepare_process(task.threads)
    bench = next(one for one in BENCHES if one.name == task.bench)
    instances = _loaded(bench, task.data).instances[: task.count]
    result = read(task.path)
    if result is None or not result.same_origin(task):
        result = _empty(task)
    scenario = get_scenario(bench.scenario)
    setting = Setting(scenario.objective, scenario.deciding, seed=SEED, threads=task.threads)
    contender = _contender(task, scenario.rules)
    if task.limit is None:  # those with a limit see to that themselves
        contender.solve(instances[:1], setting)  # the first call pays for lazy initialisation
    while not task.enough(result):
        one = measure(contender, [instances[result.count]], setting, batch=1)
        cost = float(one.costs[0])
        result.cost.append(float(f"{cost:.9g}") if math.isfinite(cost) else None)
        result.seconds.append(float(f"{one.seconds[0]:.3g}"))
        result.batched_seconds = None
        result.write(task.path)
    if result.batched_seconds is None and task.batches:
        whole = measure(contender, instances[: result.count], setting)
        result.batched_seconds = float(f"{whole.seconds.mean():.3g}")
        result.write(task.path)
    return result


def _empty(task: Task) -> Result:
    return Result(
        set=task.bench,
        contender=task.contender,
        checkpoint="" if task.policy is None else task.policy.fingerprint,
        seed=None if task.policy is None else task.policy.seed,
        threads=task.threads,
        machine=platform.processor() or platform.machine(),
    )


def _contender(task: Task, rules: tuple[str, ...]) -> Contender:
    from hetsched.agents.checkpoint import load_policy
    from hetsched.agents.contenders import PORTFOLIOS, make_contender

    policies = {}
    if task.policy is not None:
        policies = {task.policy.name: load_policy(task.policy.path, task.policy.name)}
    # As "best of one sample" greedy decisions are timed as all the others are: with the simulator.
    once = "@" not in task.contender and task.contender not in PORTFOLIOS
    return make_contender(f"{task.contender}@1" if once else task.contender, policies, rules)


@lru_cache(maxsize=2)
def _loaded(bench: Bench, data: Path) -> InstanceSet:
    return load(bench, data)
