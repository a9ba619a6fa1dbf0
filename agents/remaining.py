"""What is left of a plan: the unscheduled jobs as an instance of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetsched.envs.instance import Instance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetsched.envs.simulator import State


def remaining(state: State, row: int) -> tuple[Instance, NDArray[np.int64], NDArray[np.int64]]:
    """The instance that a row of a plan still has to solve.

    Machines are occupied until they have done what is scheduled on them, and their first set-up is
    the one from their last job; jobs are released once their predecessors are done that are
    scheduled (lags between machines count as on the best machine).  Whatever is added to a schedule
    of this instance costs the same as in the whole, up to a constant.

    Args:
        state: a plan on machines of capacity 1.
        row: with at least one unscheduled job.

    Returns:
        The instance (the whole one where nothing is scheduled), and the index in the whole of each
        of its jobs (jobs,) and modes (modes,).
    """
    whole = state.problem.instances[row]
    if not bool(state.scheduled[row].any()):
        return whole, np.arange(whole.num_jobs), np.arange(whole.num_modes)
    left = ~state.scheduled[row, : whole.num_jobs].cpu().numpy()  # (jobs,)
    jobs, modes = np.flatnonzero(left), np.flatnonzero(left[whole.mode_jobs])
    setups = whole.setup_times
    if setups is not None:
        last = state.last_job[row, : whole.num_machines].cpu().numpy()  # (machines,)
        idle = np.where(last < whole.num_jobs, last, whole.num_jobs)  # the padded row is idle
        first = setups[idle, :, np.arange(whole.num_machines)].T  # (jobs, machines)
        setups = np.concatenate([setups[jobs], first[None]])[:, jobs]
    number = np.cumsum(left) - 1  # of each remaining job
    arcs = left[whole.precedence].all(axis=0)
    instance = Instance(
        num_jobs=len(jobs),
        num_machines=whole.num_machines,
        mode_jobs=number[whole.mode_jobs[modes]],
        mode_machines=whole.mode_machines[modes],
        processing_times=whole.processing_times[modes],
        release_times=state.ready[row].amin(1).cpu().numpy()[jobs],
        due_times=whole.due_times[jobs],
        weights=whole.weights[jobs],
        machine_available=state.units[row, : whole.num_machines, 0].cpu().numpy(),
        machine_due_times=whole.machine_due_times,
        machine_weights=whole.machine_weights,
        setup_times=setups,
        precedence=number[whole.precedence[:, arcs]],
        precedence_lags=whole.precedence_lags[arcs],
    )
    return instance, jobs, modes
