"""Files of instances and sets: round trips, and wrong fields named."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.envs.files import (
    InstanceSet,
    load_instance,
    load_set,
    save_instance,
    save_set,
)
from hetsched.envs.instance import Instance
from hetsched.tests.envs.instances import random_instance

FEATURES = ("shared", "precedence", "lags", "releases", "noisy", "parallel")
SUFFIXES = pytest.mark.parametrize("suffix", [".npz", ".json"])


def small(**others: Any) -> Instance:
    return Instance.from_matrix(np.array([[1.0, 2.0], [np.inf, 3.0]]), **others)


def refused(load: Any, path: Path) -> str:
    """The one sentence of a refusal."""
    with pytest.raises(ValueError, match=r".") as refusal:
        load(path)
    sentence = str(refusal.value)
    assert "\n" not in sentence
    assert path.name in sentence
    return sentence


@given(st.integers(0, 10_000), st.sampled_from([".npz", ".json"]))
def test_an_instance_is_read_back_the_same(seed: int, suffix: str) -> None:
    rng = np.random.default_rng(seed)
    options = {name: bool(rng.random() < 0.5) for name in FEATURES}
    instance = random_instance(rng, setups=not options["shared"], **options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"one{suffix}"
        save_instance(path, instance)
        assert load_instance(path).same_as(instance)


@SUFFIXES
@given(names=st.lists(st.text(st.characters(exclude_characters="\0")), min_size=2, max_size=2))
def test_any_name_is_read_back_the_same(suffix: str, names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"one{suffix}"
        save_instance(path, small(job_names=names))
        assert load_instance(path).job_names == tuple(names)


def test_json_holds_no_infinity_and_can_be_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    save_instance(path, small(due_times=[5, np.inf]))
    data = json.loads(path.read_text(), parse_constant=lambda one: pytest.fail(one))
    assert data["due_times"] == [5.0, None]
    by_hand = {
        "format": "hetsched instance",
        "version": 1,
        "num_jobs": 1,
        "num_machines": 2,
        "mode_jobs": [0, 0],
        "mode_machines": [0, 1],
        "processing_times": [4, 5.5],
        "due_times": [None],
    }
    path.write_text(json.dumps(by_hand))
    assert load_instance(path).same_as(Instance.from_matrix([[4, 5.5]]))


@SUFFIXES
def test_unknown_missing_and_wrong_fields_are_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"one{suffix}"
    good: dict[str, Any] = {
        "format": "hetsched instance",
        "version": 1,
        "num_jobs": 1,
        "num_machines": 1,
        "mode_jobs": [0],
        "mode_machines": [0],
        "processing_times": [4.0],
    }

    def write(**changes: Any) -> Path:
        values = {name: value for name, value in {**good, **changes}.items() if value is not None}
        if suffix == ".json":
            path.write_text(json.dumps(values))
        else:
            arrays: dict[str, Any] = {name: np.array(value) for name, value in values.items()}
            np.savez(path, **arrays)
        return path

    assert load_instance(write()).num_jobs == 1
    assert "has an unknown field colour; use num_jobs, " in refused(load_instance, write(colour=1))
    assert "lacks the field mode_jobs" in refused(load_instance, write(mode_jobs=None))
    assert "processing_times[0] is -4" in refused(load_instance, write(processing_times=[-4.0]))
    assert "num_jobs is 1.5; give a whole" in refused(load_instance, write(num_jobs=1.5))
    assert "weights holds something else" in refused(load_instance, write(weights=["a"]))
    assert "version 2, this hetsched reads 1" in refused(load_instance, write(version=2))
    assert "is hetsched set, not hetsched instance" in refused(
        load_instance, write(format="hetsched set")
    )
    assert "is of no known format, not" in refused(load_instance, write(format=None))


def test_null_counts_as_infinity_and_is_refused_where_that_makes_no_sense(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    save_instance(path, small())
    path.write_text(path.read_text().replace('"weights": [1.0', '"weights": [null'))
    assert "weights[0] is inf; give a finite number" in refused(load_instance, path)


def test_a_set_is_read_back_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    instances = tuple(
        random_instance(rng, jobs=4, machines=3, setups=True, releases=True, noisy=True)
        for _ in range(3)
    )
    before = InstanceSet(
        instances,
        references={"optimum": np.array([1.5, 2, 3]), "proven": np.array([True, False, True])},
        name="mine",
        factors={"tau": np.array([0.2, 0.4, 0.6])},
    )
    save_set(tmp_path / "set.npz", before)
    after = load_set(tmp_path / "set.npz")
    assert len(after) == 3
    assert all(one.same_as(two) for one, two in zip(instances, after.instances, strict=True))
    assert after.name == "mine"
    assert {key: value.tolist() for key, value in after.references.items()} == {
        "optimum": [1.5, 2.0, 3.0],
        "proven": [True, False, True],
    }
    assert after.factors["tau"].tolist() == [0.2, 0.4, 0.6]


def test_a_set_keeps_capacity_demand_and_precedence(tmp_path: Path) -> None:
    one = small(
        capacity=[1, 4],
        demand=[1, 3, 2],
        precedence=[[1], [0]],
        precedence_lags=[2.0],
        machine_names=["cpu", "gpu"],
        job_names=["a", "b"],
    )
    save_set(tmp_path / "set.npz", InstanceSet((one, one.scaled(2.0))))
    after = load_set(tmp_path / "set.npz")
    assert after.instances[0].same_as(one)
    assert after.instances[1].same_as(one.scaled(2.0))


def test_what_a_set_cannot_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    with pytest.raises(ValueError, match="instance 1 differs from instance 0 in its sizes"):
        save_set(path, InstanceSet((small(), Instance.from_matrix([[1, 2]]))))
    with pytest.raises(ValueError, match="differs from instance 0 in its sizes, arcs or fields"):
        save_set(path, InstanceSet((small(), small(precedence=[[0], [1]]))))
    twice = Instance(1, 1, np.array([0, 0]), np.array([0, 0]), np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="instance 0 has two modes of one job on one machine"):
        save_set(path, InstanceSet((twice,)))
    with pytest.raises(ValueError, match="factors has the reserved name 'weights'"):
        save_set(path, InstanceSet((small(),), factors={"weights": np.ones(1)}))
    with pytest.raises(ValueError, match="the set has no instance"):
        InstanceSet(())
    with pytest.raises(ValueError, match=r"references\['optimum'\] has shape \(2,\)"):
        InstanceSet((small(),), references={"optimum": np.ones(2)})


def write_set(path: Path, **arrays: Any) -> Path:
    values = {"processing_times": np.ones((2, 3, 2)), **arrays}
    np.savez(path, **values)
    return path


def test_wrong_arrays_of_a_set_are_named(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    assert "give processing_times with three axes" in refused(
        load_set, write_set(path, processing_times=np.ones((2, 3)))
    )
    assert "weights in " in (
        sentence := refused(load_set, write_set(path, weights=np.ones((3, 3))))
    )
    assert "give it a leading axis of 2 instances" in sentence
    assert "has an unknown array colours; use processing_times" in refused(
        load_set, write_set(path, colours=np.ones((2, 3)))
    )
    assert "instance 1 of " in (
        sentence := refused(load_set, write_set(path, weights=[[1, 1, 1], [1, -1, 1]]))
    )
    assert "weights[1] is -1" in sentence
    assert "references['optimum'] has shape (2, 1)" in refused(
        load_set, write_set(path, reference_optimum=np.ones((2, 1)))
    )
    assert "eligible has shape (3, 2) and type int64" in refused(
        load_set, write_set(path, eligible=np.ones((2, 3, 2), np.int64))
    )
    assert "is hetsched instance, not hetsched set" in refused(
        load_set, write_set(path, format=np.array("hetsched instance"))
    )


def test_a_set_given_as_an_instance_is_pointed_to_load_set(tmp_path: Path) -> None:
    sentence = refused(load_instance, write_set(tmp_path / "set.npz"))
    assert sentence.endswith("is a set of instances; read it with load_set")


def test_eligibility_and_name_come_from_the_file(tmp_path: Path) -> None:
    eligible = np.ones((2, 3, 2), bool)
    eligible[0, 1, 0] = False
    (tmp_path / "folder").mkdir()
    after = load_set(write_set(tmp_path / "folder" / "set.npz", eligible=eligible))
    assert [one.num_modes for one in after.instances] == [5, 6]
    assert after.name == "folder/set"


@pytest.mark.parametrize(
    ("name", "count", "jobs", "machines", "reference"),
    [
        ("hitzges/8x4", 200, 8, 4, "optimum"),
        ("hitzges/20x4", 60, 20, 4, "annealing"),
        ("hitzges/50x6", 30, 50, 6, "published_network"),
        ("hitzges/100x10", 20, 100, 10, "atc_best_of_5"),
        ("rcmax/20x4", 20, 20, 4, "proven"),
        ("rcmax/50x10", 20, 50, 10, "ect_lpt_min"),
        ("rcmax/100x10", 20, 100, 10, "optimum"),
        ("rcmax/100x20", 20, 100, 20, "optimum"),
        ("rcmax/200x20", 20, 200, 20, "optimum"),
        ("rcmax/500x50", 20, 500, 50, "optimum"),
        ("upmsp/20x5", 36, 20, 5, "annealing"),
        ("upmsp/50x10", 36, 50, 10, "annealing"),
        ("upmsp/100x15", 12, 100, 15, "annealing"),
    ],
)
def test_the_benchmark_sets_are_read(
    data_dir: Path, name: str, count: int, jobs: int, machines: int, reference: str
) -> None:
    found = load_set(data_dir / f"{name}.npz")
    assert (found.name, len(found)) == (name, count)
    assert {(one.num_jobs, one.num_machines) for one in found.instances} == {(jobs, machines)}
    assert found.references[reference].shape == (count,)
    if name.startswith("upmsp"):
        assert sorted(found.factors) == ["R", "beta", "delta", "tau"]
        setups = found.instances[0].setup_times
        assert setups is not None
        assert setups.shape == (jobs + 1, jobs, machines)
        assert found.instances[0].num_modes < jobs * machines
