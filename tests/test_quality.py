"""benchmarks/quality.py on tiny sets: files, resuming, spread, the tables and the picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hetsched.agents.checkpoint import save_checkpoint
from hetsched.agents.sampling import BestOfSamples
from hetsched.benchmarks import quality_results as results
from hetsched.benchmarks import quality_sets as sets
from hetsched.benchmarks import quality_tables as tables
from hetsched.gnn.config import NetworkConfig
from hetsched.gnn.network import SchedulingNetwork
from hetsched.tests.benchmarks.loading import load_script

TINY = "rcmax-20x4"  # its name; the test's own set is smaller


@pytest.fixture(scope="module")
def quality() -> Any:
    return load_script("quality")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two instances: 3 and 3 on two machines, 2 and 2, whose optima are 3 and 2."""
    (tmp_path / "data" / "rcmax").mkdir(parents=True)
    np.savez(
        tmp_path / "data" / "rcmax" / "20x4.npz",
        processing_times=np.array([[[3, 9], [9, 3]], [[2, 4], [5, 2]]]),
        reference_optimum=np.array([3, 2.0]),
        reference_other=np.array([6.0, 6.0]),
    )
    return tmp_path / "data"


@pytest.fixture
def run(quality: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command on that set, in this process; nothing ships here."""
    monkeypatch.setattr(quality, "shipped", lambda scenario: None)

    def call(*arguments: str) -> Path:
        places = {
            "--data": data,
            "--results": tmp_path / "quality",
            "--picture": tmp_path / "p.png",
        }
        fixed = [word for pair in places.items() for word in map(str, pair)]
        quality.main([*fixed, "--sets", TINY, "--workers", "1", *arguments])
        return tmp_path / "quality" / TINY

    return call


def checkpoint(path: Path, seed: int, scenario: str = "rcmax") -> Path:
    torch.manual_seed(seed)
    training = {"seed": seed}
    network = SchedulingNetwork(NetworkConfig(hidden=8, layers=1))
    save_checkpoint(path, network, {"scenario": scenario, "training": training})
    return path


def test_results_are_kept_and_only_missing_instances_are_measured(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = ("--contenders", "^lpt$|^min-min$|^annealing@0.1$")
    folder = run(*wanted, "--count", "1")
    assert {one.stem for one in folder.iterdir()} == {"lpt", "min-min", "annealing@0.1"}
    kept = json.loads((folder / "lpt.json").read_text())
    assert kept["cost"] == [3.0]
    assert len(kept["seconds"]) == 1
    assert kept["batched_seconds"] > 0
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert "| lpt | 1.0000 |" in (tmp_path / "quality.md").read_text()

    (folder / "lpt.json").write_text(json.dumps({**kept, "cost": [6.0]}))  # a mark to know it by
    capsys.readouterr()
    run(*wanted)
    assert json.loads((folder / "lpt.json").read_text())["cost"] == [6.0, 2.0]
    assert json.loads((folder / "min-min.json").read_text())["cost"] == [3.0, 2.0]
    table = {
        line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.split("\n") if line
    }
    assert table["lpt"][:2] == ["1.5000", "0.5000"]  # the mean of 6/3 and 2/2, their spread
    assert table["other"][:2] == ["(file)", "2.5000"]  # the mean of 6/3 and 6/2
    run(*wanted)
    assert "\n0 measurements" in "\n" + capsys.readouterr().err


def test_checkpoints_of_one_name_are_seeds_of_one_row(run: Any, tmp_path: Path) -> None:
    paths = [checkpoint(tmp_path / f"{seed}.safetensors", seed) for seed in (3, 4)]
    words = [word for path in paths for word in ("--policy", f"warm start={path}")]
    folder = run("--contenders", "^warm start$|^lpt$", *words)
    names = {"warm_start~seed3", "warm_start~seed4", "lpt"}
    assert {one.stem for one in folder.iterdir()} == names
    for seed, costs in ((3, [3.0, 2.0]), (4, [6.0, 4.0])):  # as if they had become different
        path = folder / f"warm_start~seed{seed}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "cost": costs}))
    bench = next(one for one in sets.BENCHES if one.name == TINY)
    data = sets.load(bench, tmp_path / "data")
    shown = tables.panel(bench, data, tmp_path / "quality", None)
    row = next(one for one in shown.points if one.name == "warm start")
    assert (row.ratio, row.trainings, row.count) == (1.5, 2, 2)
    assert row.between == pytest.approx(np.std([1.0, 2.0], ddof=1))
    assert row.error == pytest.approx(0.0)  # both instances have a mean ratio of 1.5


def test_other_weights_are_measured_anew(run: Any, tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "a.safetensors", 1)
    words = ("--contenders", "^mine$", "--policy", f"mine={path}")
    file = run(*words) / "mine~seed1.json"
    before = json.loads(file.read_text())
    file.write_text(json.dumps({**before, "cost": [30.0, 20.0]}))
    run(*words)
    assert json.loads(file.read_text())["cost"] == [30.0, 20.0]  # the same weights: believed
    network = SchedulingNetwork(NetworkConfig(hidden=4, layers=1, heads=1))
    save_checkpoint(path, network, {"scenario": "rcmax", "training": {"seed": 1}})
    run(*words)
    after = json.loads(file.read_text())
    assert after["cost"] == [before["cost"][0], before["cost"][1]]
    assert after["checkpoint"] != before["checkpoint"]


def test_a_policy_is_measured_on_the_sets_of_its_scenario_only(run: Any, tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "a.safetensors", 1, scenario="hitzges")
    folder = run("--contenders", "^mine$|^lpt$", "--policy", f"mine={path}")
    assert {one.stem for one in folder.iterdir()} == {"lpt"}


def test_what_takes_long_is_measured_on_fewer_instances(tmp_path: Path) -> None:
    task = results.Task(TINY, "cp-sat@10", None, tmp_path, tmp_path, 30, 35.0, 1)
    slow = results.Result(TINY, "cp-sat@10", cost=[1.0] * 3, seconds=[10.0] * 3)
    assert not task.enough(slow)  # 30 seconds: the budget allows a fourth to begin
    slow.cost.append(1.0)
    slow.seconds.append(10.0)
    assert task.enough(slow)
    quick = results.Result(TINY, "cp-sat@10", cost=[1.0] * 29, seconds=[0.1] * 29)
    assert not task.enough(quick)
    dear = results.Result(TINY, "cp-sat@10", cost=[1.0] * 2, seconds=[90.0] * 2)
    assert not task.enough(dear)  # three at least


@pytest.mark.parametrize(
    ("contender", "limit"),
    [("learned", None), ("learned@64", None), ("annealing@10", 10.0), ("lpt+cp-sat@0.1", 0.1)],
)
def test_contenders_with_a_time_limit_are_told_from_samples(
    contender: str, limit: float | None, tmp_path: Path
) -> None:
    assert results.Task(TINY, contender, None, tmp_path, tmp_path, 1, 1, 1).limit == limit


def test_a_greedy_contender_is_timed_with_the_simulator(tmp_path: Path) -> None:
    task = results.Task(TINY, "atcs-r:k1=2,k2=0.2,k3=0.2", None, tmp_path, tmp_path, 1, 1, 1)
    contender = results._contender(task, ())
    assert isinstance(contender, BestOfSamples)
    assert contender.samples == 1


def test_the_dag_set_comes_in_three_sizes_with_best_known_costs(tmp_path: Path) -> None:
    benches = [one for one in sets.BENCHES if one.scenario == "dag"]
    loaded = [sets.load(one, tmp_path) for one in benches]
    assert [len(one.instances) for one in loaded] == [12, 12, 12]
    assert [sets.base_of(one) for one in loaded] == ["best_known"] * 3


def test_the_results_of_an_earlier_shipped_policy_are_not_shown(data: Path, tmp_path: Path) -> None:
    old = results.Result(TINY, "learned", checkpoint="old", cost=[3.0, 2.0], seconds=[1.0, 1.0])
    old.write(tmp_path / TINY / "learned.json")
    bench = next(one for one in sets.BENCHES if one.name == TINY)
    some = sets.load(bench, data)
    assert [one.name for one in tables.panel(bench, some, tmp_path, "old").points] == ["learned"]
    assert tables.panel(bench, some, tmp_path, "new").points == ()


def test_what_other_numbers_of_threads_made_is_not_shown(data: Path, tmp_path: Path) -> None:
    made = results.Result(TINY, "lpt", threads=2, cost=[3.0, 2.0], seconds=[1.0, 1.0])
    made.write(tmp_path / TINY / "lpt.json")
    bench = next(one for one in sets.BENCHES if one.name == TINY)
    some = sets.load(bench, data)
    assert tables.panel(bench, some, tmp_path, None).points == ()
    assert len(tables.panel(bench, some, tmp_path, None, threads=2).points) == 1


def test_a_damaged_set_is_one_sentence(
    run: Any, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "rcmax" / "20x4.npz").write_bytes(b"nothing")
    with pytest.raises(SystemExit) as caught:
        run()
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sets", "none-such"], "none-such"),
        (["--policy", "nothing"], "NAME=PATH"),
        (["--policy", "learned=x.safetensors"], "choose a name"),
        (["--policy", "atc=x.safetensors"], "that no rule or solver has"),
        (["--policy", "annealing=x.safetensors"], "that no rule or solver has"),
        (["--sets", "("], "'(' is no regular expression"),
        (["--sets", "dag"], "has results, but there is no"),
        (["--policy", "a=none-such.safetensors"], "no checkpoint"),
        (["--budget", "0"], "above 0"),
    ],
)
def test_mistakes_are_one_sentence(
    quality: Any, tmp_path: Path, arguments: list[str], said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with pytest.raises(SystemExit) as caught:
        quality.main(["--data", str(tmp_path), *arguments])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_where_machines_are_many_the_policy_also_decides_among_few_modes_of_every_job() -> None:
    (many,) = [one for one in sets.BENCHES if one.name == "rcmax-200x20"]
    (few,) = [one for one in sets.BENCHES if one.name == "rcmax-20x4"]
    assert {"learned", "learned:keep=10", "learned:keep=10@32"} <= set(many.contenders(True))
    assert not [one for one in many.contenders(False) if "keep" in one]
    assert not [one for one in few.contenders(True) if "keep" in one]
