"""Online rules that may leave a machine idle for a better-suited job: ect-wait and AlloX.

Both look at all waiting jobs and at what every machine still has to do, lay the waiting jobs out
over the machines, and start a job only where that layout has it start now.  The layout is made
anew at every decision, since jobs arrive and durations turn out otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from hetsched.agents.rules_parts import INF, NEVER, by_completion, lay_out

if TYPE_CHECKING:
    from hetsched.envs.simulator import State


@dataclass(eq=False)
class EctWaitRule:
    """Each job on the machine that would complete it first, even if it must wait for it.

    The waiting jobs are laid out one by one behind what the machines still have to do: always the
    pair of job and machine with the earliest completion next (min-min).  A job starts if its place
    in that layout begins now; where no job's does, the rule waits.  In plan, where nothing runs,
    this is min-min.

    Other orders of laying out (shortest, longest or oldest job first, largest sufferage first)
    gave mean flow times from equal to 50 % longer on online instances (``docs/rules.md``).
    """

    name: str

    def scores(self, state: State) -> Tensor:
        """(B, J * K + 1): 0, -1, ... in the order of laying out at edges that start now, lower
        than WAIT elsewhere."""
        layout = _Layout(state)
        edges = by_completion(state)  # (B, J, K)
        flat = edges.flatten(1)  # (B, J * K)
        for position in range(layout.longest):
            action, start = layout.place_next()  # (B,)
            begins = start < INF
            if state.deciding == "dispatch":
                begins = start <= state.now
            score = flat.gather(1, action[:, None])
            score = torch.where(begins[:, None], -float(position), score)
            flat.scatter_(1, action[:, None], score)
            if state.deciding == "plan" or not layout.any_room():
                break
        return lay_out(flat.view_as(edges), NEVER)


class _Layout:
    """Machines filling up with the waiting jobs of a state, in all rows at once.

    Attributes:
        longest: the largest number of waiting jobs in a row, W (at least 1).
    """

    def __init__(self, state: State) -> None:
        problem = state.problem
        waiting = state.candidates() & ~state.done[:, None]  # (B, J)
        self.state = state
        self.longest = max(1, int(waiting.sum(1).max()))
        jobs = (~waiting).to(torch.uint8).argsort(dim=1, stable=True)[:, : self.longest]
        rows = torch.arange(len(jobs), device=jobs.device)[:, None]
        self.rows, self.jobs = rows, jobs  # (B, 1), (B, W)
        left = waiting.gather(1, jobs)[:, :, None]
        self.p = problem.processing_times[rows, jobs].masked_fill(~left, INF)  # (B, W, K)
        self.machines = problem.mode_machines[rows, jobs]  # (B, W, K)
        self.demand = problem.demand[rows, jobs]  # (B, W, K)
        ready = state.ready_on_slots(state.believed_ready)  # (B, J, 1 or K)
        # In dispatch a candidate is ready by now, unless a lag holds it off some machines.
        waits = state.deciding == "plan" or ready.shape[2] > 1
        self.ready = ready[rows, jobs] if waits else None
        self.last = state.last_job.clone()  # (B, M)
        self.units = state.believed_units.clone()  # (B, M, U)
        if state.deciding == "dispatch":
            self.units = self.units.clamp(min=state.now[:, None, None])

    def place_next(self) -> tuple[Tensor, Tensor]:
        """Place the pair that completes first: its action (B,) and the time (B,) from which it
        takes its machine, infinity in rows without a job left."""
        rows, begin = self.rows.squeeze(1), self._room()
        if self.ready is not None:
            begin = torch.maximum(begin, self.ready)
        length, setups = self.p, self.state.problem.setup_times
        if setups is not None:
            last = self.last.gather(1, self.machines.flatten(1)).view_as(self.machines)
            length = length + setups[rows[:, None, None], last, self.jobs[:, :, None],
                                     self.machines]  # fmt: skip
        end, edge = (begin + length).flatten(1).min(1)  # (B,)
        place, slot = edge // self.p.shape[2], edge % self.p.shape[2]
        machine = self.machines[rows, place, slot]
        begin = begin[rows, place, slot].masked_fill(end == INF, INF)
        job = self.jobs[rows, place]
        self._occupy(machine, self.demand[rows, place, slot], end)
        self.last[rows, machine] = job
        self.p[rows, place] = INF
        return job * self.p.shape[2] + slot, begin

    def _room(self) -> Tensor:
        """(B, W, K): time from which the machine of a slot has room."""
        units = self.units
        if units.shape[2] == 1 and self.state.problem.dense:
            return units.transpose(1, 2).expand(self.p.shape)
        at = self.machines.flatten(1) * units.shape[2] + self.demand.flatten(1) - 1
        ordered = units.flatten(1) if units.shape[2] == 1 else units.sort(dim=2).values.flatten(1)
        return ordered.gather(1, at).view(self.p.shape)

    def _occupy(self, machine: Tensor, demand: Tensor, end: Tensor) -> None:
        """Take the units of the machine that are free first; all (B,)."""
        rows = self.rows.squeeze(1)
        units = self.units[rows, machine]  # (B, U)
        if units.shape[1] == 1:
            self.units[rows, machine, 0] = end
            return
        order = units.argsort(dim=1, stable=True)
        taken = torch.arange(units.shape[1], device=units.device) < demand[:, None]
        taken = torch.zeros_like(taken).scatter(1, order, taken)
        self.units[rows, machine] = torch.where(taken, end[:, None], units)

    def any_room(self) -> bool:
        """Some machine of some row has room now."""
        return bool((self.units <= self.state.now[:, None, None]).any())


@dataclass(eq=False)
class AlloxRule:
    """AlloX: the assignment of waiting jobs to (machine, position from the end) of least cost.

    A job in position n from the end of machine k delays n jobs, itself included, by p_jk, and is
    itself delayed by the time R_k that the machine still has to run: the cost of the pair is
    n p_jk + R_k, and the sum over an assignment is the total completion time counted from now.
    Of each machine with room the job in the highest used position starts; where that position
    belongs to busy machines only, the rule waits.  Weights and due times play no part, as in the
    paper: Le, Sun, Chowdhury and Liu, AlloX, EuroSys 2020, section 4.  Not taken over: the
    paper's fairness limit alpha and its sampling of durations.

    Our addition: a machine with several units counts as so many machines; a job that needs
    several units takes its place on one of them.
    """

    name: str

    def scores(self, state: State) -> Tensor:
        """(B, J * K + 1): 0, -1, ... at the edges that start, lower than WAIT elsewhere.

        The assignment is solved row by row with scipy.
        """
        edges = by_completion(state)
        filled = edges.cpu().numpy()
        p = state.problem.processing_times.cpu().numpy()
        machines = state.problem.mode_machines.cpu().numpy()
        waiting = (state.candidates() & ~state.done[:, None]).cpu().numpy()
        legal = state.legal().cpu().numpy()
        units = state.believed_units
        since = state.now if state.deciding == "dispatch" else units.amin((1, 2))
        remaining = (units - since[:, None, None]).clamp(min=0.0).cpu().numpy()  # (B, M, U)
        for row in np.flatnonzero(waiting.any(1)):
            jobs = np.flatnonzero(waiting[row])
            first = _first_jobs(p[row, jobs], machines[row, jobs], remaining[row])
            for place, (job, slot, rest) in enumerate(first):
                if legal[row, jobs[job], slot] and (rest <= 0.0 or state.deciding == "plan"):
                    filled[row, jobs[job], slot] = -place
        return lay_out(torch.from_numpy(filled).to(edges.device), NEVER)


def _first_jobs(
    p: np.ndarray, machines: np.ndarray, remaining: np.ndarray
) -> list[tuple[int, int, float]]:
    """(job, slot, wait for the unit) of the first job of every unit in use, soonest first.

    Args:
        p, machines: (W, K) durations and machines of the waiting jobs' slots.
        remaining: (M, U) time until a unit is free, infinity where there is none.
    """
    count = len(p)
    exists = np.isfinite(remaining)
    machine_of, _ = np.nonzero(exists)  # (C,) machine of every unit
    rest = remaining[exists]  # (C,)
    on_machine = np.full((count, len(remaining)), np.inf)
    np.minimum.at(on_machine, (np.arange(count)[:, None], machines), p)
    length = on_machine[:, machine_of]  # (W, C)
    positions = np.arange(1, count + 1)
    cost = length[:, :, None] * positions + rest[None, :, None]  # (W, C, N)
    flat = cost.reshape(count, -1)
    finite = np.isfinite(flat)
    far = flat[finite].max() * (count + 1)  # dearer than any assignment without such a pair
    job, column = linear_sum_assignment(np.where(finite, flat, far))
    unit, position = column // count, column % count
    first: dict[int, int] = {}
    for at in np.lexsort((job, position)):  # the highest position is written last
        first[int(unit[at])] = int(at)
    chosen = []
    for one in sorted(first, key=lambda u: (rest[u], u)):
        who = int(job[first[one]])
        on = np.where(machines[who] == machine_of[one], p[who], np.inf)
        chosen.append((who, int(on.argmin()), float(rest[one])))
    return chosen
