"""Compiled rules: the schedules that the rules on tensors give."""

from __future__ import annotations

import numpy as np
import pytest

from hetsched.agents.policy import rollout
from hetsched.agents.rules import make_rule
from hetsched.agents.search_rules import compiled_rule
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.tests.envs.instances import random_instance

RULES = (
    *("fifo", "ect", "spt", "lpt", "edd", "wspt", "heft", "min-min", "max-min", "sufferage"),
    *("atc", "atc:k=0.5", "atcs-r", "atcs-r:k1=0.5,k2=0.2,k3=2"),
)


@pytest.mark.parametrize("name", RULES)
def test_a_compiled_rule_gives_the_schedule_of_the_rule(name: str) -> None:
    same = 0
    rng = np.random.default_rng(7)
    for case in range(40):
        instance = random_instance(
            rng, setups=case % 2 == 1, releases=case % 4 > 1, parallel=case % 8 > 5
        )
        problem = Problem.from_instances([instance])
        state = State.initial(problem, Objective(makespan=1.0), "plan")
        expected = rollout(make_rule(name), state).schedules()[0]
        found = compiled_rule(make_rule(name), instance)
        assert found is not None
        found.check(instance)
        same += np.array_equal(found.starts, expected.starts) and np.array_equal(
            found.machines(instance), expected.machines(instance)
        )
    assert same == 40


@pytest.mark.parametrize("name", ["random", "allox", "ect-wait"])
def test_what_is_not_compiled_is_left_to_the_rule(name: str) -> None:
    instance = random_instance(np.random.default_rng(0))
    assert compiled_rule(make_rule(name), instance) is None
