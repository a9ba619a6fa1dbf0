"""The adapter over a simulated executor takes exactly the simulator's decisions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hetsched.agents.policy import Policy, rollout
from hetsched.agents.rules import make_rule
from hetsched.envs.features import observe
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.executor.adapter import run_queue
from hetsched.executor.queue import Queue
from hetsched.executor.simulated import SimulatedExecutor, durations_of

OBJECTIVE = "mean(flow_time + weighted_tardiness)"
RULES = ("fifo", "spt", "edd", "min-min", "sufferage", "atc", "heft", "ect-wait", "allox")
FEATURES = ("plain", "arrivals", "surprises", "capacity", "precedence", "eligibility", "everything")


def random_instance(seed: int, feature: str) -> Instance:
    """12 jobs on 3 machines; whole numbers, so that many events coincide."""
    rng = np.random.default_rng(seed)
    jobs, machines = 12, 3
    has = {feature} if feature != "everything" else set(FEATURES)
    times = rng.integers(1, 20, size=(jobs, machines)).astype(float)
    fields: dict = {
        "weights": rng.integers(1, 5, size=jobs).astype(float),
        "due_times": rng.integers(5, 60, size=jobs).astype(float),
    }
    if "arrivals" in has:
        fields["release_times"] = rng.integers(0, 40, size=jobs).astype(float)
    if "surprises" in has:  # some longer, some shorter than expected, some just so
        fields["actual_times"] = np.maximum(1.0, times + rng.integers(-6, 7, size=times.shape))
    if "capacity" in has:
        fields["capacity"] = np.array([1, 2, 4])
        fields["demand"] = np.minimum(rng.integers(1, 4, size=times.shape), fields["capacity"])
    if "precedence" in has:
        before, after = np.triu_indices(jobs, k=1)
        chosen = rng.random(len(before)) < 0.12
        fields["precedence"] = np.stack([before[chosen], after[chosen]])
    eligible = None
    if "eligibility" in has:
        eligible = rng.random(times.shape) < 0.6
        eligible[np.arange(jobs), rng.integers(machines, size=jobs)] = True
    return Instance.from_matrix(times, eligible, **fields)


def in_simulator(instance: Instance, policy: Policy) -> dict[str, tuple[int, float, float]]:
    """Job name -> mode among its own, start, end."""
    problem = Problem.from_instances([instance])
    state = rollout(policy, State.initial(problem, Objective.parse(OBJECTIVE), "dispatch"))
    slots = state.chosen[0]
    modes = problem.mode_index[0].gather(1, slots[:, None]).squeeze(1).numpy()
    first = np.searchsorted(instance.mode_jobs, np.arange(instance.num_jobs))
    starts, ends = state.starts[0].tolist(), state.ends[0].tolist()
    return {
        name: (int(modes[job] - first[job]), starts[job], ends[job])
        for job, name in enumerate(instance.job_names)
    }


def in_executor(instance: Instance, policy: Policy) -> dict[str, tuple[int, float, float]]:
    """The same, through the adapter."""
    queue = Queue.from_instance(instance, OBJECTIVE)
    times = instance.processing_times if instance.actual_times is None else instance.actual_times
    first = np.searchsorted(instance.mode_jobs, np.arange(instance.num_jobs))
    actual = {
        (instance.job_names[job], mode - int(first[job])): float(times[mode])
        for mode, job in enumerate(instance.mode_jobs)
    }
    run = run_queue(queue, policy, SimulatedExecutor(queue.machines, durations_of(actual)))
    assert run.all_done
    return {one.attempt.job: (one.attempt.mode, one.started, one.ended) for one in run.outcomes}


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("rule", ["spt", "ect-wait"])
def test_a_rule_decides_the_same_in_both(rule: str, feature: str) -> None:
    instance = random_instance(0, feature)
    assert in_executor(instance, make_rule(rule)) == in_simulator(instance, make_rule(rule))


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_decides_the_same_in_both_with_all_features_at_once(rule: str) -> None:
    instance = random_instance(1, "everything")
    assert in_executor(instance, make_rule(rule)) == in_simulator(instance, make_rule(rule))


@pytest.mark.parametrize("feature", FEATURES)
def test_a_network_decides_the_same_in_both(feature: str) -> None:
    from hetsched.agents.learned import LearnedPolicy
    from hetsched.gnn.config import NetworkConfig
    from hetsched.gnn.network import SchedulingNetwork

    torch.manual_seed(0)
    network = SchedulingNetwork(NetworkConfig())
    for parameter in network.parameters():  # fresh heads may be zero and decide nothing
        if parameter.dim() > 1:
            torch.nn.init.xavier_normal_(parameter)
    policy = LearnedPolicy(network)
    instance = random_instance(2, feature)
    assert in_executor(instance, policy) == in_simulator(instance, policy)


class Watching:
    """A rule that remembers what a network would have seen at each of its decisions."""

    name = "watching"

    def __init__(self) -> None:
        self.rule, self.seen = make_rule("ect-wait"), []

    def scores(self, state: State) -> torch.Tensor:
        graph = observe(state)
        self.seen.append(torch.cat([graph.machines.flatten(), graph.overall.flatten()]))
        return self.rule.scores(state)


@pytest.mark.parametrize("feature", FEATURES)
def test_machines_and_arrivals_look_the_same_in_both(feature: str) -> None:
    instance = random_instance(3, feature)
    simulated, live = Watching(), Watching()
    assert in_simulator(instance, simulated) == in_executor(instance, live)
    for one in live.seen:
        assert any(torch.allclose(one, two, atol=1e-6) for two in simulated.seen)


def test_every_second_of_an_overrun_is_waited_for() -> None:
    """A job that takes longer than expected keeps its machine; nothing starts beside it."""
    instance = Instance.from_matrix([[2.0], [1.0]], actual_times=[[10.0], [1.0]])
    expected = {"job 1": (0, 0.0, 1.0), "job 0": (0, 1.0, 11.0)}
    assert in_executor(instance, make_rule("spt")) == expected
    assert in_simulator(instance, make_rule("spt")) == expected


def test_a_machine_that_is_free_early_is_used_at_once() -> None:
    instance = Instance.from_matrix([[5.0], [6.0]], actual_times=[[1.0], [6.0]])
    expected = {"job 0": (0, 0.0, 1.0), "job 1": (0, 1.0, 7.0)}
    assert in_executor(instance, make_rule("spt")) == expected
    assert in_simulator(instance, make_rule("spt")) == expected
