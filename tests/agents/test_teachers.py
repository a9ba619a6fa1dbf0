"""Teachers: what they call right leads to what they teach."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from hetsched.agents.annealing import anneal
from hetsched.agents.configs import ImitationConfig
from hetsched.agents.policy import act
from hetsched.agents.rules import make_rule
from hetsched.agents.teachers import (
    RuleTeacher,
    ScheduleTeacher,
    annealing_teacher,
    teacher_rule,
)
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.scenarios import get_scenario, sample_instances
from hetsched.envs.simulator import State
from hetsched.tests.agents.small_plans import OBJECTIVES, all_schedules, rebuilt, small_plan

if TYPE_CHECKING:
    from hetsched.envs.schedule import Schedule


def follow(teacher, state: State, generator: torch.Generator) -> list[torch.Tensor]:
    """Walk to the end, each time through a right action drawn evenly; returns all targets."""
    seen = []
    while not bool(state.done.all()):
        targets = teacher.targets(state)
        live = ~state.done
        assert bool((targets[live].sum(1) >= 1).all())
        assert not bool((targets & ~state.mask())[live].any())
        seen.append(targets)
        weights = torch.where(live[:, None], targets, state.mask()).float()
        state.step(torch.multinomial(weights, 1, generator=generator).squeeze(1))
    return seen


def known(problem: Problem, schedules: list[Schedule]) -> ScheduleTeacher:
    """A teacher of these schedules, one per instance."""
    found = {id(one): two for one, two in zip(problem.instances, schedules, strict=True)}
    return ScheduleTeacher(problem, OBJECTIVES[0], lambda instance: found[id(instance)])


@pytest.mark.parametrize("seed", range(4))
def test_any_right_action_rebuilds_the_schedule(seed: int) -> None:
    """Set-ups, releases and eligibility included, for instances of different sizes in a batch."""
    objective = OBJECTIVES[seed]
    instances = [small_plan(10 * seed + i, jobs=4 + i, machines=3) for i in range(4)]
    schedules = [anneal(one, objective, 40, i) for i, one in enumerate(instances)]
    problem = Problem.from_instances(instances)
    costs = [s.cost(one, objective) for s, one in zip(schedules, instances, strict=True)]
    for draw in range(3):
        state = State.initial(problem, objective, "plan")
        generator = torch.Generator().manual_seed(draw)
        follow(known(problem, schedules), state, generator)
        assert state.cost().tolist() == pytest.approx(costs, rel=1e-12)
        for found, wanted in zip(state.schedules(), schedules, strict=True):
            assert np.array_equal(found.modes, wanted.modes)
            assert np.allclose(found.starts, wanted.starts)


def test_the_next_job_of_every_machine_is_right_and_nothing_else() -> None:
    instance = Instance.from_matrix(np.ones((4, 2)))
    schedule = rebuilt(instance, [[2, 0], [1, 3]])
    problem = Problem.from_instances([instance])
    state = State.initial(problem, Objective(makespan=1.0), "plan")
    teacher = known(problem, [schedule])

    def right() -> list[tuple[int, int]]:
        return [
            divmod(action, 2) for action in teacher.targets(state)[0].nonzero().flatten().tolist()
        ]

    assert right() == [(1, 1), (2, 0)]
    state.step(torch.tensor([2 * 2 + 0]))
    assert right() == [(0, 0), (1, 1)]
    state.step(torch.tensor([0]))
    assert right() == [(1, 1)]


def test_a_schedule_teaches_any_of_its_modes_where_jobs_have_several_on_a_machine() -> None:
    instance = Instance(
        num_jobs=2,
        num_machines=1,
        mode_jobs=np.array([0, 0, 1]),
        mode_machines=np.zeros(3, np.int64),
        processing_times=np.array([3.0, 1.0, 2.0]),
    )
    problem = Problem.from_instances([instance])
    schedule = anneal(instance, Objective(makespan=1.0), 10, 0)
    state = State.initial(problem, Objective(makespan=1.0), "plan")
    follow(known(problem, [schedule]), state, torch.Generator())
    assert state.cost().tolist() == [3.0]


def test_a_schedule_with_a_mode_that_was_pruned_away_is_refused() -> None:
    instance = Instance.from_matrix([[1.0, 9.0]])
    slow = rebuilt(instance, [[], [0]])
    pruned = Problem.from_instances([instance], keep_fastest=1)
    with pytest.raises(ValueError, match=r"schedules\[0\] uses a mode that the problem does not"):
        known(pruned, [slow])


@pytest.mark.parametrize("seed", range(8))
def test_where_the_schedule_is_left_the_best_of_what_remains_is_taught(seed: int) -> None:
    """From wherever random actions lead, right ones lead to the best cost that is still there."""
    objective = OBJECTIVES[seed % len(OBJECTIVES)]
    instance = small_plan(seed, jobs=5)
    problem = Problem.from_instances([instance])
    rng = np.random.default_rng(seed)

    def best_of(part: Instance) -> Schedule:
        return min(all_schedules(part), key=lambda one: one.cost(part, objective))

    teacher = ScheduleTeacher(problem, objective, best_of)
    state = State.initial(problem, objective, "plan")
    taken = []
    for _ in range(2):
        right, legal = teacher.targets(state)[0], state.mask()[0]
        choices = (legal & ~right if bool((legal & ~right).any()) else legal).nonzero().flatten()
        action = choices[rng.integers(len(choices))]
        taken.append(int(problem.mode_index[0].flatten()[action]))
        state.step(action[None])
        teacher.follow(state, ~right[action][None])
    machine = instance.mode_machines
    costs = [
        one.cost(instance, objective)
        for one in all_schedules(instance)
        if all(mode in one.modes for mode in taken) and begins_with(one, taken, machine)
    ]
    assert teacher.costs.item() == pytest.approx(min(costs), rel=1e-12)
    follow(teacher, state, torch.Generator().manual_seed(seed))
    assert state.cost().item() == pytest.approx(min(costs), rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_following_it_costs_nothing_and_leaving_it_what_the_best_of_the_rest_costs_more(
    seed: int,
) -> None:
    """Random walks; costs in sight never fall where what remains is solved exactly."""
    objective = OBJECTIVES[seed % len(OBJECTIVES)]
    instances = [small_plan(20 * seed + i, jobs=4) for i in range(2)]
    problem = Problem.from_instances(instances).repeat(3)

    def best_of(part: Instance) -> Schedule:
        return min(all_schedules(part), key=lambda one: one.cost(part, objective))

    teacher = ScheduleTeacher(problem, objective, best_of)
    state = State.initial(problem, objective, "plan")
    best = [best_of(one).cost(one, objective) for one in problem.instances]
    assert teacher.costs.tolist() == pytest.approx(best, rel=1e-12)
    generator = torch.Generator().manual_seed(seed)
    while not bool(state.done.all()):
        before, right = teacher.costs.clone(), teacher.targets(state)
        actions = torch.multinomial(state.mask().float(), 1, generator=generator).squeeze(1)
        teacher.step(state, actions)
        followed = right.gather(1, actions[:, None]).squeeze(1)
        torch.testing.assert_close(teacher.costs[followed], before[followed])
        assert bool((teacher.costs >= before - 1e-9).all())
    torch.testing.assert_close(teacher.costs, state.cost())


def test_rows_that_have_decided_the_same_are_solved_once() -> None:
    instance, solved = small_plan(3, jobs=4), []
    problem = Problem.from_instances([instance]).repeat(3)

    def solve(part: Instance) -> Schedule:
        solved.append(part.num_jobs)
        return anneal(part, OBJECTIVES[0], 40, 0)

    teacher = ScheduleTeacher(problem, OBJECTIVES[0], solve)
    state = State.initial(problem, OBJECTIVES[0], "plan")
    assert solved == [4]
    wrong = (state.mask() & ~teacher.targets(state))[0].nonzero().flatten()
    teacher.step(state, wrong[torch.tensor([0, 0, 1])])
    assert solved == [4, 3, 3]
    assert torch.equal(teacher.starts[0], teacher.starts[1])


def begins_with(schedule: Schedule, taken: list[int], machine: np.ndarray) -> bool:
    """Whether the modes come first on their machines, in the order given."""
    for k in range(int(machine.max()) + 1):
        order = [m for m in schedule.modes[np.argsort(schedule.starts)] if machine[m] == k]
        wanted = [mode for mode in taken if machine[mode] == k]
        if order[: len(wanted)] != wanted:
            return False
    return True


@pytest.mark.parametrize("name", ["ect-wait", "atc", "fifo"])
def test_a_rule_teaches_what_it_does(name: str) -> None:
    scenario = get_scenario("gpu-cluster")
    problem = Problem.from_instances(sample_instances(scenario, 5, 0, 6, 3))
    state = State.initial(problem, scenario.objective, scenario.deciding)
    teacher, rule = RuleTeacher(make_rule(name)), make_rule(name)
    while not bool(state.done.all()):
        targets, actions = teacher.targets(state), act(rule, state)
        assert targets.sum(1).tolist() == [1] * 5
        assert targets.int().argmax(1).tolist() == actions.tolist()
        state.step(actions)


def test_annealed_schedules_depend_on_the_seed_and_not_on_the_workers() -> None:
    scenario = get_scenario("hitzges")
    problem = Problem.from_instances(sample_instances(scenario, 6, 0, 8, 3))
    one, same, other = (
        annealing_teacher(problem, scenario.objective, 50, seed, workers)
        for seed, workers in ((1, 1), (1, 3), (2, 1))
    )
    assert torch.equal(one.starts, same.starts)
    assert torch.equal(one.slots, same.slots)
    assert not torch.equal(one.starts, other.starts)


def test_the_teacher_is_chosen_by_name() -> None:
    plan, dispatch = get_scenario("hitzges"), get_scenario("gpu-cluster")
    sizes = ((4, 2),)
    assert teacher_rule(ImitationConfig(decisions=9), plan, sizes) is None
    assert teacher_rule(ImitationConfig(teacher="nobody"), plan, sizes) is None  # and no warm start
    rule = teacher_rule(ImitationConfig(decisions=9, teacher="atc:k=0.5"), dispatch, sizes)
    assert rule is not None
    assert rule.name == "atc:k=0.5"


def test_a_teacher_that_cannot_teach_the_scenario_is_refused() -> None:
    config = ImitationConfig(decisions=9)
    with pytest.raises(ValueError, match="needs all in advance, but gpu-cluster dispatches"):
        teacher_rule(config, get_scenario("gpu-cluster"), ((4, 2),))
    shared = dataclasses.replace(
        get_scenario("hitzges"),
        sampler=lambda rng, n, m: Instance.from_matrix(np.ones((n, m)), capacity=np.full(m, 2)),
    )
    with pytest.raises(ValueError, match="needs machines of capacity 1 and known durations"):
        teacher_rule(config, shared, ((4, 2),))
    with pytest.raises(ValueError, match="random teaches nothing"):
        teacher_rule(dataclasses.replace(config, teacher="random"), shared, ((4, 2),))
    with pytest.raises(ValueError, match="no rule is called 'nobody'"):
        teacher_rule(dataclasses.replace(config, teacher="nobody"), shared, ((4, 2),))


def test_another_way_that_costs_the_same_is_as_good() -> None:
    """Two equal jobs: either may come first, on either machine; the long job may not wait."""
    instance = Instance.from_matrix([[2.0, 2.0], [2.0, 2.0], [4.0, 4.0]])
    problem = Problem.from_instances([instance]).repeat(3)
    plan = rebuilt(instance, [[0, 1], [2]])
    assert plan is not None

    def solve(part: Instance) -> Schedule:
        if part is instance:
            return plan
        return min(all_schedules(part), key=lambda one: one.cost(part, Objective(makespan=1.0)))

    teacher = ScheduleTeacher(problem, Objective(makespan=1.0), solve)
    state = State.initial(problem, Objective(makespan=1.0), "plan")
    first = torch.tensor([2, 3, 0])  # job 1 on machine 0, job 1 on machine 1, job 0 on machine 0
    wrong = ~teacher.targets(state).gather(1, first[:, None]).squeeze(1)
    assert wrong.tolist() == [True, True, False]
    state.step(first)
    assert teacher.follow(state, wrong).tolist() == [0.0, 0.0, 0.0]
    second = torch.tensor([1, 1, 3])  # two short jobs on different machines: 6 instead of 4
    wrong = ~teacher.targets(state).gather(1, second[:, None]).squeeze(1)
    state.step(second)
    assert teacher.follow(state, wrong).tolist() == [2.0, 0.0, 2.0]
    assert teacher.costs.tolist() == [6.0, 4.0, 6.0]
