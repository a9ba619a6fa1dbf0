"""The CP-SAT model of problems in which only the machines' loads count, not the order of jobs.

That is so where nothing has to be waited for and the objective looks at machines alone, as in
R||C_max: one Boolean per mode and one sum per machine, without intervals.  It finds better
schedules in seconds than interval models do in minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ortools.sat.python import cp_model

from hetsched.agents.exact_ticks import Answer, Ticks

if TYPE_CHECKING:
    from hetsched.envs.instance import Instance
    from hetsched.envs.schedule import Schedule

NAME = "loads"


def can_express(instance: Instance, ticks: Ticks) -> bool:
    """Whether the order of the jobs on a machine plays no part."""
    waits = ticks.release.any() or instance.precedence.shape[1] > 0 or ticks.setups is not None
    by_job = ticks.tardiness.any() or ticks.completion.any()
    return not (waits or by_job or (instance.capacity > 1).any())


def solve(
    instance: Instance, ticks: Ticks, time_limit: float, workers: int, hint: Schedule | None
) -> Answer:
    """Solve in ticks, within the time limit (seconds)."""
    cp = cp_model.CpModel()
    present = [cp.new_bool_var("") for _ in instance.mode_jobs]
    for job in range(instance.num_jobs):
        cp.add_exactly_one(present[mode] for mode in np.flatnonzero(instance.mode_jobs == job))
    makespan = cp.new_int_var(int(ticks.available.max()), ticks.horizon, "")
    cost = [ticks.makespan * makespan]
    for machine, available in enumerate(ticks.available.tolist()):
        modes = np.flatnonzero(instance.mode_machines == machine).tolist()
        here = [present[mode] for mode in modes]
        load = cp_model.LinearExpr.weighted_sum(here, ticks.durations[modes].tolist())
        cp.add(load <= makespan - available)
        if ticks.machine_tardiness[machine]:
            late = cp.new_int_var(0, ticks.horizon, "")
            cp.add(load <= late + int(ticks.machine_due[machine]) - available)
            cost.append(int(ticks.machine_tardiness[machine]) * late)
    cp.minimize(sum(cost))
    if hint is not None:
        chosen = set(hint.modes.tolist())
        for mode, literal in enumerate(present):
            cp.add_hint(literal, mode in chosen)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit
    solver.parameters.num_workers = workers
    status = solver.solve(cp)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer(None, None, max(0.0, solver.best_objective_bound), False)
    modes = [mode for mode, literal in enumerate(present) if solver.boolean_value(literal)]
    order = list(range(len(modes)))  # any order does; jobs are timed again anyway
    return Answer(modes, order, solver.best_objective_bound, status == cp_model.OPTIMAL)
