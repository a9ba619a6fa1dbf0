"""Many rollouts side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor

from hetsched.envs.scenarios import get_scenario
from hetsched.envs.vector import Transition, VectorEnvironment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hetsched.envs.graph import Graph
    from hetsched.envs.problem import Problem
    from hetsched.envs.simulator import State

SIZES = ((4, 2), (3, 3))


def environment(scenario: str = "hitzges", seed: int = 0, **options: object) -> VectorEnvironment:
    chosen = {"groups": 2, "repeats": 3, "sizes": SIZES, **options}
    return VectorEnvironment(get_scenario(scenario), seed=seed, **chosen)  # type: ignore[arg-type]


def random_actions(graph: Graph, generator: torch.Generator) -> Tensor:
    noise = torch.rand(graph.legal.shape, generator=generator)
    return noise.masked_fill(~graph.legal, -1.0).argmax(1)


def play(env: VectorEnvironment, graph: Graph, count: int, seed: int = 0) -> list[Transition]:
    generator = torch.Generator().manual_seed(seed)
    taken = []
    for _ in range(count):
        taken.append(env.step(random_actions(graph, generator)))
        graph = taken[-1].graph
    return taken


def same(one: Graph, other: Graph) -> bool:
    names = [name for name, value in one.__dict__.items() if isinstance(value, Tensor)]
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


@pytest.mark.parametrize("scenario", ["hitzges", "gpu-cluster", "gpu-cluster-noisy"])
@pytest.mark.parametrize("referenced", [False, True])
def test_rewards_add_up_to_the_cost_over_the_reference(scenario: str, referenced: bool) -> None:
    def reference(state: State) -> Tensor:
        assert state.problem.batch_size == 2
        assert not bool(state.scheduled.any())
        return torch.tensor([50.0, 0.0], dtype=torch.float64)  # no cost: the unit of time counts

    env = environment(scenario, reference=reference if referenced else None)
    graph, generator = env.reset(), torch.Generator().manual_seed(1)
    for _ in range(2):
        state, total = env.state, torch.zeros(6, dtype=torch.float64)
        scale, first = state.problem.time_scale.clone(), state.initial_bound.clone()
        if referenced:
            scale[:3] = 50.0
        fresh = False
        while not fresh:
            step = env.step(random_actions(graph, generator))
            total += step.rewards
            graph, fresh = step.graph, step.fresh
        assert env.state is not state
        assert bool(state.done.all())
        torch.testing.assert_close(total * scale, first - state.cost())


class Countdown:
    """An outlook that is off by 7 for every job that is not scheduled."""

    def __init__(self, problem: Problem) -> None:
        self.costs = 7.0 * problem.job_mask.sum(1).double()

    def step(self, state: State, actions: Tensor) -> None:
        state.step(actions)
        left = (state.problem.job_mask & ~state.scheduled).sum(1)
        self.costs = state.bound + 7.0 * left

    def tensors(self) -> dict[str, Tensor]:
        return {"costs": self.costs.clone()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        self.costs = tensors["costs"].clone()


def test_with_an_outlook_rewards_add_up_to_the_first_outlook_minus_the_cost() -> None:
    env = environment(outlook=Countdown)
    graph, generator = env.reset(), torch.Generator().manual_seed(1)
    for jobs in (4, 3):
        state, total, fresh = env.state, torch.zeros(6, dtype=torch.float64), False
        scale = env.scale
        while not fresh:
            step = env.step(random_actions(graph, generator))
            total += step.rewards
            graph, fresh = step.graph, step.fresh
        torch.testing.assert_close(total * scale, 7.0 * jobs - state.cost())


def test_the_rows_of_a_group_see_the_same_instance_and_groups_different_ones() -> None:
    env = environment()
    graph = env.reset()
    rows = env.state.problem.instances
    assert len(rows) == env.batch_size == 6
    assert all(one is rows[0] for one in rows[:3])
    assert all(one is rows[3] for one in rows[3:])
    assert not rows[0].same_as(rows[3])
    for row in (1, 2):
        assert torch.equal(graph.modes[row], graph.modes[0])
    assert not torch.equal(graph.modes[3], graph.modes[0])


def test_the_same_seed_gives_the_same_batches_whatever_is_decided() -> None:
    drawn = []
    for seed, decisions in ((5, 0), (5, 1), (6, 0)):
        env = environment(seed=seed)
        graph = env.reset()
        first = env.state.problem.instances
        while env.batch == 0:
            graph = play(env, graph, 1, seed=decisions)[0].graph
        drawn.append((*first, *env.state.problem.instances))
    same_seed = [a.same_as(b) for a, b in zip(drawn[0], drawn[1], strict=True)]
    other_seed = [a.same_as(b) for a, b in zip(drawn[0], drawn[2], strict=True)]
    assert all(same_seed)
    assert not any(other_seed)


def test_batches_have_their_sizes_in_turn_and_new_instances() -> None:
    env = environment()
    problems = []
    for _ in range(3):
        env.reset()
        problems.append(env.state.problem)
    assert [(one.num_jobs, one.num_machines) for one in problems] == [(4, 2), (3, 3), (4, 2)]
    assert not problems[0].instances[0].same_as(problems[2].instances[0])
    default = environment(sizes=None)
    default.reset()
    first = get_scenario("hitzges").sizes[0]
    assert (default.state.problem.num_jobs, default.state.problem.num_machines) == first


def test_a_new_batch_follows_when_all_rows_are_done_and_not_before() -> None:
    env = environment("gpu-cluster")
    graph = env.reset()
    generator = torch.Generator().manual_seed(0)
    some_wait = False
    while True:
        done_before = env.state.done.clone()
        step = env.step(random_actions(graph, generator))
        assert (step.done | ~done_before).all()
        assert step.fresh == bool(step.done.all())
        assert (step.rewards[done_before] == 0).all()
        if step.fresh:
            break
        graph = step.graph
        idle = graph.legal[step.done]
        assert (idle.sum(1) == 1).all()
        assert idle[:, -1].all()
        some_wait = some_wait or bool(step.done.any())
    assert some_wait
    assert env.batch == 1
    assert not bool(env.state.scheduled.any())
    assert step.graph.job_mask.any(1).all()


@pytest.mark.parametrize(
    ("scenario", "outlook"),
    [("hitzges", None), ("hitzges", Countdown), ("gpu-cluster-noisy", None)],
)
@pytest.mark.parametrize("count", [0, 2, 7])
def test_a_saved_environment_goes_on_identically_in_another_one(
    scenario: str, outlook: type[Countdown] | None, count: int
) -> None:
    env = environment(scenario, outlook=outlook)
    taken = play(env, first := env.reset(), count)
    before = taken[-1].graph if taken else first
    saved = env.state_dict()
    expected = play(env, before, 12, seed=8)
    other = environment(scenario, outlook=outlook)
    other.reset()
    again = other.load_state_dict(saved)
    assert same(again, before)
    for one, two in zip(expected, play(other, again, 12, seed=8), strict=True):
        assert torch.equal(one.rewards, two.rewards)
        assert torch.equal(one.done, two.done)
        assert one.fresh == two.fresh
        assert same(one.graph, two.graph)


def test_a_saved_state_is_not_moved_by_what_follows() -> None:
    env = environment()
    graph = env.reset()
    saved = env.state_dict()
    play(env, graph, 3)
    assert not bool(saved["tensors"]["scheduled"].any())
    assert same(env.load_state_dict(saved), graph)
    play(env, graph, 1)
    assert not bool(saved["tensors"]["scheduled"].any())


@pytest.mark.parametrize(("groups", "repeats"), [(0, 3), (2, 0)])
def test_no_rows_are_refused(groups: int, repeats: int) -> None:
    with pytest.raises(ValueError, match="groups and repeats must be at least 1"):
        environment(groups=groups, repeats=repeats)


def test_the_scale_of_a_group_is_that_of_each_of_its_rows() -> None:
    env = environment(reference=lambda state: torch.arange(1.0, 3.0, dtype=torch.float64))
    env.reset()
    assert env.scale.tolist() == list(np.repeat([1.0, 2.0], 3))
