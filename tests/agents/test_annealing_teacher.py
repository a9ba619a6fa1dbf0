"""The annealing teacher where jobs have predecessors: its schedule is rebuilt, and mended."""

from __future__ import annotations

import pytest
import torch

from hetsched.agents.annealing_graph import anneal_graph
from hetsched.agents.remaining import remaining
from hetsched.agents.teachers import annealing_teacher
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.scenarios import get_scenario, sample_instances
from hetsched.envs.simulator import State
from hetsched.tests.agents.small_graphs import all_schedules, small_graph

MAKESPAN = Objective(makespan=1.0)


def test_any_right_order_rebuilds_the_annealed_schedule() -> None:
    instances = sample_instances(get_scenario("fjsp"), 3, 0, 4, 3)
    problem = Problem.from_instances(instances)
    teacher = annealing_teacher(problem, MAKESPAN, moves_per_job=100, seed=7)
    state = State.initial(problem, MAKESPAN, "plan")
    generator = torch.Generator().manual_seed(0)
    while not bool(state.done.all()):
        right = teacher.targets(state).double()
        right[state.done, -1] = 1.0
        state.step(torch.multinomial(right, 1, generator=generator).squeeze(1))
    expected = [
        anneal_graph(one, MAKESPAN, 100 * one.num_jobs, 7).cost(one, MAKESPAN) for one in instances
    ]
    assert state.cost().tolist() == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(6))
def test_the_best_completion_of_what_remains_costs_what_it_costs_in_the_whole(seed: int) -> None:
    objective = Objective(weighted_tardiness=1.0, makespan=1.0, setup_time=1.0)
    whole = small_graph(seed, jobs=5, lags=False)
    state = State.initial(Problem.from_instances([whole]), objective, "plan")
    generator = torch.Generator().manual_seed(seed)
    for _ in range(2):
        legal = state.mask().double()
        state.step(torch.multinomial(legal, 1, generator=generator).squeeze(1))
    part, jobs, modes = remaining(state, 0)
    assert len(jobs) == 3
    ways = {}
    for one in all_schedules(part):
        copy = state.clone()
        for job in one.starts.argsort():
            slot = (copy.problem.mode_index[0, jobs[job]] == modes[one.modes[job]]).int().argmax()
            copy.step(torch.tensor([int(jobs[job]) * copy.problem.num_modes + int(slot)]))
        ways[copy.cost().item()] = copy
        # Each remaining job starts in the whole when it starts in the part.
        assert copy.starts[0, jobs].tolist() == pytest.approx(one.starts.tolist())
    assert ways


@pytest.mark.parametrize("name", ["fjsp", "dag", "upmsp", "rcmax"])
def test_what_is_in_sight_stays_so_while_it_is_followed(name: str) -> None:
    scenario = get_scenario(name)
    problem = Problem.from_instances(sample_instances(scenario, 2, 0, 5, 3)).repeat(2)
    teacher = annealing_teacher(problem, scenario.objective, moves_per_job=50, seed=1)
    state = State.initial(problem, scenario.objective, "plan")
    generator = torch.Generator().manual_seed(0)
    while not bool(state.done.all()):
        before, right = teacher.costs, teacher.targets(state)
        actions = torch.multinomial(state.mask().float(), 1, generator=generator).squeeze(1)
        actions[0] = torch.multinomial(
            (right if not state.done[0] else state.mask())[0].float(), 1, generator=generator
        )
        teacher.step(state, actions)
        followed = right.gather(1, actions[:, None]).squeeze(1)
        torch.testing.assert_close(teacher.costs[followed], before[followed])
    torch.testing.assert_close(teacher.costs, state.cost())
