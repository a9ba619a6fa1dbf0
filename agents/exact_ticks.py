"""An instance and an objective in whole numbers, as the CP-SAT models need them.

Times are multiplied by a power of ten that makes all of them whole, if one exists within the
solver's range, and otherwise by the largest factor that fits and rounded down (due times up).
Rounding gives a relaxation: rounding every start of a feasible schedule down keeps it feasible
and makes no term of the objective larger, so the solver's bound stays a bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetsched.envs.instance import Instance
    from hetsched.envs.objective import Objective

LONGEST = 10**8  # ticks in the horizon ...
LARGEST = 10**6  # ... and largest coefficient: sums of their products stay within 64 bits


@dataclass(frozen=True, eq=False)
class Ticks:
    """An instance and an objective in whole numbers, all rounded down except due times.

    Attributes:
        per_time: ticks in one unit of time.
        whole: neither a time nor a coefficient was rounded.
        durations: (modes,); release, due (jobs,); due is ``horizon`` where there is none.
        available, machine_due: (machines,); setups: (jobs + 1, jobs, machines) or None;
        lags: (arcs,).
        horizon: no schedule that starts jobs as early as their order allows ends later.
        per_cost: the solver's objective per unit of cost.
        makespan, setup_time: coefficients of these terms; tardiness, completion: (jobs,), of each
            job's tardiness and completion; machine_tardiness: (machines,).
        constant: cost that is in the objective whatever the schedule (minus the release times of
            the flow time), in units of cost.
    """

    per_time: float
    whole: bool
    durations: NDArray[np.int64]
    release: NDArray[np.int64]
    due: NDArray[np.int64]
    available: NDArray[np.int64]
    machine_due: NDArray[np.int64]
    setups: NDArray[np.int64] | None
    lags: NDArray[np.int64]
    horizon: int
    per_cost: float
    makespan: int
    setup_time: int
    tardiness: NDArray[np.int64]
    completion: NDArray[np.int64]
    machine_tardiness: NDArray[np.int64]
    constant: float


class Answer(NamedTuple):
    """What a model returns.

    Attributes:
        modes, starts: (jobs,) chosen mode and start in ticks of each job; None if none was found.
        bound: lower bound of the solver's objective.
        proven: the schedule is optimal in ticks.
    """

    modes: list[int] | None
    starts: list[int] | None
    bound: float
    proven: bool


def to_ticks(instance: Instance, objective: Objective) -> Ticks:
    """Scale an instance and an objective to whole numbers (see the top of this module)."""
    durations = instance.durations
    setups = instance.setup_times
    longest = np.zeros(instance.num_jobs)
    np.maximum.at(longest, instance.mode_jobs, durations)
    horizon = (
        max(instance.release_times.max(), instance.machine_available.max())
        + longest.sum()
        + (0.0 if setups is None else setups.max(axis=(0, 2)).sum())
        + instance.precedence_lags.sum()
    )
    due = np.minimum(instance.due_times, horizon)
    machine_due = np.minimum(instance.machine_due_times, horizon)
    parts = [durations, instance.release_times, due, instance.machine_available, machine_due,
             instance.precedence_lags]  # fmt: skip
    times = np.concatenate(parts if setups is None else [*parts, setups.ravel()])
    per_time, whole = _whole_factor(times, LONGEST / horizon)

    share = 1.0 / instance.num_jobs if objective.per_job else 1.0
    tardiness = objective.weighted_tardiness * instance.weights
    completion = objective.weighted_completion * instance.weights + objective.flow_time
    machine_tardiness = objective.machine_tardiness * instance.machine_weights
    single = np.array([objective.makespan, objective.setup_time])
    coefficients = np.concatenate([single, tardiness, completion, machine_tardiness])
    top = coefficients.max(initial=0.0)
    per_coefficient, whole_costs = _whole_factor(coefficients, LARGEST / top if top > 0 else 1.0)

    def down(values: NDArray[np.float64], factor: float) -> NDArray[np.int64]:
        return np.floor(values * factor * (1 + 1e-12) + 1e-9).astype(np.int64)

    def up(values: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.ceil(values * per_time * (1 - 1e-12) - 1e-9).astype(np.int64)

    makespan, setup_time = down(single, per_coefficient).tolist()
    return Ticks(
        per_time=per_time,
        whole=whole and whole_costs,
        durations=down(durations, per_time),
        release=down(instance.release_times, per_time),
        due=up(due),
        available=down(instance.machine_available, per_time),
        machine_due=up(machine_due),
        setups=None if setups is None else down(setups, per_time),
        lags=down(instance.precedence_lags, per_time),
        horizon=math.ceil(horizon * per_time) + 1,
        per_cost=per_time * per_coefficient / share,
        makespan=makespan,
        setup_time=setup_time,
        tardiness=down(tardiness, per_coefficient),
        completion=down(completion, per_coefficient),
        machine_tardiness=down(machine_tardiness, per_coefficient),
        constant=-objective.flow_time * share * float(instance.release_times.sum()),
    )


def _whole_factor(values: NDArray[np.float64], largest: float) -> tuple[float, bool]:
    """The smallest power of ten that makes all values whole, or the largest one allowed."""
    top = float(np.abs(values).max(initial=0.0))
    # From where the largest is 1 or more: the tolerance below is absolute.
    first = max(0, -math.floor(math.log10(top))) if top > 0 else 0
    for exponent in range(first, first + 10):
        factor = 10.0**exponent
        if factor > largest:
            break
        scaled = values * factor
        if np.all(np.abs(scaled - np.round(scaled)) <= 1e-9 + 1e-15 * scaled):
            return factor, True
    return largest, False
