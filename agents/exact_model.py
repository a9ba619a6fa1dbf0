"""The CP-SAT model of every problem an Instance can hold, written on OR-tools.

One optional interval per mode, exactly one of them present per job; NoOverlap on machines of one
unit, Cumulative on the others, a circuit per machine where set-ups depend on the order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ortools.sat.python import cp_model

from hetsched.agents.exact_ticks import Answer, Ticks

if TYPE_CHECKING:
    from hetsched.envs.instance import Instance
    from hetsched.envs.schedule import Schedule

NAME = "direct"


def solve(
    instance: Instance, ticks: Ticks, time_limit: float, workers: int, hint: Schedule | None
) -> Answer:
    """Solve in ticks, within the time limit (seconds)."""
    model = Model(instance, ticks)
    if hint is not None:
        model.hint(hint)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit
    solver.parameters.num_workers = workers
    status = solver.solve(model.cp)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer(None, None, max(0.0, solver.best_objective_bound), False)
    chosen = [solver.boolean_value(present) for present in model.present]
    modes = np.flatnonzero(chosen).tolist()  # modes are sorted by job
    starts = [solver.value(start) for start in model.starts]
    return Answer(modes, starts, solver.best_objective_bound, status == cp_model.OPTIMAL)


class Model:
    """Variables and constraints; ``cp`` is the CP-SAT model."""

    def __init__(self, instance: Instance, ticks: Ticks) -> None:
        self.instance, self.ticks = instance, ticks
        self.cp = cp = cp_model.CpModel()
        horizon = ticks.horizon
        self.starts = [cp.new_int_var(int(r), horizon, "") for r in ticks.release]
        self.ends = [cp.new_int_var(int(r), horizon, "") for r in ticks.release]
        self.present = [cp.new_bool_var("") for _ in instance.mode_jobs]
        self.on_machine: dict[tuple[int, int], list[cp_model.IntVar]] = {}
        self.of_job: list[list[cp_model.IntVar]] = [[] for _ in self.starts]
        self.paid: list[tuple[cp_model.IntVar, int]] = []  # literal of an order, its set-up
        # Set-ups begin once the job is ready: after its release, or, behind predecessors, at a
        # time that needs a variable of its own.
        self.ready: list[cp_model.LinearExprT] = list(self.starts)
        if ticks.setups is not None:
            self.ready = ticks.release.tolist()
            for job in set(instance.precedence[1].tolist()):
                self.ready[job] = cp.new_int_var(int(ticks.release[job]), horizon, "")
                cp.add(self.ready[job] <= self.starts[job])
        intervals = self._modes()
        self._machines(intervals)
        self._precedence()
        self._objective()

    def _modes(self) -> list[cp_model.IntervalVar]:
        """Exactly one mode per job, its interval between the job's start and end."""
        cp, ticks, intervals = self.cp, self.ticks, []
        for mode, (job, machine) in enumerate(self._pairs()):
            present, size = self.present[mode], int(ticks.durations[mode])
            self.of_job[job].append(present)
            self.on_machine.setdefault((job, machine), []).append(present)
            intervals.append(
                cp.new_optional_interval_var(self.starts[job], size, self.ends[job], present, "")
            )
            if ticks.available[machine] > 0:
                cp.add(self.starts[job] >= int(ticks.available[machine])).only_enforce_if(present)
        for job, literals in enumerate(self.of_job):
            cp.add_exactly_one(literals)
            first = int(np.searchsorted(self.instance.mode_jobs, job))
            sizes = ticks.durations[first : first + len(literals)].tolist()
            # Implied by the intervals; said again for the linear relaxation.
            cp.add(self.ends[job] - self.starts[job] == _dot(literals, sizes))
        return intervals

    def _pairs(self) -> list[tuple[int, int]]:
        instance = self.instance
        return list(zip(instance.mode_jobs.tolist(), instance.mode_machines.tolist(), strict=True))

    def _machines(self, intervals: list[cp_model.IntervalVar]) -> None:
        """Capacities and set-ups."""
        instance = self.instance
        setups = self.ticks.setups
        for machine, capacity in enumerate(instance.capacity.tolist()):
            modes = np.flatnonzero(instance.mode_machines == machine).tolist()
            here = [intervals[mode] for mode in modes]
            if capacity > 1:
                self.cp.add_cumulative(here, instance.demand[modes].tolist(), capacity)
                continue
            self.cp.add_no_overlap(here)
            if setups is not None and setups[:, :, machine].any():
                self._circuit(machine, setups[:, :, machine])

    def _circuit(self, machine: int, setups: np.ndarray) -> None:
        """Order of the jobs on one machine: a tour over the jobs it gets, node 0 = idle start."""
        cp, idle = self.cp, len(self.starts)
        jobs = [job for job in range(idle) if (job, machine) in self.on_machine]
        empty = cp.new_bool_var("")
        arcs: list[tuple[int, int, cp_model.LiteralT]] = [(0, 0, empty)]
        for after in jobs:
            here = cp.new_bool_var("")
            cp.add(sum(self.on_machine[after, machine]) == here)
            cp.add_implication(here, ~empty)
            arcs.append((after + 1, after + 1, ~here))
            arcs.append((after + 1, 0, cp.new_bool_var("")))
            for before in [idle, *jobs]:
                if before == after:
                    continue
                follows = cp.new_bool_var("")
                arcs.append((0 if before == idle else before + 1, after + 1, follows))
                setup = int(setups[before, after])
                self.paid.append((follows, setup))
                free = self.ticks.available[machine] if before == idle else self.ends[before]
                start, ready = self.starts[after], self.ready[after]
                cp.add(start >= free + setup).only_enforce_if(follows)
                cp.add(start >= ready + setup).only_enforce_if(follows)
        cp.add_circuit(arcs)

    def _precedence(self) -> None:
        instance = self.instance
        arcs = zip(*instance.precedence.tolist(), self.ticks.lags.tolist(), strict=True)
        for before, after, lag in arcs:
            end, ready = self.ends[before], self.ready[after]
            self.cp.add(ready >= end)
            if lag == 0:
                continue
            for machine in range(instance.num_machines):
                same = sum(self.on_machine.get((before, machine), []))
                for literal in self.on_machine.get((after, machine), []):
                    self.cp.add(ready >= end + lag - lag * same).only_enforce_if(literal)

    def _objective(self) -> None:
        """Minimise the terms whose coefficient is not zero."""
        cp, ticks, horizon = self.cp, self.ticks, self.ticks.horizon
        variables: list[cp_model.IntVar] = []
        factors: list[int] = []

        def cost(variable: cp_model.IntVar, factor: int) -> None:
            variables.append(variable)
            factors.append(int(factor))

        finish = self._finish_times()
        if ticks.makespan:
            lowest = int(ticks.available.max())  # machines without a job finish when available
            makespan = cp.new_int_var(lowest, horizon, "makespan")
            for end in [*self.ends, *finish]:
                cp.add(makespan >= end)
            cost(makespan, ticks.makespan)
        for machine, factor in enumerate(ticks.machine_tardiness.tolist()):
            if factor and ticks.machine_due[machine] < horizon:
                late = cp.new_int_var(0, horizon, "")
                cp.add(late >= finish[machine] - int(ticks.machine_due[machine]))
                cost(late, factor)
        for job, end in enumerate(self.ends):
            if ticks.completion[job]:
                cost(end, ticks.completion[job])
            if ticks.tardiness[job] and ticks.due[job] < horizon:
                late = cp.new_int_var(0, horizon, "")
                cp.add(late >= end - int(ticks.due[job]))
                cost(late, ticks.tardiness[job])
        if ticks.setup_time:
            for literal, setup in self.paid:
                if setup:
                    cost(literal, setup * ticks.setup_time)
        cp.minimize(_dot(variables, factors))

    def _finish_times(self) -> list[cp_model.IntVar]:
        """One variable per machine, at least its load and the end of each of its jobs."""
        cp, ticks, instance = self.cp, self.ticks, self.instance
        finish = []
        needed = ticks.makespan or ticks.machine_tardiness.any()
        for machine, capacity in enumerate(instance.capacity.tolist() if needed else []):
            available = int(ticks.available[machine])
            end = cp.new_int_var(available, ticks.horizon, "")
            finish.append(end)
            modes = np.flatnonzero(instance.mode_machines == machine).tolist()
            area = (ticks.durations[modes] * instance.demand[modes]).tolist()
            load = _dot([self.present[mode] for mode in modes], area)
            cp.add(capacity * (end - available) >= load)
            for mode in modes:
                job = int(instance.mode_jobs[mode])
                cp.add(end >= self.ends[job]).only_enforce_if(self.present[mode])
        return finish

    def hint(self, schedule: Schedule) -> None:
        """Start the search from a schedule."""
        chosen = set(schedule.modes.tolist())
        for mode, present in enumerate(self.present):
            self.cp.add_hint(present, mode in chosen)
        begins = np.floor(schedule.starts * self.ticks.per_time + 1e-6).astype(np.int64)
        sizes = self.ticks.durations[schedule.modes]
        for job, (begin, size) in enumerate(zip(begins.tolist(), sizes.tolist(), strict=True)):
            self.cp.add_hint(self.starts[job], begin)
            self.cp.add_hint(self.ends[job], begin + size)


def _dot(variables: list[cp_model.IntVar], factors: list[int]) -> cp_model.LinearExprT:
    return cp_model.LinearExpr.weighted_sum(variables, factors)
