"""State: a batch of schedules being built, and the transitions between decisions."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from hetsched.envs.bounds import objective_bound
from hetsched.envs.clock import advance
from hetsched.envs.placing import place
from hetsched.envs.schedule import Schedule
from hetsched.envs.timing import Timing

if TYPE_CHECKING:
    from hetsched.envs.arrivals import Arrivals
    from hetsched.envs.objective import Objective
    from hetsched.envs.problem import Problem

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
        past: arrivals of a live queue that are not ``counted``, or None; counted: (B, J) bool.
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
        self,
        problem: Problem,
        objective: Objective,
        deciding: Deciding,
        live: bool = False,
        past: Arrivals | None = None,
    ) -> None:
        if deciding not in get_args(Deciding):
            raise ValueError(f"deciding must be 'plan' or 'dispatch', got {deciding!r}")
        self.problem, self.objective, self.deciding = problem, objective, deciding
        self.past, self.counted = past, problem.job_mask
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
        state._settle(waiting=torch.zeros_like(state.done))
        return state

    @classmethod
    def resume(
        cls,
        problem: Problem,
        objective: Objective,
        now: float,
        started: Sequence[tuple[int, int, float]] = (),
        past: Arrivals | None = None,
    ) -> State:
        """A one-row dispatch state of a live system at time ``now``.

        Args:
            problem: one instance holding all unfinished jobs, running ones included; predecessors
                that are done are left out, and ``release_times`` of unreleased jobs lie ahead.
            started: (job, slot, start of processing) of each running job, in order of start.
            past: arrivals that wait no more, running ones included; without it what has arrived
                is what the problem holds.

        Raises:
            ValueError: the problem holds more than one instance.
        """
        if problem.batch_size != 1:
            raise ValueError(f"a live state has one row, got {problem.batch_size} instances")
        state = cls(problem, objective, "dispatch", live=True, past=past)
        soon = np.nextafter(now, INF)  # a job that overruns is still running now
        row = torch.tensor([0])
        for job, slot, start in started:
            expected = start + float(problem.processing_times[0, job, slot])
            place(
                state,
                row,
                torch.tensor([job]),
                torch.tensor([slot]),
                start=torch.tensor([start], dtype=torch.float64),
                end=torch.tensor([max(expected, soon)], dtype=torch.float64),
                believed_end=torch.tensor([expected], dtype=torch.float64),
            )
        state.now.fill_(now)
        if past is not None:
            state.counted = problem.job_mask & ~state.scheduled
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

    def step(self, actions: Tensor, still: Tensor | None = None) -> Tensor:
        """Take one action in every row; finished rows ignore theirs.

        Args:
            actions: (B,) int64.
            still: (B,) bool, rows that ignore theirs as well; none by default.

        Returns:
            (B,) float64, decrease of the bound.

        Raises:
            ValueError: an action out of range or illegal in its row; nothing has changed then.
        """
        problem = self.problem
        wait = problem.num_actions - 1
        active = ~self.done if still is None else ~self.done & ~still
        self._refuse_illegal(actions, active)
        starting = active & (actions != wait)
        rows = starting.nonzero().squeeze(1)  # (R,)
        if len(rows):
            chosen = actions[rows]
            jobs, slots = chosen // problem.num_modes, chosen % problem.num_modes
            start = self.timing.believed_start[rows, jobs, slots]  # legal now, so it is true
            end = start + problem.actual_times[rows, jobs, slots]
            believed_end = start + problem.processing_times[rows, jobs, slots]
            place(self, rows, jobs, slots, start, end, believed_end)
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

    def _settle(self, waiting: Tensor) -> None:
        """Move the clock where it must move, then account for the change of the bound."""
        if self.deciding == "dispatch":
            stuck = ~self.done & ~self.timing.legal.flatten(1).any(1)
            advance(self, stuck | waiting)
        bound = objective_bound(self)
        if self.__dict__.get("bound") is None:
            self.initial_bound = self.bound = bound
        self.last_reward, self.bound = self.bound - bound, bound

    # ---- helpers -------------------------------------------------------------------------------

    def ready_on_slots(self, ready: Tensor) -> Tensor:
        """(B, J, 1) or (B, J, K): ready time of a job on the machine of each slot."""
        if ready.shape[2] == 1 or self.problem.dense:
            return ready
        return ready.gather(2, self.problem.mode_machines)

    def tensors(self) -> dict[str, Tensor]:
        """Copies of all that changes, by name; aliases are left out."""
        own = {name: one for name, one in self.__dict__.items() if isinstance(one, Tensor)}
        if not self.separate_beliefs:
            own = {name: one for name, one in own.items() if not name.startswith("believed_")}
        return {name: one.clone() for name, one in own.items()}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Take over what :meth:`tensors` of a state of the same problem gave."""
        for name, value in tensors.items():
            setattr(self, name, value.to(self.problem.device, copy=True))
        self._alias_beliefs()
        self.timing = Timing(self)

    def clone(self) -> State:
        """An independent copy that shares the problem."""
        twin = copy.copy(self)
        twin.load_tensors(self.tensors())
        return twin

    def take(self, rows: Tensor) -> None:
        """Row i becomes what row ``rows[i]`` (B,) was, which must be one of the same instance."""
        for name, value in list(self.__dict__.items()):
            if isinstance(value, Tensor):
                setattr(self, name, value[rows])
        self._alias_beliefs()
        self.timing = Timing(self)

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
        if not bool(self.done.all()):
            row = int((~self.done).nonzero()[0])
            raise ValueError(f"row {row} still has unscheduled jobs; step until all are done")
        slots = self.chosen.clamp(min=0)[:, :, None]
        modes = self.problem.mode_index.gather(2, slots).squeeze(2)
        columns = [one.cpu().numpy() for one in (modes, self.starts, self.ends, self.setups)]
        return [
            Schedule(*(column[row, : one.num_jobs].copy() for column in columns))
            for row, one in enumerate(self.problem.instances)
        ]
