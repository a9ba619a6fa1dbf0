"""What a graph holds besides features: which jobs, modes and arcs are there."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from hetsched.envs.features import observe
from hetsched.envs.graph import (
    GLOBAL_FEATURES,
    JOB_FEATURES,
    MACHINE_FEATURES,
    MODE_FEATURES,
    Graph,
)
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.tests.envs.decisions import state_after
from hetsched.tests.envs.instances import random_instance

MAKESPAN = Objective(makespan=1.0)


def random_graph(batch: int) -> Graph:
    rng = np.random.default_rng(0)
    instances = [random_instance(rng, precedence=True, parallel=True) for _ in range(batch)]
    return observe(State.initial(Problem.from_instances(instances), MAKESPAN, "plan"))


def same(one: Graph, other: Graph) -> bool:
    pairs = [(getattr(one, field.name), getattr(other, field.name)) for field in fields(Graph)]
    return all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)


def test_feature_names_are_unique_and_as_many_as_there_are_features() -> None:
    graph = random_graph(2)
    for names, found in (
        (JOB_FEATURES, graph.jobs),
        (MACHINE_FEATURES, graph.machines),
        (MODE_FEATURES, graph.modes),
        (GLOBAL_FEATURES, graph.overall),
    ):
        assert len(set(names)) == len(names) == found.shape[-1]
        assert found.dtype == torch.float32


def test_scheduled_jobs_leave_the_graph_with_their_modes_and_arcs() -> None:
    instance = Instance.from_matrix(np.ones((3, 2)), precedence=[[0, 1], [1, 2]])
    graph = observe(state_after(instance, MAKESPAN, "plan", [0]))
    assert graph.job_mask.tolist() == [[False, True, True]]
    assert graph.mode_mask[0].tolist() == [[False, False], [True, True], [True, True]]
    assert graph.arc_mask.tolist() == [[False, True]]
    assert graph.legal.tolist() == [[False, False, True, True, False, False, False]]
    assert not graph.jobs[0, 0].any()
    assert not graph.modes[0, 0].any()


def test_unreleased_jobs_are_not_in_the_graph() -> None:
    instance = Instance.from_matrix(
        np.ones((3, 2)), precedence=[[0, 0], [1, 2]], release_times=[0.0, 0.0, 5.0]
    )
    graph = observe(state_after(instance, MAKESPAN, "dispatch"))
    assert graph.job_mask.tolist() == [[True, True, False]]
    assert graph.arc_mask.tolist() == [[True, False]]


def test_a_finished_row_is_an_empty_graph_in_which_only_wait_is_legal() -> None:
    instance = Instance.from_matrix(np.ones((1, 2)))
    graph = observe(state_after(instance, MAKESPAN, "plan", [0]))
    assert not graph.job_mask.any()
    assert not graph.mode_mask.any()
    assert graph.machine_mask.all()
    assert graph.legal.tolist() == [[False, False, True]]


def test_rows_are_chosen_by_number_or_by_mask() -> None:
    graph = random_graph(3)
    rows = graph.rows(torch.tensor([2, 0, 2]))
    assert torch.equal(rows.modes, graph.modes[[2, 0, 2]])
    mask = torch.tensor([True, False, True])
    assert same(graph.rows(mask), graph.rows(torch.tensor([0, 2])))


def test_concatenation_undoes_a_division_into_rows() -> None:
    graph = random_graph(4)
    parts = [graph.rows(torch.tensor(rows)) for rows in ([0], [1, 2], [3])]
    assert same(Graph.concatenate(parts), graph)
