"""What a quick rule costs on an instance: the unit of rewards and of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hetsched.agents.policy import rollout
from hetsched.agents.rules import make_rule

if TYPE_CHECKING:
    from torch import Tensor

    from hetsched.envs.scenarios import Scenario
    from hetsched.envs.simulator import State


def rule_cost(scenario: Scenario) -> Callable[[State], Tensor]:
    """Costs (B,) of the quick rule of a scenario on the fresh states that it is given."""
    rule = make_rule("min-min" if scenario.deciding == "plan" else "ect-wait")

    def cost(state: State) -> Tensor:
        return rollout(rule, state).cost()

    return cost
