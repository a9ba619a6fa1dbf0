"""The .fjs format: read by hand, written, and refused in one sentence."""

from pathlib import Path

import numpy as np
import pytest

from hetsched.envs.fjs import chains, flexible_job_shop, load_fjs, save_fjs
from hetsched.envs.instance import Instance

TEXT = """2 3 1.5
2 2 1 5 3 4 1 2 7
1 3 1 2 2 2.5 3 9

"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "shop.fjs"
    path.write_text(text)
    return path


def test_operations_become_jobs_in_chains(tmp_path: Path) -> None:
    instance = load_fjs(write(tmp_path, TEXT))
    assert (instance.num_jobs, instance.num_machines) == (3, 3)
    assert instance.matrix().tolist() == [[5, np.inf, 4], [np.inf, 7, np.inf], [2, 2.5, 9]]
    assert instance.precedence.tolist() == [[0], [1]]
    assert instance.job_names == ("job 0 operation 0", "job 0 operation 1", "job 1 operation 0")


def test_the_mean_number_of_machines_may_be_left_out(tmp_path: Path) -> None:
    assert load_fjs(write(tmp_path, TEXT.replace(" 1.5", ""))).num_jobs == 3


def test_chains_join_consecutive_jobs() -> None:
    assert chains([2, 1, 3]).tolist() == [[0, 3, 4], [1, 4, 5]]
    assert chains([1, 1]).shape == (2, 0)
    assert chains([1]).shape == (2, 0)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_written_reads_back(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = [
        [
            [(int(machine), float(rng.choice([3.0, 0.1, 1e-7, 7.25, 1 / 3])))
             for machine in sorted(rng.choice(4, rng.integers(1, 5), replace=False))]
            for _ in range(rng.integers(1, 5))
        ]
        for _ in range(rng.integers(1, 6))
    ]  # fmt: skip
    instance = flexible_job_shop(jobs, 4)
    save_fjs(tmp_path / "a.fjs", instance)
    assert load_fjs(tmp_path / "a.fjs").same_as(instance)


def test_chains_that_are_listed_out_of_order_are_written_one_by_one(tmp_path: Path) -> None:
    instance = Instance.from_matrix([[1.0], [2.0], [3.0]], precedence=[[2], [0]])
    save_fjs(tmp_path / "a.fjs", instance)
    assert (tmp_path / "a.fjs").read_text() == "2 1 1\n1 1 1 2\n2 1 1 3 1 1 1\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "its first line must hold the numbers of jobs and of machines"),
        ("2\n", "its first line must hold the numbers"),
        ("0 3\n", "there is no job; give at least one"),
        ("2 3 1\n1 1 1 5\n", "it names 2 jobs in its first line, but has 1 more"),
        ("1 3\n1 1 1\n", "line 2 ends in the middle of an operation"),
        ("1 3\n1 1 4 5\n", "line 2 names machine 4; use 1..3"),
        ("1 3\n1 1 0 5\n", "line 2 names machine 0; use 1..3"),
        ("1 3\n1 1 1 5 9\n", "line 2 goes on after its last operation"),
        ("1 3\n0\n", "job 0 has no operation; give at least one"),
        ("1 3\n1 1 x 5\n", "line 2 has 'x' where a whole number"),
        ("1 3\n1 1 1 x\n", "line 2 has 'x' where a duration belongs"),
        ("1 3\n1 1 1 -2\n", "processing_times"),
        ("1 3\n1 1 1 nan\n", "processing_times"),
        ("1 3\n1 0\n", "job"),
    ],
)
def test_what_is_no_flexible_job_shop_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=sentence) as error:
        load_fjs(path)
    assert str(error.value).startswith(f"{path} is no flexible job shop: ")
    assert "\n" not in str(error.value)


def test_a_file_that_is_missing_or_binary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no file"):
        load_fjs(tmp_path / "none.fjs")
    (tmp_path / "a.fjs").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is not text"):
        load_fjs(tmp_path / "a.fjs")


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"release_times": [0, 1, 0]}, "release times"),
        ({"precedence": [[0, 0], [1, 2]]}, "precedence that is not in chains"),
        ({"precedence": [[0], [1]], "precedence_lags": [2.0]}, "lags"),
        ({"capacity": [2]}, "machines with several units"),
        ({"setup_times": np.ones((4, 3, 1))}, "set-ups"),
        ({"due_times": [5, np.inf, np.inf]}, "due times"),
    ],
)
def test_an_instance_that_the_format_cannot_hold_is_refused(
    tmp_path: Path, fields: dict, what: str
) -> None:
    instance = Instance.from_matrix([[1.0], [2.0], [3.0]], **fields)
    with pytest.raises(ValueError, match=f"has {what}, which .fjs cannot hold"):
        save_fjs(tmp_path / "a.fjs", instance)
