"""What features need of a problem alone."""

from __future__ import annotations

import numpy as np
import torch

from hetsched.envs.instance import Instance
from hetsched.envs.problem import Problem

INSTANCES = [
    Instance.from_matrix(np.array([[5.0, 1.0, 3.0], [2.0, np.inf, 8.0]]), weights=[1.0, 4.0]),
    Instance.from_matrix(np.array([[6.0]]), due_times=[9.0]),
]


def test_statics_by_hand() -> None:
    statics = Problem.from_instances(INSTANCES).statics
    assert statics.fastest.tolist() == [[1.0, 2.0], [6.0, 0.0]]
    assert statics.regret.tolist() == [[2.0, 6.0], [0.0, 0.0]]
    assert statics.has_due_time.tolist() == [[0.0, 0.0], [1.0, 0.0]]
    assert statics.is_fastest[0].tolist() == [[False, True, False], [True, False, False]]
    assert statics.machines.tolist() == [[3.0], [1.0]]
    assert not statics.all_machines


def test_statics_are_computed_once_and_not_carried_to_other_rows() -> None:
    problem = Problem.from_instances(INSTANCES)
    assert problem.statics is problem.statics
    assert problem.select(torch.tensor([1])).statics.fastest.tolist() == [[6.0, 0.0]]


def test_statics_made_while_deciding_serve_training() -> None:
    problem = Problem.from_instances(INSTANCES)
    with torch.inference_mode():
        assert not problem.statics.log_ratio.is_inference()
