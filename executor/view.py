"""A state that a policy decides on, and the way back from its actions to names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched.envs.simulator import State
    from hetsched.executor.job_arrays import Array


@dataclass(frozen=True)
class Choice:
    """A decision in the queue's own terms: a job's name and the index of one of its modes."""

    job: str
    mode: int


class View:
    """One moment of a queue as a one-row dispatch state, and the way back to names.

    Attributes:
        state: `State.resume` of the jobs that are shown.
        shown: how many of the waiting jobs these are.
    """

    def __init__(self, state: State, names: list[str], modes: Array, shown: int) -> None:
        self.state = state
        self.shown = shown
        self._names = names
        self._modes = modes  # (modes,) index of an instance's mode among its job's own

    def choice(self, action: int) -> Choice | None:
        """What an action of the state means; None: WAIT."""
        problem = self.state.problem
        if action == problem.num_actions - 1:
            return None
        job, slot = divmod(action, problem.num_modes)
        mode = int(problem.mode_index[0, job, slot])
        return Choice(self._names[job], int(self._modes[mode]))
