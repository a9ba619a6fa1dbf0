"""What a policy would start now, for a scheduler of somebody else's: a snapshot in, placements out.

Nothing runs, and nothing is remembered: ask again when something has changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.envs.objective import Objective
from hetsched.executor.backlog import WINDOW, Backlog
from hetsched.executor.guard import Guard
from hetsched.executor.queue import DEFAULT_OBJECTIVE, Job, Mode, check_jobs
from hetsched.executor.view import Choice

if TYPE_CHECKING:
    from hetsched.agents.policy import Policy
    from hetsched.executor.protocol import Machine

MOMENT = 1e-3  # seconds that a job has left whose time is up


@dataclass(frozen=True)
class Occupied:
    """Units of a machine that have a job already, for about so many more seconds.

    Raises:
        ValueError: fewer than one unit, or no number of seconds.
    """

    machine: str
    units: int = 1
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.units < 1:
            raise ValueError(f"occupied: units is {self.units}; give 1 or more.")
        if not math.isfinite(self.seconds):
            raise ValueError(f"occupied: seconds is {self.seconds}; give a finite number.")


@dataclass(frozen=True)
class Placement:
    """A job to be started now, on so many units of a machine, where it should take so long."""

    job: str
    machine: str
    units: int
    seconds: float


def advise(
    policy: Policy,
    machines: Sequence[Machine],
    waiting: Sequence[Job],
    occupied: Sequence[Occupied] = (),
    *,
    now: float = 0.0,
    objective: str = DEFAULT_OBJECTIVE,
    window: int = WINDOW,
) -> list[Placement]:
    """The jobs to start now, in the order of the policy's decisions; what is not in it waits.

    Args:
        policy: a checkpoint or a rule.
        machines: those that may get work.
        waiting: jobs; their `release` and `due` are on the same clock as `now`.
        occupied: what runs.
        now: seconds.
        objective: what a learned policy is told to minimise.
        window: see `Backlog`.

    Raises:
        QueueError: a job that can never run, naming it and the key.
        ValueError: more of a machine is occupied than it has.
    """
    if not waiting:
        return []
    check_jobs(waiting, machines)
    free = {machine.name: machine.capacity for machine in machines}
    backlog = Backlog(machines, Objective.parse(objective), window)
    backlog.add(waiting)
    prefix = "runs"
    while any(name.startswith(prefix) for name in backlog.jobs):
        prefix += "_"
    for at, one in enumerate(occupied):
        if one.machine not in free:
            continue  # it runs on, but nothing can be started there
        free[one.machine] -= one.units
        if free[one.machine] < 0:
            raise ValueError(
                f"occupied: {one.machine!r} has fewer units than run on it; correct its capacity."
            )
        name = f"{prefix} {at}"
        left = max(one.seconds, MOMENT)
        backlog.add([Job(name, (Mode(one.machine, left, one.units),), release=now)])
        backlog.started(Choice(name, 0), now)
    view = backlog.view(now)
    if view is None:
        return []
    guard, state, found = Guard(policy), view.state, []
    while not bool(state.done) and float(state.now) == now and bool(state.legal().any()):
        action = guard.decide(state).action
        choice = view.choice(action)
        if choice is None:
            break
        mode = backlog.jobs[choice.job].modes[choice.mode]
        found.append(Placement(choice.job, mode.machine, mode.demand, mode.seconds))
        state.step(state.steps.new_tensor([action]))
    return found
