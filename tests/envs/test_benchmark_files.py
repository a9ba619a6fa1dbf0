"""What --file may name: sets, single instances, and folders with references."""

from pathlib import Path

import numpy as np
import pytest

from hetsched.envs.benchmark_files import load_benchmark
from hetsched.envs.files import InstanceSet, save_instance, save_set
from hetsched.envs.fjs import save_fjs
from hetsched.envs.instance import Instance

FIRST = Instance.from_matrix([[1.0, 2.0], [2.0, 1.0]])
SECOND = Instance.from_matrix([[3.0, 2.0]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_fjs(tmp_path / "b.fjs", FIRST)
    save_instance(tmp_path / "c.json", SECOND)
    save_instance(tmp_path / "a.npz", SECOND)
    (tmp_path / "README.md").write_text("not an instance")
    return tmp_path


def test_a_folder_is_read_in_the_order_of_its_names(folder: Path) -> None:
    (folder / "reference_solver_9s.csv").write_text("# cost,seconds\n3,0.5\n1,2\n\n2.5\n")
    found = load_benchmark(folder)
    assert [one.num_jobs for one in found.instances] == [1, 2, 1]
    assert found.references["solver_9s"].tolist() == [3, 1, 2.5]
    assert found.instances[0].same_as(SECOND)


def test_single_files_are_sets_of_one(folder: Path) -> None:
    for name, jobs in (("a.npz", 1), ("b.fjs", 2), ("c.json", 1)):
        found = load_benchmark(folder / name)
        assert [one.num_jobs for one in found.instances] == [jobs]
        assert found.references == {}


def test_sets_are_still_read(tmp_path: Path) -> None:
    save_set(tmp_path / "s.npz", InstanceSet((FIRST, FIRST), {"optimum": np.array([1.0, 1.0])}))
    assert len(load_benchmark(tmp_path / "s.npz")) == 2


def test_references_of_another_number_or_without_numbers_are_refused(folder: Path) -> None:
    (folder / "reference_x.csv").write_text("3\n1\n")
    with pytest.raises(ValueError, match="has 2 costs for the 3 instances beside it"):
        load_benchmark(folder)
    (folder / "reference_x.csv").write_text("cost\n3\n1\n2\n")
    with pytest.raises(ValueError, match=r"line 1 of .* does not begin with a cost"):
        load_benchmark(folder)


def test_what_is_not_there_or_unknown_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no instances"):
        load_benchmark(tmp_path)
    with pytest.raises(ValueError, match="is no file"):
        load_benchmark(tmp_path / "x.npz")
    with pytest.raises(ValueError, match=r"has no suffix that is known here; use \.fjs"):
        load_benchmark(tmp_path / "x.txt")


@pytest.mark.parametrize(("part", "operations"), [("SD1/10x5", (40, 60)), ("SD2/10x5+mix", (50,))])
def test_the_published_job_shops_are_read(data_dir: Path, part: str, operations: tuple) -> None:
    found = load_benchmark(data_dir / "fjsp" / part)
    assert len(found) == 100
    for one, cost in zip(found.instances, found.references["ortools_1800s"], strict=True):
        assert operations[0] <= one.num_jobs <= operations[-1]
        # No schedule is shorter than the longest chain of fastest operations, or than the work
        # shared by all machines: so the costs stand beside the right files.
        fastest = one.matrix().min(1)
        chain = np.zeros(one.num_jobs)
        for before, after in one.precedence.T.tolist():
            chain[after] = chain[before] + fastest[before]
        bound = max((chain + fastest).max(), fastest.sum() / one.num_machines)
        assert bound <= cost < 2.2 * bound
