"""State: a batch of schedules being built, and the transitions between decisions."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from hetsched.envs.bounds import objective_bound
from hetsched.envs.timing import Timing

if TYPE_CHECKING:
    from hetsched.envs.objective import Objective
    from hetsched.envs.problem import Problem
    from hetsched.envs.schedule import Schedule

Deciding = Literal["plan", "dispatch"]
INF = float("inf")


class State:
    """B schedules in the making.  Mutable: ``step`` moves every unfinished row by one decision.

    **plan**: all is known; any job whose predecessors are scheduled may be put behind what its
    machine already has; start = max(machine free, job ready) + set-up.
    **dispatch**: a clock runs; released jobs whose predecessors have completed may start on
    machines with room now, or WAIT moves to the next release or completion.  Where nothing can
    start the clock moves by itself.  WAIT is legal while some machine is busy.  The policy sees
    expected durations; a job that overruns is expected to end "now".

    Actions: ``job * K + slot`` starts a job in one of its modes; ``J * K`` is WAIT.

    Rewards are the decrease of a lower bound of the objective (``hetsched.envs.bounds``), which
    meets the cost when the row is done: the rewards of an episode add up to
    ``initial_bound - cost``.

    Attributes:
        problem, objective, deciding: what is being solved.
        now: (B,) float64, the clock (dispatch).
        scheduled: (B, J) bool; chosen: (B, J) int64 slot or -1.
        starts, ends: (B, J) float64 true times, infinity while not scheduled.
        setups: (B, J) float64, set-up time paid before each job.
        units, believed_units: (B, M, U) time at which each unit of a machine is free, truly and
            as expected; infinity at units that do not exist.
        bound: (B,) float64, current lower bound; initial_bound: its first value.
        done: (B,) bool; steps: (B,) int64 decisions taken.
    """

    def __init__(
        self, problem: Problem, objective: Objective, deciding: Deciding, live: bool = False
    ) -> None:
        if deciding not in get_args(Deciding):
            raise ValueError(f"deciding must be 'plan' or 'dispatch', got {deciding!r}")
        self.problem, self.objective, self.deciding = problem, objective, deciding
        if deciding == "plan" and problem.noisy:
            raise ValueError("plan needs known durations; drop actual_times or decide by dispatch")
        shape, device = problem.job_mask.shape, problem.device
        self.now = torch.zeros(problem.batch_size, dtype=torch.float64, device=device)
        self.scheduled = torch.zeros(shape, dtype=torch.bool, device=device)
        self.chosen = torch.full(shape, -1, dtype=torch.int64, device=device)
        self.starts = torch.full(shape, INF, dtype=torch.float64, device=device)
        self.ends = self.starts.clone()
        self.setups = torch.zeros(shape, dtype=torch.float64, device=device)
        self.last_job = torch.full_like(problem.capacity, problem.num_jobs)  # (B, M)
        unit = torch.arange(max(1, int(problem.capacity.max())), device=device)  # (U,)
        exists = (unit < problem.capacity[:, :, None]) & problem.machine_mask[:, :, None]
        available = problem.machine_available[:, :, None].expand(exists.shape)
        self.units = available.masked_fill(~exists, INF)  # (B, M, U)
        self.separate_beliefs = problem.noisy or live
        self.believed_units = self.units.clone()
        self.open_predecessors = torch.zeros(shape, dtype=torch.int64, device=device)
        self.open_predecessors.scatter_add_(1, problem.arcs[:, :, 1], problem.arc_mask.long())
        self.ready = problem.release_times[:, :, None].clone()  # (B, J, 1) or (B, J, M)
        if bool((problem.arc_lags > 0).any()):
            self.ready = self.ready.repeat(1, 1, problem.num_machines)
        self.believed_ready = self.ready.clone()
        self._alias_beliefs()
        self.done = ~problem.job_mask.any(1)
        self.steps = torch.zeros_like(self.done, dtype=torch.int64)
        self.timing = Timing(self)

    @classmethod
    def initial(cls, problem: Problem, objective: Objective, deciding: Deciding) -> State:
        """Nothing scheduled; in dispatch, the clock stands at the first possible decision."""
        state = cls(problem, objective, deciding)
        state._settle()
        return state

    @classmethod
    def resume(
        cls,
        problem: Problem,
        objective: Objective,
        now: float,
        started: Sequence[tuple[int, int, float]] = (),
    ) -> State:
        """A one-row dispatch state of a live system at time ``now``.

        Args:
            problem: one instance holding all unfinished jobs, running ones included; predecessors
                that are done are left out, and ``release_times`` of unreleased jobs lie ahead.
            started: (job, slot, start of processing) of each running job, in order of start.

        Raises:
            ValueError: the problem holds more than one instance.
        """
        if problem.batch_size != 1:
            raise ValueError(f"a live state has one row, got {problem.batch_size} instances")
        state = cls(problem, objective, "dispatch", live=True)
        soon = np.nextafter(now, INF)  # a job that overruns is still running now
        row = torch.tensor([0])
        for job, slot, start in started:
            expected = start + float(problem.processing_times[0, job, slot])
            state._place(
                row,
                torch.tensor([job]),
                torch.tensor([slot]),
                start=torch.tensor([start], dtype=torch.float64),
                end=torch.tensor([max(expected, soon)], dtype=torch.float64),
                believed_end=torch.tensor([expected], dtype=torch.float64),
            )
        state.now.fill_(now)
        state.timing = Timing(state)
        state.done = ~(problem.job_mask & ~state.scheduled).any(1)
        state.bound = state.initial_bound = objective_bound(state)
        return state

    # ---- what a policy may look at -------------------------------------------------------------

    def visible(self) -> Tensor:
        """(B, J) bool: known and not started (plan: all; dispatch: released by now)."""
        return self.timing.visible

    def candidates(self) -> Tensor:
        """(B, J) bool: visible, with every predecessor scheduled (plan) or completed (dispatch)."""
        candidates = self.timing.visible & self.timing.settled
        if self.deciding == "plan" or self.problem.arcs.shape[1] == 0:
            return candidates
        return candidates & (self.ready.amin(2) <= self.now[:, None])

    def machine_free(self) -> Tensor:
        """(B, M): expected time from which one unit is free; infinity at padding."""
        free = self.believed_units.amin(2)
        return free if self.deciding == "plan" else free.clamp(min=self.now[:, None])

    def edge_start(self) -> Tensor:
        """(B, J, K): expected start of processing in each mode, infinity at empty slots."""
        return self.timing.believed_start

    def edge_end(self) -> Tensor:
        """(B, J, K): expected completion in each mode, infinity at empty slots."""
        return self.timing.believed_end

    def edge_setup(self) -> Tensor:
        """(B, J, K): set-up time each mode would pay now."""
        setup = self.timing.setup
        return torch.zeros_like(self.problem.processing_times) if setup is None else setup

    def legal(self) -> Tensor:
        """(B, J, K) bool: modes that may be chosen now."""
        return self.timing.legal

    def can_wait(self) -> Tensor:
        """(B,) bool: WAIT is legal; in finished rows it is the only, empty, action."""
        if self.deciding == "plan":
            return self.done
        busy = self.units.masked_fill(self.units == INF, -INF).amax((1, 2)) > self.now
        return busy | self.done

    def mask(self) -> Tensor:
        """(B, J * K + 1) bool: legal actions, WAIT last."""
        legal = self.legal().flatten(1) & ~self.done[:, None]
        return torch.cat([legal, self.can_wait()[:, None]], dim=1)

    # ---- transitions ---------------------------------------------------------------------------

    def step(self, actions: Tensor) -> Tensor:
        """Take one action in every row; finished rows ignore theirs.

        Args:
            actions: (B,) int64.

        Returns:
            (B,) float64, decrease of the bound.

        Raises:
            ValueError: an action out of range or illegal in its row; nothing has changed then.
        """
        problem = self.problem
        wait = problem.num_actions - 1
        active = ~self.done
        self._refuse_illegal(actions, active)
        starting = active & (actions != wait)
        rows = starting.nonzero().squeeze(1)  # (R,)
        if len(rows):
            chosen = actions[rows]
            jobs, slots = chosen // problem.num_modes, chosen % problem.num_modes
            start = self.timing.believed_start[rows, jobs, slots]  # legal now, so it is true
            end = start + problem.actual_times[rows, jobs, slots]
            believed_end = start + problem.processing_times[rows, jobs, slots]
            self._place(rows, jobs, slots, start, end, believed_end)
        self.steps += active
        self.done = ~(problem.job_mask & ~self.scheduled).any(1)
        self.timing = Timing(self)
        self._settle(waiting=active & (actions == wait))
        return self.last_reward

    def _refuse_illegal(self, actions: Tensor, active: Tensor) -> None:
        num_actions = self.problem.num_actions
        if actions.shape != (self.problem.batch_size,):
            raise ValueError(
                f"actions must have shape ({self.problem.batch_size},), got {tuple(actions.shape)}"
            )
        inside = (actions >= 0) & (actions < num_actions)
        allowed = self.mask().gather(1, actions.clamp(0, num_actions - 1)[:, None]).squeeze(1)
        wrong = active & ~(inside & allowed)
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            action = int(actions[row])
            what = "is WAIT" if action == num_actions - 1 else "names a mode"
            if not bool(inside[row]):
                what = f"lies outside 0..{num_actions - 1}"
            raise ValueError(
                f"action {action} of row {row} {what} and is not legal now; choose where mask() is"
            )

    def _place(
        self,
        rows: Tensor,
        jobs: Tensor,
        slots: Tensor,
        start: Tensor,
        end: Tensor,
        believed_end: Tensor,
    ) -> None:
        """Schedule one job in each of the given rows; all arguments (R,)."""
        problem = self.problem
        machine = problem.mode_machines[rows, jobs, slots]
        if problem.setup_times is not None:
            last = self.last_job[rows, machine]
            self.setups[rows, jobs] = problem.setup_times[rows, last, jobs, machine]
        self.last_job[rows, machine] = jobs
        self.scheduled[rows, jobs] = True
        self.chosen[rows, jobs] = slots
        self.starts[rows, jobs], self.ends[rows, jobs] = start, end
        if self.units.shape[2] == 1:
            self.units[rows, machine, 0] = end
            if self.separate_beliefs:
                self.believed_units[rows, machine, 0] = believed_end
        else:
            self._occupy(rows, machine, problem.demand[rows, jobs, slots], end, believed_end)
        if problem.arcs.shape[1]:
            self._release_successors(rows, jobs, machine, end, believed_end)

    def _occupy(
        self, rows: Tensor, machine: Tensor, demand: Tensor, end: Tensor, believed_end: Tensor
    ) -> None:
        """Give the job the units of its machine that are free first; all arguments (R,)."""
        units = self.units[rows, machine]  # (R, U)
        order = units.argsort(dim=1, stable=True)
        taken = torch.arange(units.shape[1], device=units.device) < demand[:, None]  # (R, U)
        taken = torch.zeros_like(taken).scatter(1, order, taken)
        self.units[rows, machine] = torch.where(taken, end[:, None], units)
        if self.separate_beliefs:
            believed = self.believed_units[rows, machine]
            self.believed_units[rows, machine] = torch.where(taken, believed_end[:, None], believed)

    def _release_successors(
        self, rows: Tensor, jobs: Tensor, machine: Tensor, end: Tensor, believed_end: Tensor
    ) -> None:
        """Tell the successors of the jobs when they can start; all arguments (R,)."""
        problem = self.problem
        leaving = problem.arc_mask[rows] & (problem.arcs[rows, :, 0] == jobs[:, None])  # (R, A)
        at, arc = leaving.nonzero(as_tuple=True)  # (L,)
        row, after = rows[at], problem.arcs[rows[at], arc, 1]
        self.open_predecessors.index_put_((row, after), torch.full_like(after, -1), accumulate=True)
        machines = torch.arange(self.ready.shape[2], device=problem.device)  # (M,) or (1,)
        elsewhere = machines != machine[at][:, None] if len(machines) > 1 else machines > 0
        lag = torch.where(elsewhere, problem.arc_lags[row, arc][:, None], 0.0)  # (L, M)
        # No two arcs of one job lead to the same successor, so plain assignment is safe.
        self.ready[row, after] = torch.maximum(self.ready[row, after], end[at][:, None] + lag)
        if self.separate_beliefs:
            self.believed_ready[row, after] = torch.maximum(
                self.believed_ready[row, after], believed_end[at][:, None] + lag
            )

    def _settle(self, waiting: Tensor | None = None) -> None:
        """Move the clock where it must move, then account for the change of the bound."""
        if self.deciding == "dispatch":
            stuck = ~self.done & ~self.timing.legal.flatten(1).any(1)
            moving = stuck if waiting is None else stuck | waiting
            while bool(moving.any()):
                self.now = torch.where(moving, self.next_event(), self.now)
                self.timing = Timing(self)
                moving = moving & ~self.timing.legal.flatten(1).any(1)
            if self.separate_beliefs:
                self._learn_ends()
        bound = objective_bound(self)
        if self.__dict__.get("bound") is None:
            self.initial_bound = self.bound = bound
        self.last_reward, self.bound = self.bound - bound, bound

    def _learn_ends(self) -> None:
        """What has ended by now is known to have; what still runs is believed as before."""
        now = self.now[:, None, None]
        self.believed_units = torch.where(self.units <= now, self.units, self.believed_units)
        if self.problem.arcs.shape[1]:
            self.believed_ready = self._ready_as_believed()
        self.timing = Timing(self)

    def _ready_as_believed(self) -> Tensor:
        """(B, J, 1) or (B, J, M): releases and predecessors' ends, true where they have ended."""
        problem = self.problem
        slot = self.chosen.clamp(min=0)[:, :, None]  # (B, J, 1)
        expected = self.starts + problem.processing_times.gather(2, slot).squeeze(2)  # (B, J)
        ends = torch.where(self.ends <= self.now[:, None], self.ends, expected)
        before, after = problem.arcs[:, :, 0], problem.arcs[:, :, 1]  # (B, A)
        counts = problem.arc_mask & self.scheduled.gather(1, before)
        end = ends.gather(1, before).masked_fill(~counts, -INF)[:, :, None]  # (B, A, 1)
        if self.ready.shape[2] > 1:
            machine = problem.mode_machines.gather(2, slot).squeeze(2).gather(1, before)  # (B, A)
            machines = torch.arange(self.ready.shape[2], device=problem.device)
            elsewhere = machines != machine[:, :, None]  # (B, A, M)
            end = end + torch.where(elsewhere, problem.arc_lags[:, :, None], 0.0)
        ready = problem.release_times[:, :, None].repeat(1, 1, self.ready.shape[2])
        index = after[:, :, None].expand(end.shape)
        return ready.scatter_reduce(1, index, end, "amax", include_self=True)

    def next_event(self) -> Tensor:
        """(B,): the next release or completion after now, infinity where there is none."""
        now = self.now[:, None]
        open_jobs = self.problem.job_mask & ~self.scheduled
        releases = self.problem.release_times.masked_fill(~open_jobs, INF)
        times = [releases, self.units.flatten(1)]
        if self.problem.arcs.shape[1]:
            waiting = open_jobs & self.timing.settled
            times.append(self.ready.masked_fill(~waiting[:, :, None], INF).flatten(1))
        all_times = torch.cat(times, dim=1)
        return all_times.masked_fill(all_times <= now, INF).amin(1)

    # ---- helpers -------------------------------------------------------------------------------

    def room_from(self, units: Tensor) -> Tensor:
        """(B, J, K): time from which ``demand`` units of each slot's machine are free."""
        problem = self.problem
        if units.shape[2] == 1:
            free = units[:, :, 0]  # (B, M)
            if problem.dense:
                return free[:, None, :].expand(problem.processing_times.shape)
            return free.gather(1, problem.mode_machines.flatten(1)).view(
                problem.processing_times.shape
            )
        ordered = units.sort(dim=2).values.flatten(1)  # (B, M * U)
        index = problem.mode_machines * units.shape[2] + problem.demand - 1  # (B, J, K)
        return ordered.gather(1, index.flatten(1)).view(index.shape)

    def ready_on_slots(self, ready: Tensor) -> Tensor:
        """(B, J, 1) or (B, J, K): ready time of a job on the machine of each slot."""
        if ready.shape[2] == 1 or self.problem.dense:
            return ready
        return ready.gather(2, self.problem.mode_machines)

    def tensors(self) -> dict[str, Tensor]:
        """Copies of all that changes, by name; aliases are left out."""
        own = {name: one for name, one in self.__dict__.items() if isinstance(one, Tensor)}
        return {name: one.clone() for name, one in own.items() if not self._is_alias(name)}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Take over what :meth:`tensors` of a state of the same problem gave."""
        for name, value in tensors.items():
            setattr(self, name, value.clone())
        self._alias_beliefs()
        self.timing = Timing(self)

    def clone(self) -> State:
        """An independent copy that shares the problem."""
        twin = copy.copy(self)
        twin.load_tensors(self.tensors())
        return twin

    def _is_alias(self, name: str) -> bool:
        return name.startswith("believed_") and not self.separate_beliefs

    def _alias_beliefs(self) -> None:
        """Where expectations are certain, believed and true times are one tensor."""
        if not self.separate_beliefs:
            self.believed_units, self.believed_ready = self.units, self.ready

    def cost(self) -> Tensor:
        """(B,) float64: the objective of finished rows, NaN in others."""
        return self.bound.masked_fill(~self.done, float("nan"))

    def schedules(self) -> list[Schedule]:
        """One Schedule per row.

        Raises:
            ValueError: a row is not finished.
        """
        from hetsched.envs.schedule import Schedule

        if not bool(self.done.all()):
            row = int((~self.done).nonzero()[0])
            raise ValueError(f"row {row} still has unscheduled jobs; step until all are done")
        slots = self.chosen.clamp(min=0)[:, :, None]
        modes = self.problem.mode_index.gather(2, slots).squeeze(2).cpu().numpy()
        starts, ends = self.starts.cpu().numpy(), self.ends.cpu().numpy()
        setups = self.setups.cpu().numpy()
        return [
            Schedule(
                modes=np.ascontiguousarray(modes[row, : one.num_jobs]),
                starts=starts[row, : one.num_jobs].copy(),
                ends=ends[row, : one.num_jobs].copy(),
                setups=setups[row, : one.num_jobs].copy(),
            )
            for row, one in enumerate(self.problem.instances)
        ]
