"""Training: what a run leaves behind, and that being killed changes nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from hetsched.agents.checkpoint import load_checkpoint
from hetsched.agents.configs import ImitationConfig, PPOConfig
from hetsched.agents.metrics import read_rows
from hetsched.agents.run_folder import RunFolder
from hetsched.agents.temperature import TRIED
from hetsched.agents.training import Trainer
from hetsched.envs.scenarios import get_scenario
from hetsched.gnn.network import SchedulingNetwork
from hetsched.tests.agents.tiny_runs import (
    Stop,
    Stopper,
    rows_without_clock,
    run_tiny,
    tiny,
    weights,
)

FILES = {
    *("best.safetensors", "config.json", "last.safetensors"),
    *("learning_curve.png", "metrics.csv", "resume.pt"),
}
BETWEEN = "warm_start.safetensors"  # where there are two stages
WARM_ROUNDS, ROUNDS = 6, 12  # of a tiny run


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Sums of floats depend on how many threads share them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def quick_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than the tiny runs; the undisturbed run and killed ones do draw."""

    def draw(metrics: Path, picture: Path, panels, title: str) -> None:
        picture.write_bytes(b"")

    monkeypatch.setattr("hetsched.agents.tracking.draw_learning_curve", draw)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nobody disturbed; not to be changed."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    run_tiny(folder)
    return folder


def same_run(folder: Path, whole: Path) -> None:
    """The same weights and metrics, and no step twice."""
    assert {one.name for one in folder.iterdir()} == {one.name for one in whole.iterdir()}
    for one in whole.glob("*.safetensors"):
        assert torch.equal(weights(folder, one.stem), weights(whole, one.stem))
    assert rows_without_clock(folder) == rows_without_clock(whole)
    steps = [int(row["step"]) for row in rows_without_clock(folder)]
    assert steps == sorted(set(steps))


# ---- what a run leaves behind ------------------------------------------------------------------


