"""Tracking: with a key, without one, without wandb, with a broken one; training always goes on."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hetsched.agents.metrics import read_curves
from hetsched.agents.tracking import RUN_FILE, Tracker, TrackingOptions, choose_mode, has_key

ON = TrackingOptions(track=True, project="p", entity="e", tags=("a", "b"))


class FakeRun:
    """Remembers what it is told; raises where it should."""

    def __init__(self, place: Path, init: dict[str, Any], broken: bool) -> None:
        self.id, self.group, self.dir = init["id"] or "new1", init["group"], str(place / "files")
        self.summary: dict[str, Any] = {}
        self.logged: list[dict[str, Any]] = []
        self.artifacts: list[tuple[Any, list[str]]] = []
        self.exit_code: int | None = None
        self.axes: list[tuple[str, str | None]] = []
        self.broken = broken

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.axes.append((name, step_metric))

    def log(self, values: dict[str, Any]) -> None:
        if self.broken:
            raise RuntimeError("the disk is full.\nmore")
        self.logged.append(values)

    def log_artifact(self, artifact: Any, aliases: list[str]) -> None:
        self.artifacts.append((artifact, aliases))

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


class FakeArtifact:
    def __init__(self, name: str, type: str, metadata: dict[str, Any]) -> None:
        self.name, self.type, self.metadata = name, type, metadata
        self.files: list[str] = []

    def add_file(self, path: str) -> None:
        self.files.append(path)


class FakeWandb:
    """What Tracker uses of wandb; ``fails`` lists the modes in which ``init`` raises."""

    Artifact = FakeArtifact
    Settings = Table = SimpleNamespace

    @staticmethod
    def Image(path: str) -> str:
        return f"picture {path}"

    def __init__(self, place: Path, fails: tuple[str, ...] = (), broken: bool = False) -> None:
        self.place, self.fails, self.broken = place, fails, broken
        self.inits: list[dict[str, Any]] = []
        self.runs: list[FakeRun] = []

    def init(self, **options: Any) -> FakeRun:
        self.inits.append(options)
        if options["mode"] in self.fails:
            raise OSError("no route to host")
        self.runs.append(FakeRun(self.place, options, self.broken))
        return self.runs[-1]


Install = Callable[..., FakeWandb]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a fake wandb in place; with a key unless told otherwise."""

    def put(key: bool = True, **options: Any) -> FakeWandb:
        fake = FakeWandb(tmp_path, **options)
        monkeypatch.setitem(sys.modules, "wandb", fake)
        for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "NETRC"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        if key:
            monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
        return fake

    return put


def test_without_tracking_there_are_files_and_no_wandb(tmp_path: Path, install: Install) -> None:
    fake = install()
    with Tracker(tmp_path, {"seed": 1}) as tracker:
        tracker.log(10, {"loss": 1.0})
        tracker.draw({"loss": ("loss",)})
        tracker.table("final", ["policy"], [["atc"]])
        tracker.checkpoint(tmp_path / "x", "policy", ["best"])
        assert not tracker.tracking
    assert fake.inits == []
    assert read_curves(tmp_path / "metrics.csv") == {"loss": ([10], [1.0])}
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_with_a_key_everything_reaches_the_run(tmp_path: Path, install: Install) -> None:
    fake, said = install(), list[str]()
    with Tracker(tmp_path, {"seed": 1}, ON, say=said.append) as tracker:
        tracker.log(10, {"loss": 1.0})
        tracker.table("final", ["policy", "cost"], [("atc", 2.0)])
        tracker.picture("gantt", tmp_path / "gantt.png")
        tracker.summary({"ratio": 1.02})
        tracker.checkpoint(tmp_path / "x", "gpu-cluster:noise=0.3", ["best", "last"], {"cost": 2})
    (init,), (run,) = fake.inits, fake.runs
    assert (init["mode"], init["project"], init["entity"], init["tags"]) == (
        *("online", "p", "e"),
        ["a", "b"],
    )
    assert init["config"] == {"seed": 1}
    assert init["group"] == tmp_path.name
    assert ("*", "step") in run.axes
    assert run.logged[0] == {"loss": 1.0, "step": 10}
    assert run.logged[1]["final"].data == [["atc", 2.0]]
    assert run.summary == {"ratio": 1.02}
    (artifact, aliases) = run.artifacts[0]
    assert artifact.name == "gpu-cluster-noise-0.3"
    assert artifact.files == [str(tmp_path / "x")]
    assert aliases == ["best", "last"]
    assert run.exit_code == 0
    assert said == []


