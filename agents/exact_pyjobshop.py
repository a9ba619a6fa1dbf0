"""The problems that PyJobShop's modelling layer can express, handed to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pyjobshop import Model, Solution
from pyjobshop.Result import SolveStatus
from pyjobshop.Solution import ScheduledTask

from hetsched.agents.exact_ticks import Answer, Ticks

if TYPE_CHECKING:
    from pyjobshop.ProblemData import ProblemData

    from hetsched.envs.instance import Instance
    from hetsched.envs.schedule import Schedule

NAME = "pyjobshop"


def cannot_express(instance: Instance, ticks: Ticks) -> str:
    """What the problem has that PyJobShop has not, empty if nothing.

    PyJobShop knows modes, release and due times, precedence and set-ups between jobs, but no
    set-up before a machine's first job, and its set-ups may run before the job is ready.
    """
    setups = ticks.setups
    waits = bool(ticks.release.any()) or instance.precedence.shape[1] > 0
    both = bool(ticks.tardiness.any() and ticks.completion.any())
    missing = {
        "machines occupied at the start": ticks.available.any(),
        "machine tardiness": ticks.machine_tardiness.any(),
        "machines with several units": (instance.capacity > 1).any(),
        "lags": ticks.lags.any(),
        "first set-ups": setups is not None and setups[-1].any(),
        "set-ups that wait for the job": setups is not None and waits,
        "the set-up time as a cost": ticks.setup_time > 0,
        "tardiness and completion with different weights":
            both and not np.array_equal(ticks.tardiness, ticks.completion),
    }  # fmt: skip
    return next((what for what, holds in missing.items() if holds), "")


def build(instance: Instance, ticks: Ticks) -> ProblemData:
    """One job with one task per job, its modes in the order of the instance."""
    model = Model()
    weights = ticks.tardiness if ticks.tardiness.any() else ticks.completion
    machines = [model.add_machine() for _ in range(instance.num_machines)]
    tasks = []
    for job in range(instance.num_jobs):
        release = int(ticks.release[job])
        owner = model.add_job(
            weight=int(weights[job]), release_date=release, due_date=int(ticks.due[job])
        )
        tasks.append(model.add_task(owner, earliest_start=release, latest_end=ticks.horizon))
    for mode, job in enumerate(instance.mode_jobs.tolist()):
        machine = machines[int(instance.mode_machines[mode])]
        model.add_mode(tasks[job], machine, int(ticks.durations[mode]))
    for before, after in instance.precedence.T.tolist():
        model.add_end_before_start(tasks[before], tasks[after])
    if ticks.setups is not None:
        between = ticks.setups[:-1]
        for before, after, k in zip(*(axis.tolist() for axis in between.nonzero()), strict=True):
            if before != after:
                model.add_setup_time(
                    machines[k], tasks[before], tasks[after], int(between[before, after, k])
                )
    model.set_objective(
        weight_makespan=ticks.makespan,
        weight_total_tardiness=int(ticks.tardiness.any()),
        weight_total_flow_time=int(ticks.completion.any()),
    )
    return model.data()


def solve(
    instance: Instance, ticks: Ticks, time_limit: float, workers: int, hint: Schedule | None
) -> Answer:
    """Solve in ticks, within the time limit (seconds)."""
    import pyjobshop

    data = build(instance, ticks)
    start = None if hint is None else _solution(data, instance, ticks, hint)
    result = pyjobshop.solve(
        data, time_limit=time_limit, num_workers=workers, initial_solution=start
    )
    # Its flow time counts from the release, our completion from zero.
    since = float((ticks.completion * ticks.release).sum())
    bound = result.lower_bound + since
    if result.status not in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE):
        return Answer(None, None, max(0.0, bound), False)
    found = result.best.tasks
    proven = result.status == SolveStatus.OPTIMAL
    return Answer([task.mode for task in found], [task.start for task in found], bound, proven)


def _solution(data: ProblemData, instance: Instance, ticks: Ticks, schedule: Schedule) -> Solution:
    """A schedule in PyJobShop's terms."""
    begins = np.floor(schedule.starts * ticks.per_time + 1e-6).astype(np.int64)
    ends = begins + ticks.durations[schedule.modes]
    tasks = [
        ScheduledTask(mode, [int(instance.mode_machines[mode])], begin, end)
        for mode, begin, end in zip(
            schedule.modes.tolist(), begins.tolist(), ends.tolist(), strict=True
        )
    ]
    return Solution(data, tasks)