def test_a_run_leaves_its_files_and_nothing_else(whole: Path) -> None:
    assert {one.name for one in whole.iterdir()} == FILES | {BETWEEN}
    umask = os.umask(0)
    os.umask(umask)
    for one in whole.iterdir():
        assert stat.S_IMODE(one.stat().st_mode) == 0o666 & ~umask, one.name
    assert (whole / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((whole / "config.json").read_text()) == tiny().to_dict()


def test_every_round_is_one_row_of_metrics(whole: Path) -> None:
    rows = read_rows(whole / "metrics.csv")
    steps = [int(row["step"]) for row in rows]
    assert steps == sorted(set(steps))
    assert len([row for row in rows if row["warm_start/loss"]]) == WARM_ROUNDS
    assert len([row for row in rows if row["ppo/entropy"]]) == ROUNDS - WARM_ROUNDS
    # before training, every eval_freq decisions, and at the end of each stage
    assert [int(row["step"]) for row in rows if row["validation/cost"]] == [0, 80, 168, 264, 312]


def test_the_best_checkpoint_is_the_best_by_validation(whole: Path) -> None:
    rows = [row for row in read_rows(whole / "metrics.csv") if row["validation/cost"]]
    ratios = [float(row["validation/ratio_to_rule"]) for row in rows]
    metadata = load_checkpoint(whole / "best.safetensors").metadata
    assert metadata["validation"]["validation/ratio_to_rule"] == min(ratios)
    assert metadata["decisions"] == int(rows[ratios.index(min(ratios))]["step"])
    last = load_checkpoint(whole / "last.safetensors").metadata
    assert last["validation"]["validation/ratio_to_rule"] == ratios[-1]


def test_a_checkpoint_says_where_it_comes_from(whole: Path) -> None:
    metadata = load_checkpoint(whole / "last.safetensors").metadata
    assert metadata["scenario"] == "hitzges"
    assert metadata["objective"] == str(get_scenario("hitzges").objective)
    assert metadata["deciding"] == "plan"
    assert metadata["training"] == tiny().to_dict()
    assert metadata["decisions"] == 312
    assert metadata["seconds"] > 0
    assert "initial" not in metadata
    assert "temperature" not in metadata


def test_the_policy_between_the_stages_is_kept(tmp_path: Path, whole: Path) -> None:
    warm = load_checkpoint(whole / "warm_start.safetensors").metadata
    assert warm["decisions"] == 168
    run_tiny(tmp_path, tiny(timesteps=0))
    assert torch.equal(weights(tmp_path), weights(whole, "warm_start"))
    assert not (tmp_path / BETWEEN).exists()


def test_the_best_checkpoint_says_at_which_temperature_its_samples_are_best(whole: Path) -> None:
    metadata = load_checkpoint(whole / "best.safetensors").metadata
    assert metadata["temperature"] in TRIED
    assert metadata["training"] == tiny().to_dict()  # the rest stays


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(
    whole: Path, tmp_path: Path
) -> None:
    run_tiny(tmp_path / "same")
    same_run(tmp_path / "same", whole)
    run_tiny(tmp_path / "other", tiny(seed=1, timesteps=0))
    assert not torch.equal(weights(tmp_path / "other", "best"), weights(whole, "best"))


@pytest.mark.parametrize(
    ("values", "steps"),
    [
        ({"timesteps": 0}, 168),
        ({"warm_start": ImitationConfig()}, 144),
    ],
    ids=["warm start alone", "PPO alone"],
)
def test_either_stage_can_do_without_the_other(tmp_path: Path, values, steps: int) -> None:
    trainer = run_tiny(tmp_path, tiny(**values))
    assert trainer.steps == steps
    assert {one.name for one in tmp_path.iterdir()} == FILES
    moved = weights(tmp_path) - torch.cat(
        [value.flatten() for value in _untrained().state_dict().values()]
    )
    assert float(moved.abs().max()) > 1e-4


def _untrained() -> SchedulingNetwork:
    torch.manual_seed(0)
    return SchedulingNetwork(tiny().network)


def test_a_dispatching_scenario_is_trained_with_a_rule_as_the_teacher(tmp_path: Path) -> None:
    warm = dataclasses.replace(tiny().warm_start, teacher="ect-wait")
    trainer = run_tiny(tmp_path, tiny(scenario="gpu-cluster", warm_start=warm))
    steps = [int(row["step"]) for row in read_rows(tmp_path / "metrics.csv")]
    assert steps == sorted(set(steps))
    assert trainer.best < float("inf")
    metadata = load_checkpoint(tmp_path / "best.safetensors").metadata
    assert "temperature" not in metadata  # samples would know the future


def test_steps_do_not_run_backwards_where_the_warm_start_overshoots(tmp_path: Path) -> None:
    warm = dataclasses.replace(tiny().warm_start, decisions=25)  # the second round ends at 56
    run_tiny(tmp_path, tiny(warm_start=warm, timesteps=48, eval_freq=1))
    steps = [int(row["step"]) for row in read_rows(tmp_path / "metrics.csv")]
    assert steps == sorted(set(steps))
    assert steps[:3] == [0, 24, 56]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"scenario": "hitzgess"}, "did you mean 'hitzges'"),
        ({"warm_start": ImitationConfig(decisions=9, teacher="atd")}, "no rule is called 'atd'"),
        ({"scenario": "gpu-cluster"}, "annealing needs all in advance"),
        (
            {
                "scenario": "gpu-cluster",
                "warm_start": ImitationConfig(),
                "ppo": PPOConfig(outlook_moves=9),
            },
            "leave outlook_moves at 0",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    tmp_path: Path, values, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        Trainer(tiny(**values), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ---- surviving a kill --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rounds", "save_seconds"),
    [
        *((1, 0.0), (WARM_ROUNDS, 0.0), (WARM_ROUNDS + 1, 0.0), (ROUNDS, 0.0)),
        *((3, 1e9), (10, 1e9)),  # saved at the beginning and between the stages only
    ],
)
def test_a_stopped_run_ends_as_one_that_was_not(
    tmp_path: Path, whole: Path, rounds: int, save_seconds: float
) -> None:
    with pytest.raises(Stop):
        run_tiny(tmp_path, progress=Stopper(rounds), save_seconds=save_seconds)
    run_tiny(tmp_path, resume=True)
    same_run(tmp_path, whole)


def test_a_stopped_run_looks_ahead_as_one_that_was_not(tmp_path: Path) -> None:
    ppo = dataclasses.replace(tiny().ppo, outlook_moves=10)
    config = tiny(ppo=ppo, warm_start=ImitationConfig())
    run_tiny(tmp_path / "whole", config)
    with pytest.raises(Stop):
        run_tiny(tmp_path / "stopped", config, progress=Stopper(3), save_seconds=0.0)
    run_tiny(tmp_path / "stopped", config, resume=True)
    same_run(tmp_path / "stopped", tmp_path / "whole")


def test_a_run_may_be_stopped_again_and_again(tmp_path: Path, whole: Path) -> None:
    with pytest.raises(Stop):
        run_tiny(tmp_path, progress=Stopper(4), save_seconds=0.0)
    for rounds in (4, 2):
        with pytest.raises(Stop):
            run_tiny(tmp_path, progress=Stopper(rounds), save_seconds=0.0, resume=True)
    run_tiny(tmp_path, resume=True)
    same_run(tmp_path, whole)


@pytest.mark.slow
def test_a_killed_run_ends_as_one_that_was_not(tmp_path: Path, whole: Path) -> None:
    """SIGKILL at random moments, first in the warm start, then in PPO."""
    for word, after in (("new", 0), ("resume", 168)):
        command = (sys.executable, "-m", "hetsched.tests.agents.tiny_runs", str(tmp_path), word)
        child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 600
        while _last_step(tmp_path) <= after:
            assert time.monotonic() < deadline
            assert child.poll() is None, child.communicate()[1]
            time.sleep(0.005)
        time.sleep(random.uniform(0.0, 0.3))
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        child.communicate()
        assert after < _last_step(tmp_path) < after + 144
    run_tiny(tmp_path, resume=True)
    same_run(tmp_path, whole)


def _last_step(folder: Path) -> int:
    path = folder / "metrics.csv"
    rows = read_rows(path) if path.exists() else []
    return int(rows[-1]["step"]) if rows else -1


def test_a_run_killed_before_its_first_round_can_be_resumed(tmp_path: Path, whole: Path) -> None:
    trainer = Trainer(tiny(), tmp_path)
    trainer._validate = lambda: trainer.tracker.log(0, {"x": 1.0})  # type: ignore[method-assign]
    trainer._warm_start = lambda: (_ for _ in ()).throw(Stop)  # type: ignore[method-assign]
    with pytest.raises(Stop):
        trainer.run()
    run_tiny(tmp_path, resume=True)
    same_run(tmp_path, whole)


def test_initial_weights_survive_a_kill_before_the_first_save(tmp_path: Path, whole: Path) -> None:
    torch.manual_seed(5)
    network = SchedulingNetwork(tiny().network)
    start = {name: value.clone() for name, value in network.state_dict().items()}

    def initial() -> SchedulingNetwork:
        fresh = SchedulingNetwork(tiny().network)
        fresh.load_state_dict(start)
        return fresh

    run_tiny(tmp_path / "whole", initial=initial(), origin="somewhere")
    with pytest.raises(Stop):
        run_tiny(
            tmp_path / "killed",
            initial=initial(),
            origin="somewhere",
            progress=Stopper(1),
            save_seconds=1e9,
        )
    run_tiny(tmp_path / "killed", resume=True)
    same_run(tmp_path / "killed", tmp_path / "whole")
    for folder in ("whole", "killed"):
        metadata = load_checkpoint(tmp_path / folder / "last.safetensors").metadata
        assert metadata["initial"] == "somewhere"
    assert not torch.equal(weights(whole), weights(tmp_path / "whole"))


def test_a_finished_run_does_nothing_more(tmp_path: Path) -> None:
    run_tiny(tmp_path, tiny(timesteps=24))
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    trainer = Trainer(tiny(timesteps=24), tmp_path, resume=True)
    assert trainer.run() == tmp_path / "best.safetensors"
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before


def test_the_best_on_disk_is_the_best_that_counts(tmp_path: Path) -> None:
    """It may be newer than the last save, or gone, or of another run."""
    with pytest.raises(Stop):
        run_tiny(tmp_path, tiny(eval_freq=1), progress=Stopper(4), save_seconds=1e9)
    best = tmp_path / "best.safetensors"
    ratio = load_checkpoint(best).metadata["validation"]["validation/ratio_to_rule"]
    assert Trainer(tiny(eval_freq=1), tmp_path, resume=True).best == ratio
    best.write_bytes(best.read_bytes()[:100])
    assert Trainer(tiny(eval_freq=1), tmp_path, resume=True).best == float("inf")
    best.unlink()
    assert Trainer(tiny(eval_freq=1), tmp_path, resume=True).best == float("inf")
    RunFolder(tmp_path, tiny(seed=9)).write_checkpoint(
        "best", _untrained(), {"validation": {"validation/ratio_to_rule": 0.1}}
    )
    assert Trainer(tiny(eval_freq=1), tmp_path, resume=True).best == float("inf")


def test_a_finished_run_without_its_best_gets_one(tmp_path: Path) -> None:
    run_tiny(tmp_path, tiny(timesteps=24))
    (tmp_path / "best.safetensors").unlink()
    run_tiny(tmp_path, tiny(timesteps=24), resume=True)
    assert torch.equal(weights(tmp_path, "best"), weights(tmp_path, "last"))
    assert "temperature" in load_checkpoint(tmp_path / "best.safetensors").metadata
