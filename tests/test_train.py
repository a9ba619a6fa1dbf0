"""The command: a run from its options to its table, and one sentence for every mistake."""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hetsched.agents.metrics import read_rows
from hetsched.agents.recipe import recipe
from hetsched.train import Options, _with_values, default_folder, main, override, resolve

TRAIN = Path(__file__).resolve().parents[1] / "train.py"
SMALL = (
    *("--scenario", "hitzges", "--jobs", "4", "--machines", "2", "--hidden", "8", "--layers", "1"),
    *("--n-envs", "4", "--repeats", "2", "--n-steps", "8", "--batch-size", "16"),
    *("--eval-freq", "1000", "--eval-episodes", "4", "--num-threads", "1"),
)
TINY = (*SMALL, "--timesteps", "96", "--warm-start", "256")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch):
    """One thread, no Weights & Biases but where a test wants it, and torch as it was afterwards."""
    import torch

    threads = torch.get_num_threads()
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_RUN_ID", "WANDB_SWEEP_ID"):
        monkeypatch.delenv(name, raising=False)
    yield
    torch.set_num_threads(threads)


def start(*argv: str, **options) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(TRAIN), *argv]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, env=environment, **options
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """(folder, stdout, stderr) of a run from the shell; the folder has a space in its name."""
    folder = tmp_path_factory.mktemp("runs") / "my run"
    child = start(*TINY, "--out", str(folder))
    out, err = child.communicate(timeout=180)
    assert child.returncode == 0, err
    return folder, out, err


# ---- a run -------------------------------------------------------------------------------------


def test_a_run_ends_with_a_table_and_what_to_do_next(finished: tuple[Path, str, str]) -> None:
    folder, out, err = finished
    lines = out.splitlines()
    assert lines[0] == ("hitzges: 200 fresh instances of 4 x 2 (jobs x machines), seed 2000003")
    names = {line.split()[0] for line in lines if line}
    assert {"learned", "atc", "allox", "min-min", "wspt"} <= names
    best = folder / "best.safetensors"
    assert f"best checkpoint: {best}" in lines
    assert shlex.split(lines[-1].partition(":")[2]) == [
        *("python", "evaluate.py", "--scenario", "hitzges", "--jobs", "4", "--machines", "2"),
        *("--policy", str(best), "--against", "all"),
    ]
    assert "Traceback" not in err
    assert "Warning" not in err


def test_the_folder_holds_the_resolved_options(finished: tuple[Path, str, str]) -> None:
    folder, _, _ = finished
    config = json.loads((folder / "config.json").read_text())
    assert (config["scenario"], config["sizes"]) == ("hitzges", [[4, 2]])
    assert (config["timesteps"], config["groups"], config["repeats"]) == (96, 2, 2)
    assert config["warm_start"]["decisions"] == 256
    assert config["ppo"]["learning_rate"] == recipe("hitzges").ppo.learning_rate
    steps = [int(row["step"]) for row in read_rows(folder / "metrics.csv")]
    assert steps == [0, 256, 288, 320, 352]


