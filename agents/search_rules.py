"""Starts of a search: schedules of dispatching rules, compiled where that is possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.agents.rules_index import AtcRule, AtcsReadyRule
from hetsched.agents.sequences import Sequences

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hetsched.agents.policy import Policy
    from hetsched.envs.instance import Instance
    from hetsched.envs.schedule import Schedule

# Orders of list rules: (instance, (jobs, machines) durations) -> key, smallest first.
KEYS: dict[str, Callable[[Instance, NDArray[np.float64]], Any]] = {
    "fifo": lambda one, times: one.release_times,
    "ect": lambda one, times: np.zeros(one.num_jobs),
    "spt": lambda one, times: times.min(1),
    "lpt": lambda one, times: -times.min(1),
    "edd": lambda one, times: one.due_times,
    "wspt": lambda one, times: -one.weights / times.min(1),
    "heft": lambda one, times: -_mean_duration(one),
}
PAIRS = ("min-min", "max-min", "sufferage")


def can_compile(rule: Policy) -> bool:
    """Whether :func:`compiled_rule` knows a rule."""
    known = isinstance(rule, AtcRule | AtcsReadyRule)
    return known or rule.name.partition(":")[0] in (*KEYS, *PAIRS)


def compiled_rule(rule: Policy, instance: Instance) -> Schedule | None:
    """The schedule of a rule, or None where only ``hetsched.agents.rules`` knows it.

    Args:
        rule: from ``make_rule``.
        instance: machines of capacity 1, no precedence, known durations.
    """
    if not can_compile(rule):
        return None
    from hetsched.agents import search_rules_loop as loops  # compiles

    base = rule.name.partition(":")[0]
    solution = Sequences.empty(instance)
    times, release, available = solution.times, instance.release_times, instance.machine_available
    rest = (available, *solution.setups(), solution.order, solution.lengths)
    if isinstance(rule, AtcRule | AtcsReadyRule):
        ready = isinstance(rule, AtcsReadyRule)
        factors = (rule.k1, rule.k2, rule.k3) if isinstance(rule, AtcsReadyRule) else (rule.k, 1, 1)
        order, due, weight = _machine_order(instance), instance.due_times, instance.weights
        k1, k2, k3 = (float(factor) for factor in factors)
        loops.index_loop(ready, k1, k2, k3, order, times, release, due, weight, *rest)
    elif base in KEYS:
        key = KEYS[base](instance, times)
        loops.list_loop(np.argsort(key, kind="stable"), times, release, *rest)
    else:
        loops.pair_loop(PAIRS.index(base), times, release, *rest)
    return solution.schedule()


def _machine_order(instance: Instance) -> NDArray[np.int64]:
    """(machines,): rank by larger weight, then earlier due time, then index."""
    ranked = np.lexsort((instance.machine_due_times, -instance.machine_weights))
    order = np.empty(instance.num_machines, np.int64)
    order[ranked] = np.arange(instance.num_machines)
    return order


def _mean_duration(instance: Instance) -> NDArray[np.float64]:
    """(jobs,): mean over the modes of each job."""
    total = np.bincount(instance.mode_jobs, instance.processing_times)
    return np.asarray(total / np.bincount(instance.mode_jobs))
