"""benchmarks/seeds.py: trainings side by side on whole sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hetsched.agents.checkpoint import save_checkpoint
from hetsched.benchmarks import seeds
from hetsched.gnn.config import NetworkConfig
from hetsched.gnn.network import SchedulingNetwork


def save(path: Path, seed: int, scenario: str = "hitzges") -> None:
    torch.manual_seed(seed)
    network = SchedulingNetwork(NetworkConfig(hidden=4, layers=1, heads=1))
    torch.nn.init.normal_(network.mode_score.weight)
    path.parent.mkdir(exist_ok=True)
    save_checkpoint(path, network, {"scenario": scenario, "training": {"seed": seed}})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A set of two instances, of a size that the benchmark knows."""
    times = np.random.default_rng(0).uniform(1, 9, (2, 8, 4))
    (tmp_path / "data" / "hitzges").mkdir(parents=True)
    np.savez(
        tmp_path / "data" / "hitzges" / "8x4.npz",
        processing_times=times,
        due_times=np.full((2, 8), 5.0),
        weights=np.ones((2, 8)),
        reference_annealing=np.array([10.0, 20.0]),
    )
    return tmp_path / "data"


def test_stages_and_seeds_are_set_side_by_side(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2):
        for name in ("warm_start", "best", "last"):
            save(tmp_path / f"run{seed}" / f"{name}.safetensors", seed)
    save(tmp_path / "other.safetensors", 3)
    runs = [str(tmp_path / name) for name in ("run1", "run2", "other.safetensors")]
    seeds.main([*runs, "--data", str(data), "--results", str(tmp_path / "out")])
    rows: list[dict[str, Any]] = json.loads((tmp_path / "out" / "hitzges.json").read_text())
    found = [(row["stage"], row["contender"], row["seed"]) for row in rows]
    assert found == [
        *(("warm start", "learned", 1), ("whole recipe", "learned", 1)),
        *(("whole recipe", "learned@64", 1), ("warm start", "learned", 2)),
        *(("whole recipe", "learned", 2), ("whole recipe", "learned@64", 2)),
        *(("whole recipe", "learned", 3), ("whole recipe", "learned@64", 3)),
    ]
    for row in rows:
        assert row["ratio"] == pytest.approx((row["cost"][0] / 10 + row["cost"][1] / 20) / 2)
    whole = [row["ratio"] for row in rows if found[rows.index(row)][:2] == found[1][:2]]
    line = next(
        one.split()
        for one in capsys.readouterr().out.splitlines()
        if one.split()[1:4] == ["whole", "recipe", "learned"]
    )
    assert float(line[4]) == pytest.approx(np.mean(whole), abs=1e-4)
    assert float(line[5]) == pytest.approx(np.std(whole, ddof=1), abs=1e-4)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        ({"a": (1, "hitzges"), "b": (1, "hitzges")}, "have the same training seed"),
        ({"a": (1, "hitzges"), "b": (2, "rcmax")}, "these are of hitzges and rcmax"),
        ({"a": None}, "is no finished run; go on with it by --resume"),
        ({"a": (1, "hitzges", "best")}, "is no finished run"),
        ({"a": (1, "rcmax")}, "there is no set of rcmax below"),
    ],
)
def test_mistakes_are_one_sentence(
    make: dict[str, Any], sentence: str, data: Path, tmp_path: Path, capsys: Any
) -> None:
    for name, what in make.items():
        (tmp_path / name).mkdir()
        if what is not None:
            save(tmp_path / name / "best.safetensors", *what[:2])
            if len(what) == 2:
                save(tmp_path / name / "last.safetensors", *what)
    with pytest.raises(SystemExit) as caught:
        seeds.main([*(str(tmp_path / name) for name in make), "--data", str(data)])
    assert caught.value.code == 2
    assert sentence in capsys.readouterr().err
