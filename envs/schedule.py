"""Schedule: who runs where and when, what that costs, and whether it is allowed.

The simulator is not consulted: the two judge each other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.envs import checks
from hetsched.envs.feasibility import find_violations, required_setups

if TYPE_CHECKING:
    from hetsched.envs.checks import FloatArray, IntArray
    from hetsched.envs.instance import Instance
    from hetsched.envs.objective import Objective

FORMAT, VERSION = "hetsched schedule", 1
DEFAULT: Any = None
SHOWN = 3  # violations in the message of an InfeasibleSchedule


class InfeasibleSchedule(ValueError):
    """A schedule breaks a rule of its instance."""


@dataclass(frozen=True, eq=False, repr=False)
class Schedule:
    """A mode and times for every job of an instance.

    Attributes:
        modes: (jobs,) int64, index of the job's mode in the instance; -1 where unscheduled.
        starts: (jobs,) float64, time: start of processing, after the set-up.
        ends: (jobs,) float64, time: completion.
        setups: (jobs,) float64, time: set-up paid just before the start.  Default 0.

    Raises:
        ValueError: arrays of different lengths, or of something else than numbers.  Whether the
            schedule is allowed is for `violations` to say.
    """

    modes: IntArray
    starts: FloatArray
    ends: FloatArray
    setups: FloatArray = DEFAULT

    def __post_init__(self) -> None:
        jobs = np.size(self.modes)
        shape, axes = (jobs,), "one per job, as modes has"
        setups = np.zeros(jobs) if self.setups is None else self.setups
        values = {
            "modes": checks.integers("modes", self.modes, shape, "a list of modes"),
            "starts": checks.floats("starts", self.starts, shape, axes),
            "ends": checks.floats("ends", self.ends, shape, axes),
            "setups": checks.floats("setups", setups, shape, axes),
        }
        for name, value in values.items():
            value.setflags(write=False)
            object.__setattr__(self, name, value)  # the dataclass is frozen

    def __repr__(self) -> str:
        return f"Schedule({len(self.modes)} jobs)"

    def machines(self, instance: Instance) -> IntArray:
        """(jobs,) int64: machine of each job, -1 where unscheduled.

        Raises:
            ValueError: the schedule has another number of jobs.
        """
        self._check_length(instance)
        known = (self.modes >= 0) & (self.modes < instance.num_modes)
        return np.where(known, instance.mode_machines[np.where(known, self.modes, 0)], -1)

    def required_setups(self, instance: Instance) -> FloatArray:
        """(jobs,) float64, time: set-up each job needs, from the order on its machine.

        Raises:
            ValueError: the schedule has another number of jobs.
        """
        return required_setups(self.machines(instance), self.starts, instance)

    def machine_finishes(self, instance: Instance) -> FloatArray:
        """(machines,) float64, time: last completion, or the end of the initial occupation.

        Raises:
            ValueError: as `terms`.
        """
        machines = self.machines(instance)
        missing = np.flatnonzero((machines < 0) | ~np.isfinite(self.ends))
        if len(missing):
            raise ValueError(f"job {missing[0]} is not scheduled; give every job a mode and times")
        finishes = instance.machine_available.copy()
        np.maximum.at(finishes, machines, self.ends)
        return finishes

    def terms(self, instance: Instance) -> dict[str, float]:
        """Value of every objective term, by the names of `objective.TERMS`.

        Times are the schedule's; set-ups are those that the order on the machines requires.

        Raises:
            ValueError: another number of jobs, or an unscheduled job.
        """
        finishes = self.machine_finishes(instance)
        late = np.maximum(self.ends - instance.due_times, 0.0)
        machine_late = np.maximum(finishes - instance.machine_due_times, 0.0)
        return {
            "makespan": float(finishes.max()),
            "weighted_tardiness": float(instance.weights @ late),
            "machine_tardiness": float(instance.machine_weights @ machine_late),
            "weighted_completion": float(instance.weights @ self.ends),
            "flow_time": float((self.ends - instance.release_times).sum()),
            "setup_time": float(self.required_setups(instance).sum()),
        }

    def cost(self, instance: Instance, objective: Objective) -> float:
        """The objective's value.

        Raises:
            ValueError: as `terms`.
        """
        return float(objective.value(self.terms(instance), instance.num_jobs))

    def violations(self, instance: Instance, tolerance: float = 1e-6) -> list[str]:
        """One sentence per broken rule, empty if the schedule is feasible.

        Args:
            instance: the problem that the schedule is for.
            tolerance: how much times may be off, as a share of the instance's shortest duration
                (so that the verdict does not depend on the unit of time); rounding errors of the
                largest time are forgiven in any case.
        """
        return find_violations(self, instance, tolerance)

    def check(self, instance: Instance, tolerance: float = 1e-6) -> None:
        """Refuse a schedule that breaks a rule.

        Raises:
            InfeasibleSchedule: naming the first violations.
        """
        found = self.violations(instance, tolerance)
        if found:
            more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            raise InfeasibleSchedule(
                f"the schedule is infeasible: {'; '.join(found[:SHOWN])}{more}"
            )

    def to_json(self) -> str:
        """The schedule as JSON; times that are not finite become null."""
        values = {
            name: [value if np.isfinite(value) else None for value in getattr(self, name).tolist()]
            for name in ("modes", "starts", "ends", "setups")
        }
        return json.dumps({"format": FORMAT, "version": VERSION, **values})

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """The inverse of `to_json`; null becomes infinity.

        Raises:
            ValueError: not JSON, not a schedule, a newer version, or fields that `Schedule`
                refuses.
        """
        try:
            data = json.loads(text)
        except (json.JSONDecodeError, RecursionError):
            raise ValueError("the schedule is not JSON; give what Schedule.to_json wrote") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(
                f'the JSON has no "format": "{FORMAT}"; give what Schedule.to_json wrote'
            )
        if data.get("version") != VERSION:
            raise ValueError(
                f"the schedule has version {data.get('version')!r}, this hetsched reads {VERSION}; "
                "use the hetsched that wrote it"
            )
        values: dict[str, Any] = {}
        for name in ("modes", "starts", "ends", "setups"):
            if not isinstance(data.get(name), list):
                raise ValueError(f"the schedule has no list {name}; give one entry per job")
            values[name] = [np.inf if one is None else one for one in data[name]]
        return cls(**values)

    def _check_length(self, instance: Instance) -> None:
        if len(self.modes) != instance.num_jobs:
            raise ValueError(
                f"the schedule has {len(self.modes)} jobs and the instance {instance.num_jobs}; "
                "give the instance that the schedule was made for"
            )
