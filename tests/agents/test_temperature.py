"""At which temperature the samples of a policy are best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hetsched.agents.rules import make_rule
from hetsched.agents.temperature import best_temperature
from hetsched.envs.scenarios import get_scenario

if TYPE_CHECKING:
    from hetsched.envs.simulator import State


class Scaled:
    """A rule whose scores are multiplied: its best temperature is multiplied likewise."""

    name = "scaled"

    def __init__(self, factor: float) -> None:
        self.rule, self.factor = make_rule("atc"), factor

    def scores(self, state: State) -> Tensor:
        return self.rule.scores(state) * self.factor


def test_a_policy_that_is_too_sure_is_heated_more_than_one_that_is_not() -> None:
    sure = best_temperature(Scaled(4.0), get_scenario("hitzges"), [(10, 3)], count=8)
    unsure = best_temperature(Scaled(0.35), get_scenario("hitzges"), [(10, 3)], count=8)
    assert unsure < sure


def test_where_temperature_changes_nothing_it_stays_one() -> None:
    # So sure that every sample is the greedy schedule.
    assert best_temperature(Scaled(1e6), get_scenario("hitzges"), [(10, 3)], count=4) == 1.0


def test_the_random_state_of_torch_is_left_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    best_temperature(Scaled(1.0), get_scenario("hitzges"), [(6, 2)], count=2)
    assert torch.equal(torch.rand(3), expected)
