"""What a policy picks, in words that a test can compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.agents.policy import act, rollout
from hetsched.agents.rules import make_rule
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hetsched.envs.instance import Instance
    from hetsched.envs.simulator import Deciding

FLOW = Objective(flow_time=1.0, per_job=True)
WAIT = "wait"


def begin(
    instance: Instance, deciding: Deciding = "plan", started: Sequence[tuple[int, int]] = ()
) -> State:
    """A one-row state in which the given (job, slot) pairs have been picked."""
    state = State.initial(Problem.from_instances([instance]), FLOW, deciding)
    for job, slot in started:
        state.step(state.chosen.new_tensor([job * state.problem.num_modes + slot]))
    return state


def pick(rule: str, state: State) -> tuple[int, int] | str:
    """(job, machine) that the rule picks in the first row, or WAIT."""
    action = int(act(make_rule(rule), state)[0])
    job, slot = divmod(action, state.problem.num_modes)
    if job == state.problem.num_jobs:
        return WAIT
    return job, int(state.problem.mode_machines[0, job, slot])


def costs(
    rule: str, instances: Sequence[Instance], deciding: Deciding, objective: Objective = FLOW
) -> Tensor:
    """(B,) cost of every instance under the rule."""
    state = State.initial(Problem.from_instances(instances), objective, deciding)
    return rollout(make_rule(rule), state).cost()