def test_a_run_that_raised_is_recorded_as_failed(tmp_path: Path, install: Install) -> None:
    fake = install()
    with pytest.raises(KeyboardInterrupt), Tracker(tmp_path, {}, ON):
        raise KeyboardInterrupt
    assert fake.runs[0].exit_code == 1


def test_without_a_key_the_run_is_offline_and_one_sentence_says_how_to_sync(
    tmp_path: Path, install: Install
) -> None:
    fake, said = install(key=False), list[str]()
    Tracker(tmp_path, {}, ON, say=said.append).close()
    assert fake.inits[0]["mode"] == "offline"
    (sentence,) = said
    assert sentence.startswith("No W&B key is configured")
    assert f"wandb sync {tmp_path}" in sentence


def test_an_unreachable_server_means_offline(tmp_path: Path, install: Install) -> None:
    fake, said = install(fails=("online",)), list[str]()
    tracker = Tracker(tmp_path, {}, ON, say=said.append)
    assert tracker.tracking
    assert [one["mode"] for one in fake.inits] == ["online", "offline"]
    (sentence,) = said
    assert "no route to host" in sentence
    assert "wandb sync" in sentence


def test_a_wandb_that_never_starts_is_done_without(tmp_path: Path, install: Install) -> None:
    install(fails=("online", "offline"))
    said: list[str] = []
    with Tracker(tmp_path, {}, ON, say=said.append) as tracker:
        tracker.log(1, {"loss": 1.0})
        assert not tracker.tracking
    (sentence,) = said
    assert "goes on without it" in sentence


def test_a_wandb_that_breaks_later_warns_once_per_kind(tmp_path: Path, install: Install) -> None:
    install(broken=True)
    said: list[str] = []
    with Tracker(tmp_path, {}, ON, say=said.append) as tracker:
        for step in range(3):
            tracker.log(step, {"loss": 1.0})
    assert said == ["W&B could not record metrics (the disk is full); the run goes on without it."]
    assert read_curves(tmp_path / "metrics.csv")["loss"][0] == [0, 1, 2]


def test_wandb_missing_is_one_warning_and_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    said: list[str] = []
    with Tracker(tmp_path, {}, ON, say=said.append) as tracker:
        tracker.log(1, {"loss": 1.0})
        tracker.checkpoint(tmp_path / "x", "policy", ["last"])
    (sentence,) = said
    assert "pip install wandb" in sentence


def test_an_online_run_continues_under_its_id(tmp_path: Path, install: Install) -> None:
    fake = install()
    Tracker(tmp_path, {}, ON).close()
    assert json.loads((tmp_path / RUN_FILE).read_text())["id"] == "new1"
    Tracker(tmp_path, {}, ON, resume_step=5).close()
    assert (fake.inits[1]["id"], fake.inits[1]["resume"]) == ("new1", "allow")


def test_an_offline_run_continues_as_a_new_one_in_its_group(
    tmp_path: Path, install: Install
) -> None:
    fake = install(key=False)
    Tracker(tmp_path, {}, TrackingOptions(track=True, group="g"), say=list[str]().append).close()
    Tracker(tmp_path, {}, ON, resume_step=5, say=list[str]().append).close()
    assert (fake.inits[1]["id"], fake.inits[1]["group"]) == (None, "g")


def test_the_mode_follows_the_environment_then_the_key(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert choose_mode(home) == "offline"
    assert choose_mode({**home, "WANDB_API_KEY": "x"}) == "online"
    assert choose_mode({**home, "WANDB_API_KEY": "x", "WANDB_MODE": "disabled"}) == "disabled"


def test_a_key_in_netrc_counts_for_its_own_host_only(tmp_path: Path) -> None:
    file = tmp_path / ".netrc"
    file.write_text("machine api.wandb.ai login user password secret\n")
    file.chmod(0o600)
    assert has_key({"HOME": str(tmp_path)})
    assert not has_key({"HOME": str(tmp_path), "WANDB_BASE_URL": "https://wandb.example.org"})
    assert not has_key({"HOME": str(tmp_path), "NETRC": str(tmp_path / "none")})


def test_the_real_wandb_records_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    policy = run_folder / "best.safetensors"
    policy.write_bytes(b"weights")
    said: list[str] = []
    with Tracker(run_folder, {"seed": 1}, TrackingOptions(track=True), say=said.append) as tracker:
        assert tracker.tracking
        tracker.log(10, {"loss": 1.0})
        tracker.table("final", ["policy", "cost"], [("atc", 2.0)])
        tracker.checkpoint(policy, "hitzges", ["best", "last"])
        tracker.summary({"ratio": 1.0})
    (sentence,) = said
    place = Path(sentence.rsplit(maxsplit=1)[1])
    assert list(place.glob("run-*.wandb"))
    assert place.is_relative_to(run_folder)
