"""Simulated annealing over machine sequences, compiled; a strong reference, a teacher, a search.

Covers plans on machines of capacity 1 without precedence: a solution is one sequence of jobs per
machine, a job starts at max(machine free, release) + set-up.  Moves take a job to another place
(on any machine) or exchange two jobs; only the one or two machines touched are evaluated anew.
Metropolis acceptance with geometric cooling (Kirkpatrick, Gelatt & Vecchi 1983).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.agents.sequences import Sequences
from hetsched.envs.objective import TERMS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetsched.envs.instance import Instance
    from hetsched.envs.objective import Objective
    from hetsched.envs.schedule import Schedule

HOT, COLD = 0.5, 0.001  # temperatures over what delaying a job by a mean duration costs
ALONE_HOT, ALONE_COLD = 0.1, 0.01  # where the makespan alone counts: most moves change little
FOCUS, NEAR = 1.5, 0.15  # proposals prefer fast machines; so many stay on the job's machine


def can_anneal(instance: Instance) -> bool:
    """Capacity 1 everywhere, no precedence, known durations."""
    return bool(
        (instance.capacity == 1).all()
        and instance.precedence.shape[1] == 0
        and instance.actual_times is None
    )


def anneal(
    instance: Instance, objective: Objective, moves: int, seed: int, start: Schedule | None = None
) -> Schedule:
    """The best schedule met in so many moves, while the temperature falls from HOT to COLD.

    Args:
        instance: see :func:`can_anneal`.
        moves: proposals; a few thousand per job are plenty.
        seed: of the proposals.
        start: first solution; by default every job, in order of its fastest time, goes to the
            machine that completes it first.

    Raises:
        ValueError: the instance has precedence, shared machines or uncertain durations.
    """
    chain = Annealing(instance, objective, seed, start)
    alone = objective.active_terms() == ("makespan",)
    chain.run(moves, *((ALONE_HOT, ALONE_COLD) if alone else (HOT, COLD)))
    return chain.schedule()


class Annealing:
    """One chain of moves that can be continued, at any temperature.

    Attributes:
        cost: of the best solution met, as the loop believes it.

    Args:
        as for :func:`anneal`.

    Raises:
        ValueError: as :func:`anneal`.
    """

    def __init__(
        self, instance: Instance, objective: Objective, seed: int, start: Schedule | None = None
    ) -> None:
        if not can_anneal(instance):
            raise ValueError(
                "annealing needs capacity 1, no precedence and no actual_times; use another method"
            )
        self._now = Sequences.empty(instance)
        self._best = self._now.copy()
        self._scale = _cost_of_delay(instance, objective, self._now.times)
        self._data = _data(self._now, objective)
        self._rng = np.random.default_rng(seed).integers(1, 2**63, 1).astype(np.uint64)
        self.cost = np.inf
        self._now.fill(start)
        self.run(0, 1.0, 1.0)

    def run(self, moves: int, hot: float, cold: float, floor: float = 0.0) -> int:
        """Make moves while the temperature falls geometrically; gives the number made.

        Args:
            hot, cold: temperatures, > 0, over what it costs to delay a job by a mean duration.
            floor: cost at which to stop early.
        """
        return self._change(_compiled(), moves, hot, cold, floor, FOCUS, NEAR)

    def _change(
        self, loop: Any, count: int, hot: float, cold: float, floor: float, *more: Any
    ) -> int:
        """Let a compiled loop change the solution so many times; gives the number made."""
        self.cost, made = loop(
            *self._data,
            self._now.order,
            self._now.lengths,
            self._best.order,
            self._best.lengths,
            self.cost,
            floor,
            count,
            hot * self._scale,
            cold * self._scale,
            self._rng,
            *more,
        )
        return int(made)

    def schedule(self) -> Schedule:
        """The best solution met, every job as early as its machine's sequence allows."""
        return self._best.schedule()


def _cost_of_delay(instance: Instance, objective: Objective, times: NDArray[np.float64]) -> float:
    """What a mean duration and set-up weigh in the objective: the unit of temperatures.

    Not taken from any solution, so that a good start is not cooled away and a cost near zero
    does not freeze the search.
    """
    setup = 0.0 if instance.setup_times is None else float(instance.setup_times.mean())
    span = float(times.min(axis=1).mean()) + setup
    jobs = objective.weighted_tardiness + objective.weighted_completion
    weight = objective.makespan + objective.flow_time + jobs * float(instance.weights.mean())
    weight += objective.machine_tardiness * float(instance.machine_weights.mean())
    return max(weight * span + objective.setup_time * setup, 1e-300)


def _data(solution: Sequences, objective: Objective) -> tuple[Any, ...]:
    """An instance and an objective as the loop reads them."""
    instance = solution.instance
    return (
        solution.times,
        np.argsort(solution.times, axis=1, kind="stable"),  # (jobs, machines), fast ones first
        instance.release_times,
        instance.due_times,
        instance.weights,
        instance.machine_available,
        instance.machine_due_times,
        instance.machine_weights,
        *solution.setups(),
        np.array([getattr(objective, term) for term in TERMS], np.float64),
    )


@cache
def _compiled() -> Any:
    """The inner loop; compiled at first use and kept on disk by numba."""
    from hetsched.agents.annealing_loop import anneal_loop

    return anneal_loop