def test_a_finished_run_that_is_resumed_prints_its_table_again(
    finished: tuple[Path, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out, _ = finished
    before = (folder / "last.safetensors").stat().st_mtime_ns
    main(["--resume", "--out", str(folder)])
    again = capsys.readouterr().out

    def costs(text: str) -> list[list[str]]:  # the last column is time
        return [line.split()[:-1] for line in text.splitlines()]

    assert costs(again) == costs(out)
    assert (folder / "last.safetensors").stat().st_mtime_ns == before


def test_a_used_folder_is_refused(
    finished: tuple[Path, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _, _ = finished
    err = mistake([*TINY, "--out", str(folder)], capsys)
    assert "already holds a run; add --resume to go on with it or choose another --out" in err


def test_the_same_options_may_be_given_when_a_run_is_resumed(finished) -> None:
    folder, _, _ = finished
    options = Options(
        out=folder, resume=True, scenario="hitzges", jobs=4, machines=2, timesteps=96, n_envs=4,
        repeats=2, track=True, wandb_group="g", num_threads=2, seed=0,
    )  # fmt: skip
    assert resolve(options)[0].timesteps == 96


@pytest.mark.parametrize(
    "option",
    [
        *(("--timesteps", "97"), ("--seed", "1"), ("--init", "x"), ("--config", "x")),
        *(("--scenario", "gpu-cluster"), ("--n-envs", "8"), ("--hidden", "16")),
    ],
)
def test_other_options_are_refused_when_a_run_is_resumed(
    finished: tuple[Path, str, str], option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    err = mistake(["--resume", "--out", str(finished[0]), *option], capsys)
    assert f"{option[0]} cannot change when a run is resumed; leave it out" in err


def test_a_run_stopped_by_ctrl_c_can_be_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my run"
    child = start(*SMALL, "--timesteps", "320", "--warm-start", "0", "--out", str(folder))
    deadline = time.monotonic() + 120
    while _rows(folder) < 2:
        assert time.monotonic() < deadline
        assert child.poll() is None, child.communicate()
        time.sleep(0.005)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    lines = err.splitlines()
    assert lines[-1] == "train.py: error: stopped by Ctrl-C"
    said = next(line for line in lines if line.startswith("Go on with: "))
    command = shlex.split(said.partition(":")[2])
    assert command == ["python", "train.py", "--resume", "--out", str(folder)]
    assert "Traceback" not in err
    main(command[2:])
    assert "best checkpoint" in capsys.readouterr().out
    steps = [int(row["step"]) for row in read_rows(folder / "metrics.csv")]
    assert steps == list(range(0, 321, 32))


def _rows(folder: Path) -> int:
    path = folder / "metrics.csv"
    return len(read_rows(path)) if path.exists() else 0


def test_a_run_starts_from_a_checkpoint_and_from_a_configuration(
    finished: tuple[Path, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from hetsched.agents.checkpoint import load_checkpoint

    folder, _, _ = finished
    best = str(folder / "best.safetensors")
    main(["--config", str(folder / "config.json"), "--init", best, "--out", str(tmp_path / "b"),
          "--timesteps", "32", "--warm-start", "0", "--progress=false"])  # fmt: skip
    metadata = load_checkpoint(tmp_path / "b" / "last.safetensors").metadata
    assert metadata["initial"] == best
    assert metadata["training"]["timesteps"] == 32
    first = read_rows(tmp_path / "b" / "metrics.csv")[0]
    wanted = load_checkpoint(best).metadata["validation"]["validation/cost"]
    assert float(first["validation/cost"]) == pytest.approx(wanted)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("installed", [True, False])
def test_tracking_without_a_key_or_without_wandb_does_not_disturb(
    installed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if installed:
        pytest.importorskip("wandb")
        monkeypatch.setenv("WANDB_MODE", "offline")
    else:
        monkeypatch.setitem(sys.modules, "wandb", None)
    main([*SMALL, "--timesteps", "32", "--warm-start", "0", "--track", "--out", str(tmp_path)])
    captured = capsys.readouterr()
    assert "best checkpoint" in captured.out
    said = [line for line in captured.err.splitlines() if line]
    assert len(said) == 1
    assert ("wandb sync" if installed else "pip install wandb") in said[0]
    assert (tmp_path / "wandb").exists() == installed


# ---- mistakes ----------------------------------------------------------------------------------


def mistake(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is said about a mistake: one line, with exit status 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main(argv)
    err = capsys.readouterr().err
    assert caught.value.code == 2, err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1, err
    return err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--scenario", "hitzgess"), "did you mean 'hitzges'"),
        (("--timesteps", "-1"), "timesteps must be 0 or more, got -1"),
        (("--timesteps", "0", "--warm-start", "0"), "there is nothing to do"),
        (("--warm-start", "-5"), "decisions must be 0 or more, got -5"),
        (("--teacher", "atd"), "no rule is called 'atd'; did you mean 'atc'"),
        (("--scenario", "gpu-cluster", "--teacher", "annealing"), "name a rule as the teacher"),
        (("--seed", "-1"), "seed must be 0 or more"),
        (("--jobs", "4"), "give --jobs and --machines together, or neither"),
        (("--jobs", "0", "--machines", "2"), "must be at least 1 x 1, got 0 x 2"),
        (("--n-envs", "10", "--repeats", "4"), "--n-envs (10) must be a multiple of --repeats (4)"),
        (("--n-envs", "0"), "--n-envs (0) must be a multiple"),
        (("--n-steps", "0"), "n_steps must be at least 1"),
        (("--batch-size", "1"), "batch_size must be at least 2"),
        (("--learning-rate", "-1"), "learning_rate must be positive"),
        (("--hidden", "30"), "hidden must be a multiple of heads"),
        (("--eval-episodes", "0"), "eval_count must be at least 1"),
        (("--device", "abacus"), "--device abacus: use cpu or cuda"),
        (("--device", "cuda:63"), "--device cuda:63: torch sees no such GPU here"),
        (("--num-threads", "0"), "--num-threads is 0; give 1 or more"),
        (("--config", "none.json"), "there is no run configuration at none.json"),
        (("--init", "none-such"), "neither a file nor a shipped policy"),
        (("--init", "x.safetensors"), "there is no checkpoint at x.safetensors"),
        (("--init", str(TRAIN)), "is no safetensors file"),
        (("--resume",), "there is no run configuration at"),
        (("--resume", "True", "--timesteps", "5"), "there is no run configuration at"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    options: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "run"
    defaults = () if "--scenario" in options else ("--scenario", "hitzges")
    assert sentence in mistake([*defaults, "--out", str(folder), *options], capsys)
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert "cannot use" in mistake([*TINY, "--out", str(file / "run")], capsys)
    assert "cannot use" in mistake([*TINY, "--out", str(file)], capsys)
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    if not os.access(locked, os.W_OK):  # root may write anywhere
        assert "cannot use" in mistake([*TINY, "--out", str(locked / "run")], capsys)


def test_a_network_of_another_size_than_its_weights_is_refused(
    finished: tuple[Path, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = str(finished[0] / "best.safetensors")
    err = mistake(["--init", best, "--hidden", "64", "--out", str(tmp_path / "run")], capsys)
    assert "--hidden 64 does not fit --init, whose network has 8" in err


# ---- options -----------------------------------------------------------------------------------


def test_help_is_instant_and_knows_the_names_of_rl_zoo() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = start("--help")
    out, _ = child.communicate(timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert child.returncode == 0
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < 1.0  # of the processor, which a busy machine does not stretch as much
    for name in (
        *("--seed", "-n", "--n-timesteps", "--n-envs", "--device", "--eval-freq"),
        *("--eval-episodes", "-f", "--log-folder", "--track", "--wandb-project-name"),
        *("--wandb-entity", "--wandb-group", "--wandb-tags", "--progress", "-P"),
        *("--num-threads", "-i", "--trained-agent"),
    ):
        assert f"{name} " in out, name


def test_help_needs_nothing_heavy() -> None:
    code = (
        "import sys, hetsched.train;"
        "heavy = {'torch', 'numpy', 'matplotlib', 'wandb'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (["--resume"], ["--resume", "True"]),
        (["--resume", "True"], ["--resume", "True"]),
        (["--track", "--out", "x"], ["--track", "True", "--out", "x"]),
        (["--track=true", "-P", "false"], ["--track=True", "-P", "False"]),
        (["--progress=False"], ["--progress=False"]),
        (["--out", "true"], ["--out", "true"]),
        (["--wandb-tags", "a", "b"], ["--wandb-tags", "a", "b"]),
        ([], []),
    ],
)
def test_switches_stand_alone_or_have_a_value(argv: list[str], wanted: list[str]) -> None:
    assert _with_values(argv) == wanted


def test_a_sweep_may_give_every_option_as_key_and_value(capsys: pytest.CaptureFixture[str]) -> None:
    """As ``wandb agent`` calls it, with underscores; the last one is wrong, so nothing is run."""
    argv = ["--scenario=hitzges", "--learning_rate=0.001", "--ent_coef=0.01", "--n_steps=16",
            "--batch_size=64", "--warm_start=0", "--track=true", "--wandb_tags", "a", "b",
            "--progress=False", "--n_epochs=-3"]  # fmt: skip
    assert "n_epochs must be at least 1, got -3" in mistake(argv, capsys)


def test_parallel_rollouts_stay_as_many_when_the_repeats_change() -> None:
    from hetsched.agents.recipe import TrainConfig

    config = TrainConfig("hitzges", groups=32, repeats=8)
    for options, groups, repeats in (
        (Options(repeats=16), 16, 16),
        (Options(n_envs=64), 8, 8),
        (Options(n_envs=64, repeats=2), 32, 2),
        (Options(), 32, 8),
    ):
        found = override(config, options)
        assert (found.groups, found.repeats) == (groups, repeats)


def test_every_run_of_a_sweep_has_its_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SWEEP_ID", "s1")
    monkeypatch.setenv("WANDB_RUN_ID", "r1")
    assert default_folder("hitzges") == Path("runs/hitzges-r1")


def test_the_folder_is_named_after_the_scenario() -> None:
    assert default_folder("hitzges") == Path("runs/hitzges")
    assert default_folder("own:jobs=/a/b.csv,speeds=c") == Path("runs/own-jobs=-a-b.csv,speeds=c")
