"""Samples without replacement: exhaustive on small plans, never worse than greedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor

from hetsched.agents import beam
from hetsched.agents.beam import Beam, search
from hetsched.agents.contenders import OnePolicy, make_contender
from hetsched.agents.evaluation import Setting, measure
from hetsched.agents.learned import LearnedPolicy
from hetsched.agents.policy import rollout
from hetsched.agents.rules import make_rule
from hetsched.envs.instance import Instance
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.gnn.config import NetworkConfig
from hetsched.gnn.network import SchedulingNetwork
from hetsched.tests.agents.small_plans import OBJECTIVES, all_schedules, small_plan

if TYPE_CHECKING:
    from hetsched.envs.objective import Objective
    from hetsched.envs.schedule import Schedule


class Peaked:
    """Some actions are e times likelier than others, by their index."""

    name = "peaked"

    def scores(self, state: State) -> Tensor:
        actions = torch.arange(state.problem.num_actions)
        return (actions * 7 % 3).double().expand(state.problem.batch_size, -1)


def name_of(one: Schedule) -> bytes:
    return one.starts.tobytes() + one.modes.tobytes()


def found(instance: Instance, width: int, seed: int = 0) -> tuple[State, Tensor]:
    """The rows of a finished search of one instance, and the logarithms of their likelihoods."""
    state = State.initial(Problem.from_instances([instance]).repeat(width), OBJECTIVES[3], "plan")
    generator = torch.Generator().manual_seed(seed)
    likely = search(Peaked(), state, width, 1.0, generator)
    return state, likely[0]


@pytest.mark.parametrize("seed", range(6))
def test_a_beam_as_wide_as_there_are_schedules_holds_each_of_them_once(seed: int) -> None:
    instance = small_plan(seed, jobs=3)
    known = {name_of(one) for one in all_schedules(instance)}
    state, likely = found(instance, 60)
    alive = [one for one, p in zip(state.schedules(), likely, strict=True) if p > -np.inf]
    seen = [name_of(one) for one in alive]
    assert len(seen) == len(set(seen)) == len(known)
    assert set(seen) == known
    # All ways to a schedule are merged, so the schedules share all of the probability.
    assert float(likely.exp().sum()) == pytest.approx(1.0)


def test_modes_of_one_job_on_one_machine_make_different_schedules() -> None:
    instance = Instance(
        num_jobs=2,
        num_machines=1,
        mode_jobs=[0, 0, 1, 1],
        mode_machines=[0, 0, 0, 0],
        processing_times=[1.0, 5.0, 1.0, 5.0],
    )
    state, likely = found(instance, 16)
    alive = [one for one, p in zip(state.schedules(), likely, strict=True) if p > -np.inf]
    assert len({name_of(one) for one in alive}) == len(alive) == 8  # two orders, four choices


def test_orders_that_start_jobs_side_by_side_on_one_machine_are_one_schedule() -> None:
    instance = Instance.from_matrix(np.ones((4, 1)), capacity=[4])
    state, likely = found(instance, 16)
    assert (likely > -np.inf).tolist() == [True] + [False] * 15
    assert state.schedules()[0].starts.tolist() == [0.0] * 4


@pytest.mark.parametrize("seed", range(4))
def test_likelihoods_are_those_with_which_independent_samples_end_in_a_schedule(seed: int) -> None:
    instance = small_plan(seed, jobs=3)
    state, likely = found(instance, 60)
    pairs = zip(state.schedules(), likely.exp().tolist(), strict=True)
    known = {name_of(one): p for one, p in pairs if p}
    many = State.initial(Problem.from_instances([instance]).repeat(4000), OBJECTIVES[3], "plan")
    generator = torch.Generator().manual_seed(seed)
    rollout(Peaked(), many, sampled=True, generator=generator)
    drawn = [name_of(one) for one in many.schedules()]
    for schedule, p in known.items():
        assert drawn.count(schedule) / 4000 == pytest.approx(p, abs=4 * 0.5 / 4000**0.5)


def test_schedules_stay_in_a_narrow_beam_as_often_as_drawing_without_replacement_says() -> None:
    instance = small_plan(2, jobs=2, machines=2)
    _, likely = found(instance, 60)
    p = likely.exp()[likely > -np.inf].numpy()
    # One place is the greedy one's, drawn or not; the others are judged by who is left over.
    state, _ = found(instance, 60)
    names = [name_of(one) for one in state.schedules()][: len(p)]
    greedy = name_of(found(instance, 1)[0].schedules()[0])
    counts = dict.fromkeys(names, 0)
    for seed in range(600):
        rows, _ = found(instance, 2, seed)
        for one in {name_of(each) for each in rows.schedules()} - {greedy}:
            counts[one] += 1
    others = [i for i, name in enumerate(names) if name != greedy]
    total = p[others].sum()
    for i in others:
        assert counts[names[i]] / 600 == pytest.approx(p[i] / total, abs=4 * 0.5 / 600**0.5)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_beam_is_never_worse_than_greedy_and_wide_ones_reach_the_optimum(
    objective: Objective,
) -> None:
    instances = [small_plan(seed, jobs) for seed, jobs in ((0, 4), (1, 3), (2, 4), (3, 2))]
    setting = Setting(objective, "plan")
    greedy = measure(OnePolicy(Peaked()), instances, setting).costs
    narrow = measure(Beam(Peaked(), 3), instances, setting).costs
    wide = measure(Beam(Peaked(), 400), instances, setting).costs
    best = [min(s.cost(one, objective) for s in all_schedules(one)) for one in instances]
    assert (narrow <= greedy + 1e-9).all()
    assert wide == pytest.approx(best)


def test_a_batch_finds_what_its_instances_find_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    instances = [small_plan(seed, jobs, machines=3) for seed, jobs in ((0, 3), (1, 2), (2, 3))]
    everything = Beam(make_rule("atc"), 200)
    together = measure(everything, instances, Setting(OBJECTIVES[3], "plan"))
    monkeypatch.setattr(beam, "MAX_EDGES", 1)  # one at a time
    alone = measure(everything, instances, Setting(OBJECTIVES[3], "plan"))
    assert together.costs.tolist() == alone.costs.tolist()
    assert (together.seconds > 0).all()
    assert (alone.seconds > 0).all()
    assert together.decisions.tolist() == [3, 2, 3]


def test_the_same_seed_finds_the_same_schedules() -> None:
    instances = [small_plan(seed, jobs=6, machines=3) for seed in range(4)]
    costs = [
        measure(Beam(Peaked(), 4), instances, Setting(OBJECTIVES[3], "plan", seed=1)).costs.tolist()
        for _ in range(2)
    ]
    assert costs[0] == costs[1]


def test_beams_have_names_and_refuse_what_makes_no_sense() -> None:
    torch.manual_seed(0)
    network = SchedulingNetwork(NetworkConfig(hidden=8, layers=1))
    policies = {"learned": LearnedPolicy(network)}
    one = make_contender("learned:keep=2+beam@8", policies)
    assert (one.name, one.kind) == ("learned:keep=2+beam@8", "policy")
    assert make_contender("atc+beam@4").name == "atc+beam@4"
    with pytest.raises(ValueError, match="leave out together="):
        make_contender("learned:together=0.5+beam@8", policies)
    with pytest.raises(ValueError, match="at least 1"):
        make_contender("learned+beam@0", policies)
    with pytest.raises(ValueError, match="whole number"):
        make_contender("learned+beam@1.5", policies)
    with pytest.raises(ValueError, match="must be above 0"):
        Beam(Peaked(), 4, temperature=0.0)
    with pytest.raises(ValueError, match="can only plan"):
        Beam(Peaked(), 4).solve([small_plan(0)], Setting(OBJECTIVES[0], "dispatch"))
