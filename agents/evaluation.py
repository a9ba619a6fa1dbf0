"""Measuring contenders on instances: what their schedules cost and how long deciding took.

Nothing that a contender or the simulator claims is believed: every schedule passes the independent
check of ``Schedule`` and its cost is computed anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hetsched.envs.schedule import InfeasibleSchedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hetsched.envs.instance import Instance
    from hetsched.envs.objective import Objective
    from hetsched.envs.schedule import Schedule
    from hetsched.envs.simulator import Deciding

MAX_INSTANCES = 512  # decided at once, unless asked otherwise
MAX_EDGES = 200_000  # in one batch: a network keeps about 1.5 kB of activations per edge
RELATIVE, ABSOLUTE = 1e-9, 1e-6  # rounding of sums that are taken in another order


class EvaluationError(RuntimeError):
    """A contender gave an infeasible schedule or a wrong cost: a bug, never the user's mistake."""


@dataclass(frozen=True)
class Setting:
    """What is asked of every contender.

    Attributes:
        objective: what a schedule costs.
        deciding: ``"plan"`` (all is known) or ``"dispatch"`` (a clock runs).
        device: where states and networks live.
        seed: of contenders that draw at random.
        threads: CPU threads of solvers.
    """

    objective: Objective
    deciding: Deciding
    device: str = "cpu"
    seed: int = 0
    threads: int = 1


@dataclass(frozen=True, eq=False)
class Answers:
    """What a contender says about some instances.

    Attributes:
        schedules: one per instance, None where none was found in time.
        costs: (instances,) float64, as the contender believes them; infinity without a schedule.
        seconds: (instances,) float64, time spent deciding.
        decisions: (instances,) int64, decisions behind each schedule.
    """

    schedules: tuple[Schedule | None, ...]
    costs: NDArray[np.float64]
    seconds: NDArray[np.float64]
    decisions: NDArray[np.int64]


class Contender(Protocol):
    """Anything that can be asked for schedules; see ``hetsched.agents.contenders``."""

    @property
    def name(self) -> str:
        """How tables and files call it."""
        ...

    @property
    def kind(self) -> str:
        """``"rule"``, ``"portfolio"``, ``"policy"``, ``"search"`` or ``"solver"``."""
        ...

    def hindsight(self, deciding: Deciding) -> bool:
        """It uses what a scheduler of that kind cannot know while deciding."""
        ...

    def solve(self, instances: Sequence[Instance], setting: Setting) -> Answers:
        """Schedules of all the instances, decided in one batch."""
        ...


@dataclass(frozen=True, eq=False)
class Measurement:
    """What a contender achieved.

    Attributes:
        name, kind: the contender's.
        costs: (instances,) float64, computed from the schedules; infinity without a schedule.
        seconds: (instances,) float64, time spent deciding.  Instances that are decided in one
            batch share the time of each decision equally.
        decisions: (instances,) int64.
        hindsight: it knew what lay ahead, so it bounds what is possible and competes with nobody.
        schedules: one per instance, None where none was found in time.
    """

    name: str
    kind: str
    costs: NDArray[np.float64]
    seconds: NDArray[np.float64]
    decisions: NDArray[np.int64]
    hindsight: bool
    schedules: tuple[Schedule | None, ...]

    @property
    def milliseconds_per_decision(self) -> float:
        """Mean over all decisions."""
        return 1e3 * float(self.seconds.sum()) / max(1, int(self.decisions.sum()))


def measure(
    contender: Contender,
    instances: Sequence[Instance],
    setting: Setting,
    batch: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Measurement:
    """Let a contender solve all instances, and check what it says.

    Args:
        batch: instances decided at once; None chooses by their size, 1 measures the time of
            single decisions.
        progress: told how many instances are done, after every batch.

    Raises:
        ValueError: no instance, or a batch below 1.
        EvaluationError: an infeasible schedule, or a cost other than the schedule's.
    """
    if not instances:
        raise ValueError("there is no instance to measure on; give at least one")
    if batch is not None and batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    size = batch or default_batch(instances)
    parts: list[Answers] = []
    costs: list[float] = []
    for start in range(0, len(instances), size):
        some = instances[start : start + size]
        answers = contender.solve(some, setting)
        for offset, instance in enumerate(some):
            where = f"{contender.name} on instance {start + offset}"
            schedule, claimed = answers.schedules[offset], float(answers.costs[offset])
            costs.append(checked_cost(where, schedule, claimed, instance, setting.objective))
        parts.append(answers)
        if progress is not None:
            progress(start + len(some))
    return Measurement(
        name=contender.name,
        kind=contender.kind,
        costs=np.array(costs),
        seconds=np.concatenate([part.seconds for part in parts]),
        decisions=np.concatenate([part.decisions for part in parts]),
        hindsight=contender.hindsight(setting.deciding),
        schedules=tuple(schedule for part in parts for schedule in part.schedules),
    )


def checked_cost(
    where: str, schedule: Schedule | None, claimed: float, instance: Instance, objective: Objective
) -> float:
    """The cost of a schedule, infinity without one.

    Raises:
        EvaluationError: the schedule is infeasible, or its cost is not what was claimed.
    """
    if schedule is None:
        return np.inf
    try:
        schedule.check(instance)
    except InfeasibleSchedule as error:
        raise EvaluationError(f"{where} gave an infeasible schedule: {error}") from error
    cost = schedule.cost(instance, objective)
    if not np.isclose(cost, claimed, rtol=RELATIVE, atol=ABSOLUTE):
        raise EvaluationError(f"{where} claims cost {claimed!r}, but its schedule costs {cost!r}")
    return cost


def default_batch(instances: Sequence[Instance]) -> int:
    """Instances per batch that keep memory small."""
    return max(1, min(MAX_INSTANCES, MAX_EDGES // padded_edges(instances)))


def padded_edges(instances: Sequence[Instance]) -> int:
    """Most edges per row of a batch of these instances, padding included."""
    jobs = max(one.num_jobs for one in instances)
    slots = (max(one.num_machines, int(np.bincount(one.mode_jobs).max())) for one in instances)
    return jobs * max(slots)
