"""Exact schedules by constraint programming (CP-SAT), with a proven lower bound.

Where only the loads of the machines count there is a model without intervals
(``exact_loads.py``); else PyJobShop's where it can express the problem (``exact_pyjobshop.py``);
else our own on OR-tools (``exact_model.py``).  All work on whole numbers (``exact_ticks.py`` says
how times and weights become whole).  Costs never come from the solver: the order of jobs that it
found is timed again with the true durations, each job as early as that order allows, and priced
by ``Schedule.cost``.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from hetsched.agents.exact_ticks import to_ticks
from hetsched.envs.schedule import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetsched.envs.instance import Instance
    from hetsched.envs.objective import Objective

Status = Literal["optimal", "feasible", "unknown"]
Engine = Literal["auto", "pyjobshop", "direct"]

CLOSED = 1e-9  # relative gap that counts as none ...
CLOSED_ROUNDED = 1e-4  # ... and where times or weights had to be rounded


@dataclass(frozen=True)
class ExactResult:
    """What the solver found and proved.

    Attributes:
        schedule: the best schedule, None if none was found in time.
        cost: its true cost, infinity without a schedule.
        bound: no schedule costs less.
        status: "optimal": cost and bound agree, and the solver proved it (where times had to be
            rounded, to within one part in ten thousand); "feasible": a schedule without that
            proof; "unknown": no schedule.
        seconds: wall time, building the model included.
        engine: the model that was solved: "loads", "pyjobshop" or "direct".
    """

    schedule: Schedule | None
    cost: float
    bound: float
    status: Status
    seconds: float
    engine: str

    @property
    def gap(self) -> float:
        """(cost - bound) / cost: zero where they agree, one without a schedule."""
        if self.schedule is None:
            return 1.0
        return 0.0 if self.cost <= self.bound else (self.cost - self.bound) / self.cost


def solve_exact(
    instance: Instance,
    objective: Objective,
    time_limit: float,
    workers: int = 1,
    hint: Schedule | None = None,
    engine: Engine = "auto",
) -> ExactResult:
    """Search for an optimal schedule until it is proven or the time is up.

    All is known to the solver: release times ahead and true durations (``actual_times`` where the
    instance has them), so that for online problems the result bounds what any policy can reach.

    Args:
        instance, objective: the problem.
        time_limit: seconds given to the solver; building the model comes on top.
        workers: threads; with one, equal calls give equal answers if the time suffices.
        hint: a feasible schedule to start from; the answer is never worse.
        engine: "pyjobshop" or "direct" insists on that model, for comparing them.

    Raises:
        ValueError: a time limit or worker count that is not positive, or engine "pyjobshop" for
            a problem that it cannot express.
        InfeasibleSchedule: the hint breaks a constraint.
    """
    if not time_limit > 0:
        raise ValueError(f"time_limit must be above 0 seconds, got {time_limit}")
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if hint is not None:
        hint.check(instance)
    began = time.monotonic()
    ticks = to_ticks(instance, objective)
    # Imported here: OR-tools and PyJobShop take a second to load.
    from hetsched.agents import exact_loads, exact_model, exact_pyjobshop

    reason = exact_pyjobshop.cannot_express(instance, ticks)
    if engine == "pyjobshop" and reason:
        raise ValueError(f"PyJobShop cannot express {reason}; use engine 'direct'")
    model = exact_model if engine == "direct" or reason else exact_pyjobshop
    if engine == "auto" and exact_loads.can_express(instance, ticks):
        model = exact_loads
    answer = model.solve(instance, ticks, time_limit, workers, hint)

    schedule = hint
    cost = math.inf if hint is None else hint.cost(instance, objective)
    if answer.modes is not None and answer.starts is not None:
        found = timed_again(instance, np.array(answer.modes), np.array(answer.starts))
        found_cost = found.cost(instance, objective)
        if found_cost < cost:
            schedule, cost = found, found_cost
    # No term is ever negative, which the solver does not know once release times are taken off.
    bound = min(max(0.0, answer.bound / ticks.per_cost + ticks.constant), cost)
    status: Status = "unknown" if schedule is None else "feasible"
    if answer.proven and cost - bound <= (CLOSED if ticks.whole else CLOSED_ROUNDED) * abs(cost):
        status = "optimal"
    seconds = time.monotonic() - began
    return ExactResult(schedule, cost, bound, status, seconds, model.NAME)


def timed_again(
    instance: Instance, modes: NDArray[np.int64], starts: NDArray[np.int64]
) -> Schedule:
    """The schedule that starts jobs in the given order, each as early as it can.

    Args:
        modes: (jobs,) chosen modes.
        starts: (jobs,) numbers that give the order on each machine; any unit.
    """
    duration = instance.durations[modes]
    before: list[list[tuple[int, float]]] = [[] for _ in range(instance.num_jobs)]
    depth = np.zeros(instance.num_jobs, np.int64)
    arcs = list(zip(*instance.precedence.tolist(), instance.precedence_lags.tolist(), strict=True))
    for first, after, lag in arcs:
        before[after].append((first, lag))
    for _ in range(instance.num_jobs):  # longest chain of predecessors, to break equal starts
        deeper = depth.copy()
        for first, after, _lag in arcs:
            deeper[after] = max(deeper[after], deeper[first] + 1)
        if np.array_equal(deeper, depth):
            break
        depth = deeper
    units = [
        np.full(capacity, available)
        for capacity, available in zip(instance.capacity, instance.machine_available, strict=True)
    ]
    last = np.full(instance.num_machines, instance.num_jobs)
    began, ended, paid = (np.zeros(instance.num_jobs) for _ in range(3))
    machine_of = instance.mode_machines[modes]
    for job in np.lexsort((depth, starts)).tolist():
        machine, demand = int(machine_of[job]), int(instance.demand[modes[job]])
        ready = float(instance.release_times[job])
        for first, lag in before[job]:
            ready = max(ready, ended[first] + (lag if machine_of[first] != machine else 0.0))
        free = units[machine]
        order = np.argsort(free, kind="stable")
        if instance.setup_times is not None:
            paid[job] = instance.setup_times[last[machine], job, machine]
        began[job] = max(ready, free[order[demand - 1]]) + paid[job]
        ended[job] = began[job] + duration[job]
        free[order[:demand]] = ended[job]
        last[machine] = job
    return Schedule(modes=modes, starts=began, ends=ended, setups=paid)
