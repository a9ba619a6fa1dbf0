"""Validation: the greedy policy against the rules, on instances of fixed seeds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hetsched.agents.learned import LearnedPolicy
from hetsched.agents.policy import Policy, rollout
from hetsched.agents.rules import make_rule
from hetsched.agents.table import mean_ratio
from hetsched.envs.problem import Problem
from hetsched.envs.scenarios import Scenario, sample_instances
from hetsched.envs.simulator import State

if TYPE_CHECKING:
    from hetsched.agents.recipe import TrainConfig
    from hetsched.gnn.network import SchedulingNetwork


class Validation:
    """Mean ratio of the policy's cost to that of the best rule.

    The best rule is the one with the lowest mean cost relative to the others over all validation
    instances; one rule for all of them, chosen once.  Instances that cost a rule nothing have no
    ratio and are left out.

    Attributes:
        rule: the best rule's name; latest: the last measurement.

    Raises:
        ValueError: every instance costs the best rule nothing.
    """

    def __init__(
        self, scenario: Scenario, sizes: tuple[tuple[int, int], ...], config: TrainConfig
    ) -> None:
        self.scenario = scenario
        distinct = tuple(dict.fromkeys(sizes))
        self.problems = [
            Problem.from_instances(
                sample_instances(scenario, config.eval_count, config.eval_seed + index, *size),
                device=config.device,
            )
            for index, size in enumerate(distinct)
        ]
        costs = {name: self._costs(make_rule(name)) for name in scenario.rules}
        smallest = torch.stack(list(costs.values())).amin(0)
        scale = smallest if bool((smallest > 0).any()) else torch.ones_like(smallest)
        self.rule = min(costs, key=lambda name: _ratio(costs[name], scale)[0])
        self.rule_costs = costs[self.rule]
        if not bool((self.rule_costs > 0).any()):
            raise ValueError(
                f"every instance of validation costs {self.rule!r} nothing, so there is nothing to "
                f"learn; make {scenario.name!r} harder, with options or larger sizes"
            )
        self.latest: dict[str, float] = {}

    def measure(self, network: SchedulingNetwork) -> dict[str, float]:
        """``validation/cost``, ``validation/ratio_to_rule`` and its standard error.

        Args:
            network: on the device of the configuration; left as it is.
        """
        training = network.training
        costs = self._costs(LearnedPolicy(network))
        network.train(training)
        ratio, error = _ratio(costs, self.rule_costs)
        self.latest = {
            "validation/cost": float(costs.mean()),
            "validation/rule_cost": float(self.rule_costs.mean()),
            "validation/ratio_to_rule": ratio,
        }
        if not math.isnan(error):
            self.latest["validation/standard_error"] = error
        return self.latest

    def _costs(self, policy: Policy) -> Tensor:
        """(instances,) over all sizes."""
        objective, deciding = self.scenario.objective, self.scenario.deciding
        return torch.cat(
            [
                rollout(policy, State.initial(problem, objective, deciding)).cost().cpu()
                for problem in self.problems
            ]
        )


def _ratio(costs: Tensor, base: Tensor) -> tuple[float, float]:
    return mean_ratio(costs.numpy(), base.numpy())
