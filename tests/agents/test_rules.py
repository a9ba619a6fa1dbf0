"""The registry of rules, and what holds for every rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hetsched.agents.policy import act, rollout
from hetsched.agents.rules import RULES, make_rule, rule_names
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import Deciding, State
from hetsched.tests.agents.picks import FLOW
from hetsched.tests.envs.instances import random_instance

DECIDING = ("plan", "dispatch")
DETERMINED = tuple(name for name in rule_names() if name != "random")
ALL_TERMS = Objective(makespan=1, weighted_tardiness=1, machine_tardiness=1, setup_time=1)


def distinct(seed: int, jobs: int = 7, machines: int = 3) -> Instance:
    """Random real numbers: no two sums are equal."""
    rng = np.random.default_rng(seed)
    return Instance.from_matrix(
        rng.uniform(1, 20, (jobs, machines)),
        release_times=rng.uniform(0, 10, jobs),
        due_times=rng.uniform(5, 50, jobs),
        weights=rng.uniform(1, 5, jobs),
        machine_available=rng.uniform(0, 5, machines),
        setup_times=rng.uniform(0, 3, (jobs + 1, jobs, machines)),
    )


def played(rule: str, instances: list[Instance], deciding: Deciding) -> list[list[int]]:
    """The actions of every row until all are done; no more than the events allow."""
    problem = Problem.from_instances(instances)
    state, policy = State.initial(problem, FLOW, deciding), make_rule(rule)
    actions: list[list[int]] = [[] for _ in instances]
    for _ in range(4 * problem.num_jobs + 4):
        if bool(state.done.all()):
            return actions
        chosen = act(policy, state)
        for row in (~state.done).nonzero().squeeze(1).tolist():
            actions[row].append(int(chosen[row]))
        state.step(chosen)
    raise AssertionError(f"{rule} did not finish")


def test_names_have_parameters_by_name_or_by_position():
    assert make_rule("atc").k == 2.0
    assert make_rule("atc:k=0.5").k == make_rule(" atc:0.5 ").k == 0.5
    rule = make_rule("atcs-r:1,k3=0.5")
    assert (rule.k1, rule.k2, rule.k3) == (1.0, 1.0, 0.5)
    assert make_rule("atc:k=0.5").name == "atc:k=0.5"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("spd", r"no rule is called 'spd'; did you mean 'spt'\? known: fifo, ect, spt, .*allox$"),
        ("banana", r"no rule is called 'banana'; known: fifo, "),
        ("", r"no rule is called ''; known: fifo, "),
        ("spt:k=1", r"rule 'spt' takes no parameters, got 'k=1'; leave them out"),
        ("atc:q=1", r"rule 'atc' has no parameter 'q'; use k"),
        ("atc:1,2", r"rule 'atc' takes 1 parameter\(s\) \(k\), got 2"),
        ("atc:k=0", r"parameter 'k' of rule 'atc' must be a number above 0, got '0'"),
        ("atc:k=nan", r"parameter 'k' of rule 'atc' must be a number above 0, got 'nan'"),
        ("atc:k=soon", r"parameter 'k' of rule 'atc' must be a number above 0, got 'soon'"),
        ("random:seed=-1", r"parameter 'seed' .* must be a whole number of at least 0, got '-1'"),
        ("random:seed=1.5", r"parameter 'seed' .* must be a whole number of at least 0, got '1.5'"),
    ],
)
def test_a_mistake_in_a_name_is_one_sentence_that_says_what_is_known(name, message):
    with pytest.raises(ValueError, match=message):
        make_rule(name)


def test_every_rule_has_a_summary_and_a_score_per_action():
    state = State.initial(Problem.from_instances([distinct(0)]), FLOW, "plan")
    for name in rule_names():
        assert RULES[name].summary
        scores = make_rule(name).scores(state)
        assert scores.dtype == torch.float64
        assert scores.shape == (1, state.problem.num_actions)
        assert scores[state.mask()].isfinite().all()


@pytest.mark.parametrize("deciding", DECIDING)
@pytest.mark.parametrize("rule", DETERMINED)
def test_scaling_all_times_changes_no_choice(rule, deciding):
    instances = [distinct(seed) for seed in range(4)]
    scaled = [instance.scaled(1000.0) for instance in instances]
    assert played(rule, instances, deciding) == played(rule, scaled, deciding)


@pytest.mark.parametrize("deciding", DECIDING)
@pytest.mark.parametrize("rule", [name for name in DETERMINED if name != "ect"])
def test_renaming_jobs_and_machines_renames_the_scores(rule, deciding):
    # Not so for ect, whose order is that of the names.
    instance = distinct(5)
    jobs, machines = np.random.default_rng(1).permutation(7), np.array([2, 0, 1])
    renamed = instance.permuted(jobs, machines)
    state = State.initial(Problem.from_instances([instance]), FLOW, deciding)
    twin = State.initial(Problem.from_instances([renamed]), FLOW, deciding)
    policy = make_rule(rule)
    while not bool(state.done.all()):
        mask, scores = state.mask()[0], policy.scores(state)[0]
        new_mask, new_scores = twin.mask()[0], policy.scores(twin)[0]
        edges, new_edges = scores[:-1].view(7, 3), new_scores[:-1].view(7, 3)
        legal = mask[:-1].view(7, 3)[jobs][:, machines]
        assert torch.equal(new_mask[:-1].view(7, 3), legal)
        torch.testing.assert_close(new_edges[legal], edges[jobs][:, machines][legal])
        action = int(act(policy, state)[0])
        new_action = action
        if action < 21:
            job, machine = divmod(action, 3)
            new_action = int(np.argsort(jobs)[job] * 3 + np.argsort(machines)[machine])
        assert int(act(policy, twin)[0]) == new_action
        state.step(torch.tensor([action]))
        twin.step(torch.tensor([new_action]))


@pytest.mark.parametrize("deciding", DECIDING)
@pytest.mark.parametrize("rule", DETERMINED)
def test_a_row_of_a_batch_is_decided_as_if_it_were_alone(rule, deciding):
    rng = np.random.default_rng(2)
    instances = [random_instance(rng, releases=True, setups=True) for _ in range(8)]
    together = Problem.from_instances(instances)
    state = rollout(make_rule(rule), State.initial(together, ALL_TERMS, deciding))
    for row, instance in enumerate(instances):
        alone = State.initial(Problem.from_instances([instance]), ALL_TERMS, deciding)
        rollout(make_rule(rule), alone)
        assert alone.cost()[0] == state.cost()[row]
        assert np.array_equal(alone.schedules()[0].modes, state.schedules()[row].modes)


@pytest.mark.parametrize("deciding", DECIDING)
@pytest.mark.parametrize("rule", rule_names())
def test_every_rule_ends_with_a_feasible_schedule_whatever_the_problem_has(rule, deciding):
    rng = np.random.default_rng(6)
    features = [
        {"precedence": True, "lags": True, "setups": True},
        {"precedence": True, "lags": True, "shared": True},
        {"shared": True, "parallel": True},
        {"setups": True, "parallel": True},
    ]
    for chosen in features:
        instances = [
            random_instance(rng, jobs=8, releases=True, noisy=deciding == "dispatch", **chosen)
            for _ in range(4)
        ]
        state = State.initial(Problem.from_instances(instances), ALL_TERMS, deciding)
        rollout(make_rule(rule), state)
        for instance, schedule in zip(instances, state.schedules(), strict=True):
            schedule.check(instance)


@pytest.mark.parametrize("rule", rule_names())
def test_no_rule_hangs_when_no_job_is_released_at_first(rule):
    instances = [distinct(seed) for seed in (1, 2)]
    late = [
        Instance.from_matrix(one.matrix(), release_times=50.0 + one.release_times)
        for one in instances
    ]
    assert all(len(row) >= 7 for row in played(rule, late, "dispatch"))


@pytest.mark.parametrize("rule", rule_names())
def test_only_rules_that_say_so_wait(rule):
    actions = played(rule, [distinct(seed) for seed in range(6)], "dispatch")
    waited = any(action == 21 for row in actions for action in row)
    assert waited <= RULES[rule].waits
