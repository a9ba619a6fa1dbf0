"""The simulator against the independent checker, and against answers known by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import Deciding, State
from hetsched.tests.envs.instances import random_instance

EVERYTHING = Objective(
    makespan=1.0,
    weighted_tardiness=2.0,
    machine_tardiness=0.5,
    weighted_completion=0.25,
    flow_time=1.5,
    setup_time=3.0,
)
FEATURES = ("setups", "precedence", "lags", "releases", "shared", "parallel")


def random_actions(state: State, generator: torch.Generator) -> torch.Tensor:
    mask = state.mask()
    noise = torch.rand(mask.shape, generator=generator)
    return noise.masked_fill(~mask, -1.0).argmax(1)


def run_randomly(state: State, seed: int = 0) -> torch.Tensor:
    """Play to the end; returns the sum of rewards (B,)."""
    generator = torch.Generator().manual_seed(seed)
    total = torch.zeros_like(state.bound)
    limit = 20 * (state.problem.num_jobs + 1)
    for _ in range(limit):
        if bool(state.done.all()):
            return total
        clock = state.now.clone()
        reward = state.step(random_actions(state, generator))
        assert (reward <= 1e-9).all(), "the bound fell"
        assert (state.now >= clock).all(), "time ran backwards"
        total += reward
    raise AssertionError(f"not finished after {limit} decisions")


def combinations(deciding: Deciding) -> list[dict[str, bool]]:
    found = []
    for chosen in itertools.product([False, True], repeat=len(FEATURES)):
        options = dict(zip(FEATURES, chosen, strict=True))
        if options["setups"] and options["shared"]:
            continue  # refused by the model
        if options["lags"] and not options["precedence"]:
            continue
        found.append(options)
        if deciding == "dispatch":
            found.append({**options, "noisy": True})
    return found


@pytest.mark.parametrize("deciding", ["plan", "dispatch"])
def test_random_runs_are_feasible_and_cost_what_the_checker_says(deciding: Deciding) -> None:
    for number, options in enumerate(combinations(deciding)):
        rng = np.random.default_rng([7, number])
        instances = [random_instance(rng, **options) for _ in range(6)]  # mixed sizes
        state = State.initial(Problem.from_instances(instances), EVERYTHING, deciding)
        first = state.initial_bound.clone()
        total = run_randomly(state, number)
        for row, (instance, schedule) in enumerate(zip(instances, state.schedules(), strict=True)):
            assert schedule.violations(instance) == [], options
            cost = schedule.cost(instance, EVERYTHING)
            assert float(state.cost()[row]) == pytest.approx(cost, abs=1e-6)
            assert float(first[row] - total[row]) == pytest.approx(cost, abs=1e-6)
            assert float(first[row]) <= cost + 1e-9


@pytest.mark.parametrize("deciding", ["plan", "dispatch"])
def test_a_batch_decides_like_its_instances_alone(deciding: Deciding) -> None:
    rng = np.random.default_rng(3)
    instances = [
        random_instance(rng, releases=True, precedence=True, shared=True) for _ in range(8)
    ]
    together = State.initial(Problem.from_instances(instances), EVERYTHING, deciding)
    alone = [
        State.initial(Problem.from_instances([one]), EVERYTHING, deciding) for one in instances
    ]
    slots = together.problem.num_modes
    while not bool(together.done.all()):
        actions = torch.full((8,), together.problem.num_actions - 1)
        for row, single in enumerate(alone):
            if bool(single.done):
                continue
            action = random_actions(single, torch.Generator().manual_seed(row))
            job, slot = divmod(int(action), single.problem.num_modes)
            if int(action) != single.problem.num_actions - 1:
                mode = single.problem.mode_index[0, job, slot]
                slot = int((together.problem.mode_index[row, job] == mode).int().argmax())
                actions[row] = job * slots + slot
            single.step(action)
        together.step(actions)
        for row, single in enumerate(alone):
            assert float(together.bound[row]) == pytest.approx(float(single.bound[0]))
            assert float(together.now[row]) == float(single.now[0])


def test_scaling_time_scales_costs_and_changes_no_mask() -> None:
    rng = np.random.default_rng(5)
    instance = random_instance(rng, jobs=7, machines=3, releases=True, precedence=True, lags=True)
    states = [
        State.initial(Problem.from_instances([one]), EVERYTHING, "dispatch")
        for one in (instance, instance.scaled(1000.0))
    ]
    generator = torch.Generator().manual_seed(0)
    while not bool(states[0].done.all()):
        assert torch.equal(states[0].mask(), states[1].mask())
        action = random_actions(states[0], generator)
        for state in states:
            state.step(action)
    assert float(states[1].cost()) == pytest.approx(1000 * float(states[0].cost()))


def test_a_plan_by_hand_puts_jobs_behind_each_other() -> None:
    instance = Instance.from_matrix(
        np.array([[2.0, 9.0], [3.0, 4.0]]), machine_available=np.array([1.0, 0.0])
    )
    state = State.initial(Problem.from_instances([instance]), Objective(makespan=1.0), "plan")
    assert float(state.bound) == 4.0  # both jobs at once: 1 + 3 and 0 + 4
    assert float(state.step(torch.tensor([0]))) == 0.0  # job 0 on machine 0: 1..3
    assert state.edge_end()[0, 1].tolist() == [6.0, 4.0]
    assert float(state.step(torch.tensor([2]))) == -2.0  # job 1 behind it: 3..6
    assert float(state.cost()) == 6.0
    assert state.schedules()[0].starts.tolist() == [1.0, 3.0]


def test_dispatch_by_hand_waits_for_a_release_and_sees_nothing_before() -> None:
    instance = Instance.from_matrix(
        np.array([[5.0, 8.0], [2.0, 9.0]]), release_times=np.array([1.0, 3.0])
    )
    state = State.initial(Problem.from_instances([instance]), Objective(flow_time=1.0), "dispatch")
    assert float(state.now) == 1.0  # nothing to decide before
    assert state.visible().tolist() == [[True, False]]
    assert state.mask().tolist() == [[True, True, False, False, False]]  # nothing runs: no WAIT
    state.step(torch.tensor([0]))
    assert float(state.now) == 3.0
    assert state.mask().tolist() == [[False, False, False, True, True]]
    state.step(torch.tensor([4]))  # WAIT for machine 0
    assert float(state.now) == 6.0
    state.step(torch.tensor([2]))
    assert float(state.cost()) == 5.0 + 5.0


def test_the_policy_learns_of_an_overrun_only_when_it_happens() -> None:
    instance = Instance.from_matrix(
        np.array([[4.0], [3.0]]),
        actual_times=np.array([[10.0], [3.0]]),
        release_times=np.array([0.0, 5.0]),
    )
    state = State.initial(Problem.from_instances([instance]), Objective(makespan=1.0), "dispatch")
    assert state.edge_end()[0, 0, 0] == 4.0
    state.step(torch.tensor([0]))
    assert float(state.now) == 10.0  # the clock passed 5, where nothing could start
    state.step(torch.tensor([1]))
    assert float(state.cost()) == 13.0


def test_illegal_actions_are_named_and_change_nothing() -> None:
    instance = Instance.from_matrix(np.array([[2.0, np.inf], [3.0, 4.0]]))
    state = State.initial(Problem.from_instances([instance]), Objective(makespan=1.0), "plan")
    for action, word in ((1, "names a mode"), (4, "WAIT"), (9, "outside"), (-1, "outside")):
        with pytest.raises(ValueError, match=word):
            state.step(torch.tensor([action]))
    assert not bool(state.scheduled.any())
    with pytest.raises(ValueError, match="shape"):
        state.step(torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="unscheduled"):
        state.schedules()


def test_rows_that_keep_still_ignore_their_action() -> None:
    instance = Instance.from_matrix([[2.0, 5.0], [3.0, 4.0]])
    state = State.initial(Problem.from_instances([instance] * 2), Objective(makespan=1.0), "plan")
    rewards = state.step(torch.tensor([0, 99]), torch.tensor([False, True]))
    assert state.scheduled.tolist() == [[True, False], [False, False]]
    assert state.steps.tolist() == [1, 0]
    assert float(rewards[1]) == 0.0


def test_a_clone_goes_its_own_way() -> None:
    rng = np.random.default_rng(1)
    instance = random_instance(rng, jobs=5, machines=2)
    state = State.initial(Problem.from_instances([instance]), EVERYTHING, "plan")
    twin = state.clone()
    run_randomly(twin)
    assert not bool(state.scheduled.any())
    assert bool(twin.done.all())


def test_a_resumed_state_equals_the_one_it_was_taken_from() -> None:
    """The live view of the executor: unfinished jobs, what runs, and the clock."""
    rng = np.random.default_rng(11)
    instance = random_instance(rng, jobs=8, machines=3, releases=True)
    state = State.initial(Problem.from_instances([instance]), EVERYTHING, "dispatch")
    generator = torch.Generator().manual_seed(4)
    for _ in range(20):
        if bool(state.done):
            break
        running = state.scheduled[0] & (state.ends[0] > state.now)
        jobs = sorted(
            running.nonzero().flatten().tolist(), key=lambda job: float(state.starts[0, job])
        )
        started = [(job, int(state.chosen[0, job]), float(state.starts[0, job])) for job in jobs]
        over = state.scheduled[0] & ~running
        live = State.resume(state.problem, EVERYTHING, float(state.now), started)
        keep = ~over
        assert torch.equal(
            live.mask()[0, :-1].view(8, -1)[keep], state.mask()[0, :-1].view(8, -1)[keep]
        )
        assert torch.equal(live.machine_free(), state.machine_free())
        assert torch.equal(live.edge_end()[0][keep], state.edge_end()[0][keep])
        state.step(random_actions(state, generator))


def test_pruning_keeps_the_fastest_modes() -> None:
    instance = Instance.from_matrix(np.array([[5.0, 1.0, 3.0], [2.0, 9.0, 4.0]]))
    problem = Problem.from_instances([instance], keep_fastest=2)
    assert not problem.dense
    kept = [sorted(row[row < np.inf].tolist()) for row in problem.processing_times[0].numpy()]
    assert kept == [[1.0, 3.0], [2.0, 4.0]]
    state = State.initial(problem, EVERYTHING, "plan")
    run_randomly(state)
    assert state.schedules()[0].violations(instance) == []
