"""benchmarks/dag_set.py: the set is what its definition says, and better costs are kept."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from hetsched.agents.exact import solve_exact
from hetsched.envs.benchmark_files import load_benchmark
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.tests.benchmarks.loading import load_script

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "dag_set.py"
TARDINESS = Objective(weighted_tardiness=1.0)


@pytest.fixture(scope="module")
def dag_set() -> ModuleType:
    return load_script("dag_set")


def test_the_set_is_a_factorial_and_every_instance_has_a_best_known_cost(
    dag_set: ModuleType, tmp_path: Path
) -> None:
    assert dag_set.main(["--write", str(tmp_path)]) == 0
    found = load_benchmark(tmp_path)
    sizes = [(one.num_jobs, one.num_machines) for one in found.instances]
    assert {size: sizes.count(size) for size in sizes} == dict.fromkeys(dag_set.SIZES, 12)
    known = dag_set.read_known()
    assert found.references["best_known"].tolist() == [known[name].cost for name in sorted(known)]
    assert all(one.bound <= one.cost and one.how for one in known.values())
    for name, one in zip(sorted(known), found.instances, strict=True):
        assert one.same_as(dag_set.instances()[name])


def test_the_stored_schedules_are_feasible_and_cost_what_is_said(dag_set: ModuleType) -> None:
    for name, one in dag_set.read_known().items():
        instance = dag_set.instances()[name]
        one.schedule.check(instance)
        assert one.schedule.cost(instance, TARDINESS) == one.cost


def test_better_costs_and_bounds_are_kept_and_worse_ones_are_not(dag_set: ModuleType) -> None:
    instance = Instance.from_matrix(
        [[2.0, 3.0], [4.0, 3.0], [5.0, 1.0]],
        due_times=[1.0, 5.0, 4.0],
        weights=[1.0, 2.0, 3.0],
        precedence=[[0], [1]],
    )
    optimum = solve_exact(instance, TARDINESS, 10.0).cost
    annealed = dag_set.annealed(instance, dag_set.Known(), 500, 2)
    assert (annealed.cost, annealed.bound, annealed.how) == (optimum, 0.0, "annealing 2 x 500")
    proven = dag_set.bounded(instance, annealed, 5.0, 1)
    assert (proven.cost, proven.bound, proven.how) == (optimum, optimum, "annealing 2 x 500")
    alone = dag_set.bounded(instance, dag_set.Known(), 5.0, 1)
    assert (alone.cost, alone.bound, alone.how) == (optimum, optimum, "CP-SAT 5 s, 1 workers")
    better = dag_set.Known(optimum - 0.5, 0.0, "somebody")
    kept = dag_set.annealed(instance, better, 500, 1)
    assert (kept.cost, kept.how, kept.schedule) == (optimum - 0.5, "somebody", None)


def test_what_is_written_is_read_again(dag_set: ModuleType, tmp_path: Path) -> None:
    name = min(dag_set.instances())
    found = dag_set.annealed(dag_set.instances()[name], dag_set.Known(), 500, 1)
    dag_set.write_known({name: found}, tmp_path)
    again = dag_set.read_known(tmp_path)
    assert again == {name: found}
    assert np.array_equal(again[name].schedule.starts, found.schedule.starts)
    assert np.array_equal(again[name].schedule.modes, found.schedule.modes)


def test_names_sort_by_size(dag_set: ModuleType) -> None:
    sizes = [dag_set.instances()[name].num_jobs for name in sorted(dag_set.instances())]
    assert (np.diff(sizes) >= 0).all()


@pytest.mark.parametrize("arguments", [[], ["--improve", "--restarts", "0"], ["--bounds", "-1"]])
def test_options_that_make_no_sense_are_refused(
    dag_set: ModuleType, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        dag_set.main(arguments)
    assert error.value.code == 2
    assert "error:" in capsys.readouterr().err
