"""Search: better schedules than a start, until the budget is spent.

``improve`` picks what fits the instance:

* machines of capacity 1 without precedence: simulated annealing with ruins among its moves
  (``hetsched.agents.ruin``), warm from the start; where the makespan is all that counts, annealing
  towards targets (``hetsched.agents.annealing``);
* the same with precedence: annealing of lists (``hetsched.agents.annealing_graph``), restarted;
* otherwise CP-SAT, started from the best schedule so far (``hetsched.agents.exact``).

All is known to a search, so in dispatch what it finds is hindsight.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from hetsched.agents.annealing import COLD, HOT, Annealing, can_anneal
from hetsched.agents.annealing_graph import anneal_graph, can_anneal_graph
from hetsched.agents.ruin import RuinAndRecreate
from hetsched.envs.objective import Objective

if TYPE_CHECKING:
    from hetsched.envs.instance import Instance
    from hetsched.envs.schedule import Schedule

SLICE = 0.01  # seconds between looks at the clock
FIRST_MOVES = 2_000  # before anything is known about the speed
TRIAL_MOVES = 50_000  # moves of the first attempt at a makespan; failed ones double it
STEP = 0.01  # a makespan to aim for, below the best one
RESTARTS = 4  # parts of a budget where a chain cannot be continued
LEAST_EXACT = 0.05  # seconds below which CP-SAT is not worth building a model
BUILDING = 3e-5  # seconds per mode and machine pair that building a model takes, roughly
CLOSE = 1 + 1e-9  # a cost that is so near to a bound has reached it
LOADS, LOADS_COLD = Objective(machine_tardiness=1.0), 0.02


@dataclasses.dataclass
class Budget:
    """So many moves, or so much wall time from now on.

    Attributes:
        moves: proposals of a local search, a ruin as the many that take as long; None where time
            counts.
        seconds: wall time; None where moves count.

    Raises:
        ValueError: not exactly one of the two, or one below zero.
    """

    moves: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.moves is None) == (self.seconds is None):
            raise ValueError("a budget is moves or seconds; give one of them")
        if self.moves is not None and self.moves < 0:
            raise ValueError(f"moves must not be negative, got {self.moves}")
        if self.seconds is not None and not 0 <= self.seconds < math.inf:
            raise ValueError(f"seconds must be at least 0 and finite, got {self.seconds:g}")
        self._began, self._spent, self._speed = time.perf_counter(), 0, 0.0

    @property
    def share(self) -> float:
        """How much is spent, from 0 to 1."""
        if self.seconds is not None:
            elapsed = time.perf_counter() - self._began
            return min(1.0, elapsed / self.seconds) if self.seconds else 1.0
        return min(1.0, self._spent / self.moves) if self.moves else 1.0

    @property
    def left(self) -> float:
        """Seconds left, infinity where moves count."""
        if self.seconds is None:
            return math.inf
        return max(0.0, self.seconds - (time.perf_counter() - self._began))

    def next_moves(self, parts: int = 0) -> int:
        """Moves to make before looking at the clock again; zero when all is spent.

        Args:
            parts: if given, moves that spend about such a part of the budget, and at most what is
                left; else as many as a short while takes.
        """
        if self.seconds is None:
            total = int(self.moves or 0)
            some = -(-total // parts) if parts else 10 * FIRST_MOVES
            return min(some, total - self._spent)
        if self.left <= 0:
            return 0
        seconds = min(self.seconds / parts if parts else SLICE, self.left)
        return max(1, int(self._speed * seconds)) if self._speed else FIRST_MOVES

    def spend(self, moves: int, seconds: float) -> None:
        """So many moves have been made in so much time."""
        self._spent += moves
        if moves:
            self._speed = moves / max(seconds, 1e-9)


def improve(
    instance: Instance,
    objective: Objective,
    start: Schedule,
    budget: Budget,
    *,
    seed: int = 0,
    hot: float = HOT,
    threads: int = 1,
) -> Schedule:
    """The best schedule found within the budget; never worse than the start.

    Args:
        instance, objective: the problem; true durations are known to the search.
        start: a feasible schedule.
        budget: moves need an instance that can be annealed.
        seed: equal seeds and budgets of moves give equal schedules.
        hot: first temperature; lower ones stay closer to the start.
        threads: chains of annealing or workers of CP-SAT that run side by side.

    Raises:
        ValueError: a budget of moves for an instance that only CP-SAT can search.
    """
    known = with_true_durations(instance)
    if not can_anneal_graph(known):
        if budget.seconds is None:
            raise ValueError(
                "machines of several units are searched by CP-SAT; give a budget of seconds"
            )
        return _exact(known, objective, start, budget, threads)
    if threads == 1:
        return _chain(known, objective, start, budget, seed, hot)
    with ThreadPoolExecutor(threads) as pool:  # the compiled loop lets go of the interpreter
        chains = [
            pool.submit(_chain, known, objective, start, copy.copy(budget), seed + one, hot)
            for one in range(threads)
        ]
        found = [chain.result() for chain in chains]
    return min(found, key=lambda one: one.cost(instance, objective))


def with_true_durations(instance: Instance) -> Instance:
    """The instance as it turns out to be; its modes keep their places."""
    if instance.actual_times is None:
        return instance
    return dataclasses.replace(instance, processing_times=instance.actual_times, actual_times=None)


def _chain(
    instance: Instance,
    objective: Objective,
    start: Schedule,
    budget: Budget,
    seed: int,
    hot: float,
) -> Schedule:
    if not can_anneal(instance):
        found = _restarts(instance, objective, start, budget, seed)
    elif objective.active_terms() == ("makespan",):
        found = _towards_makespans(instance, objective, start, budget, seed, hot)
    else:
        found = _anneal(instance, objective, start, budget, seed, hot)
    # The start may hold a job back or use a slower mode: what comes from it alone differs.
    return min(start, found, key=lambda one: one.cost(instance, objective))


def _anneal(
    instance: Instance,
    objective: Objective,
    start: Schedule,
    budget: Budget,
    seed: int,
    hot: float,
) -> Schedule:
    chain = RuinAndRecreate(instance, objective, seed, start)
    floor = least_cost(instance, objective) * CLOSE
    floor *= instance.num_jobs if objective.per_job else 1  # the loop adds up
    while chain.cost > floor and (moves := budget.next_moves()):
        share, began = budget.share, time.perf_counter()
        warm = hot * (COLD / hot) ** share
        budget.spend(chain.run_mixed(moves, warm, floor), time.perf_counter() - began)
    return chain.schedule()


def _restarts(
    instance: Instance, objective: Objective, start: Schedule, budget: Budget, seed: int
) -> Schedule:
    """Annealing of lists, again and again from the best schedule so far."""
    best, cost, run = start, start.cost(instance, objective), 0
    floor = least_cost(instance, objective) * CLOSE
    while cost > floor and (moves := budget.next_moves(parts=RESTARTS)):
        began = time.perf_counter()
        found = anneal_graph(instance, objective, moves, seed + run, best)
        budget.spend(moves, time.perf_counter() - began)
        if (new := found.cost(instance, objective)) < cost:
            best, cost = found, new
        run += 1
    return best


def _towards_makespans(
    instance: Instance,
    objective: Objective,
    start: Schedule,
    budget: Budget,
    seed: int,
    hot: float,
) -> Schedule:
    """Annealing of what the machines' finishes exceed a makespan below the best one.

    The makespan alone says nothing about most moves; the sum of the excesses does.  Where it
    reaches zero the next makespan is aimed for, otherwise the attempt goes on more slowly.
    """
    # A start may hold jobs back; its sequences alone may be better, and are what goes on.
    here = Annealing(instance, objective, seed, start).schedule()
    best = min(start, here, key=lambda one: one.cost(instance, objective))
    cost = best.cost(instance, objective)
    scale = cost / max(1e-300, best.machine_finishes(instance).max())  # weight, and per_job
    floor = least_cost(instance, objective) * CLOSE
    moves, attempt = TRIAL_MOVES, 0
    while cost > floor:
        aim = _next_makespan(instance, cost / scale, floor / scale)
        relaxed = dataclasses.replace(
            instance,
            machine_due_times=np.full(instance.num_machines, aim),
            machine_weights=np.ones(instance.num_machines),
        )
        chain = Annealing(relaxed, LOADS, seed + attempt, here)
        done, slack = 0, 1e-9 * aim
        if chain.cost <= slack:
            return best  # what is left to gain is rounding
        while done < moves and chain.cost > slack:
            some = min(moves - done, budget.next_moves())
            if not some:
                return best
            warm, began = hot * (LOADS_COLD / hot) ** (done / moves), time.perf_counter()
            made = chain.run(some, warm, warm, slack)
            budget.spend(made, time.perf_counter() - began)
            done += max(1, made)
        here = chain.schedule()
        found = here.cost(instance, objective)
        if found < cost * (1 - 1e-12):
            best, cost = here, found
        else:
            moves *= 2
        attempt += 1
    return best


def _next_makespan(instance: Instance, best: float, floor: float) -> float:
    """One less where all times are whole, or else a little of the way to the floor."""
    times = (instance.processing_times, instance.release_times, instance.machine_available)
    setups = () if instance.setup_times is None else (instance.setup_times,)
    whole = all(bool((one == np.rint(one)).all()) for one in (*times, *setups))
    step = STEP * (best - floor)
    return best - max(1.0, np.floor(step)) if whole else best - step


def least_cost(instance: Instance, objective: Objective) -> float:
    """No schedule costs less: every job alone on its best machine, and at best an even load."""
    times = np.full((instance.num_jobs, instance.num_machines), np.inf)
    np.minimum.at(times, (instance.mode_jobs, instance.mode_machines), instance.durations)
    ready = np.maximum(instance.machine_available, instance.release_times[:, None])
    ends = (ready + times).min(axis=1)  # (jobs,)
    area = np.full(instance.num_jobs, np.inf)
    np.minimum.at(area, instance.mode_jobs, instance.durations * instance.demand)
    units = instance.capacity
    even = (area.sum() + (instance.machine_available * units).sum()) / units.sum()
    finish = float(instance.machine_available.max())
    late = np.maximum(instance.machine_available - instance.machine_due_times, 0.0)
    terms = {
        "makespan": max(finish, float(ends.max()), float(even)),
        "weighted_tardiness": float(instance.weights @ np.maximum(ends - instance.due_times, 0.0)),
        "machine_tardiness": float(instance.machine_weights @ late),
        "weighted_completion": float(instance.weights @ ends),
        "flow_time": float((ends - instance.release_times).sum()),
        "setup_time": 0.0,
    }
    return float(objective.value(terms, instance.num_jobs)) * (1 - 1e-12)


def _exact(
    instance: Instance, objective: Objective, start: Schedule, budget: Budget, threads: int
) -> Schedule:
    from hetsched.agents.exact import solve_exact  # loads OR-tools

    seconds = budget.left - BUILDING * instance.num_modes
    if seconds < LEAST_EXACT:
        return start
    found = solve_exact(instance, objective, seconds, workers=threads, hint=start).schedule
    return start if found is None else found


def first_schedule(instance: Instance, objective: Objective) -> Schedule:
    """A feasible schedule at once: earliest completions, or each job in its fastest mode."""
    from hetsched.agents.exact import timed_again

    known = with_true_durations(instance)
    if can_anneal(known):
        return Annealing(known, objective, seed=0).schedule()
    if can_anneal_graph(known):
        return anneal_graph(known, objective, moves=0, seed=0)
    order = np.lexsort((known.processing_times, known.mode_jobs))
    modes = order[np.searchsorted(known.mode_jobs[order], np.arange(known.num_jobs))]
    return timed_again(known, modes, np.zeros(known.num_jobs, np.int64))
