"""Checkpoints: what is written comes back, and every unusable file has its own sentence."""

from __future__ import annotations

import json
import os
import pickle
import stat
import struct
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save, save_file

from hetsched.agents.checkpoint import (
    VERSION,
    CheckpointError,
    feature_names,
    load_checkpoint,
    load_policy,
    resolve_policy,
    save_checkpoint,
)
from hetsched.envs.problem import Problem
from hetsched.envs.scenarios import get_scenario, sample_instances
from hetsched.envs.simulator import State
from hetsched.gnn.config import NetworkConfig
from hetsched.gnn.network import SchedulingNetwork

if TYPE_CHECKING:
    from pathlib import Path

TINY = NetworkConfig(hidden=8, layers=1, heads=2)
METADATA = {"scenario": "hitzges", "objective": "makespan", "nested": {"ratio": 0.1}}


@pytest.fixture
def network() -> SchedulingNetwork:
    """A tiny network that prefers some actions to others."""
    torch.manual_seed(0)
    network = SchedulingNetwork(TINY)
    for value in network.parameters():
        torch.nn.init.normal_(value, std=0.3)
    return network


@pytest.fixture
def saved(tmp_path: Path, network: SchedulingNetwork) -> Path:
    path = tmp_path / "policy.safetensors"
    save_checkpoint(path, network, METADATA)
    return path


def rewrite(path: Path, change) -> None:
    """Change the description, or the weights, inside a checkpoint."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["hetsched"])
        weights = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    change(header, weights)
    save_file(weights, path, metadata={"hetsched": json.dumps(header)})


def sentence(path: Path) -> str:
    """Why the file is refused: one sentence that names it."""
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def test_weights_and_metadata_come_back(saved: Path, network: SchedulingNetwork) -> None:
    found = load_checkpoint(saved)
    assert found.metadata == METADATA
    assert found.network.config == TINY
    assert not found.network.training
    for name, value in network.state_dict().items():
        assert torch.equal(found.network.state_dict()[name], value)
    assert all(value.requires_grad for value in found.network.parameters())


def test_a_loaded_policy_gives_the_scores_of_the_saved_network(
    saved: Path, network: SchedulingNetwork
) -> None:
    from hetsched.agents.learned import LearnedPolicy

    scenario = get_scenario("hitzges")
    problem = Problem.from_instances(sample_instances(scenario, 3, 0, 4, 2))
    state = State.initial(problem, scenario.objective, scenario.deciding)
    scores = load_policy(saved, name="mine").scores(state)
    assert torch.equal(scores, LearnedPolicy(network).scores(state))
    assert len(set(scores[0, :-1].tolist())) > 1
    assert load_policy(saved, name="mine").name == "mine"


def test_loading_leaves_the_random_state_alone(saved: Path) -> None:
    before = torch.get_rng_state()
    load_checkpoint(saved)
    assert torch.equal(before, torch.get_rng_state())


def test_the_file_may_be_overwritten_while_its_network_lives(
    saved: Path, network: SchedulingNetwork
) -> None:
    found = load_checkpoint(saved)
    saved.write_bytes(bytes(saved.stat().st_size))
    for name, value in network.state_dict().items():
        assert torch.equal(found.network.state_dict()[name], value)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_the_file_mode_follows_the_umask(
    tmp_path: Path, network: SchedulingNetwork, umask: int, mode: int
) -> None:
    path, before = tmp_path / "policy.safetensors", os.umask(umask)
    try:
        save_checkpoint(path, network, METADATA)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert [one.name for one in tmp_path.iterdir()] == ["policy.safetensors"]


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "there is no checkpoint at" in sentence(tmp_path / "none.safetensors")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "there is no checkpoint at" in sentence(tmp_path)


@pytest.mark.parametrize("length", [0, 5, 20, 2000, -1, -4000])
def test_a_truncated_file_is_refused(saved: Path, length: int) -> None:
    saved.write_bytes(saved.read_bytes()[:length])
    assert "is truncated or damaged" in sentence(saved)


def test_random_bytes_are_refused(saved: Path) -> None:
    saved.write_bytes(bytes(range(17, 256)) * 10)
    assert "is no safetensors file" in sentence(saved)


@pytest.mark.parametrize("write", [pickle.dumps, "torch"])
def test_a_pickle_is_refused_and_does_not_run(saved: Path, tmp_path: Path, write) -> None:
    trap = tmp_path / "trap"

    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(trap),)

    pickle.loads(pickle.dumps(Payload()))  # the payload works where a pickle is read
    trap.rmdir()
    if write == "torch":
        torch.save({"weights": Payload()}, saved)
    else:
        saved.write_bytes(write(Payload()))
    assert "is a pickle, which could run code when read" in sentence(saved)
    assert not trap.exists()


def test_an_impossibly_long_header_is_refused(saved: Path) -> None:
    saved.write_bytes(struct.pack("<Q", 2**62) + b"{}" + saved.read_bytes()[10:])
    assert "is no safetensors file" in sentence(saved)


@pytest.mark.parametrize(
    "text", ["[" * 200_000, "x" * 5_000_000, "[]", '"text"', "{}", '{"format": 1}', "null"]
)
def test_a_description_that_makes_no_sense_is_refused(saved: Path, text: str) -> None:
    saved.write_bytes(save({"a": torch.zeros(1)}, metadata={"hetsched": text}))
    assert "the description inside" in sentence(saved)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_a_foreign_safetensors_file_is_refused(saved: Path, metadata) -> None:
    save_file({"weight": torch.zeros(3)}, saved, metadata=metadata)
    assert "holds tensors but no hetsched policy" in sentence(saved)


@pytest.mark.parametrize(("version", "age"), [(VERSION - 1, "an older"), (VERSION + 1, "a newer")])
def test_another_format_version_is_refused(saved: Path, version: int, age: str) -> None:
    def change(header, weights) -> None:
        header["version"] = version
        del header["features"]  # another version may have other entries

    rewrite(saved, change)
    assert f"has {age} format ({version}, this hetsched reads {VERSION})" in sentence(saved)


@pytest.mark.parametrize("part", ["network", "features", "metadata"])
def test_an_incomplete_description_is_refused(saved: Path, part: str) -> None:
    rewrite(saved, lambda header, weights: header.pop(part))
    assert "is incomplete" in sentence(saved)


def test_other_features_are_refused(saved: Path) -> None:
    rewrite(saved, lambda header, weights: header["features"]["jobs"].pop())
    assert "was trained on other features" in sentence(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda header, weights: header["network"].update(hidden=16),
        lambda header, weights: header["network"].update(layers=2),
        lambda header, weights: header["network"].update(hidden=2**40),
        lambda header, weights: header["network"].update(layers=10**12),
        lambda header, weights: header["network"].update(layers=0),
        lambda header, weights: header["network"].update(depth=3),
        lambda header, weights: weights.popitem(),
        lambda header, weights: weights.update(more=torch.zeros(1)),
        lambda header, weights: weights.update(
            {name: value.double() for name, value in weights.items()}
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(saved: Path, change) -> None:
    rewrite(saved, change)
    assert "do not fit the network it describes" in sentence(saved)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(saved: Path, value: float) -> None:
    rewrite(saved, lambda header, weights: weights["mode_score.weight"].fill_(value))
    assert "holds weights that are not numbers" in sentence(saved)


def test_a_checkpoint_names_the_features_of_this_hetsched(saved: Path) -> None:
    with safe_open(saved, framework="pt") as file:
        header = json.loads(file.metadata()["hetsched"])
    assert header["features"] == feature_names()


def test_shipped_policies_are_known_by_name(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetsched.agents.checkpoint.resources.files", lambda package: tmp_path)
    monkeypatch.chdir(tmp_path)
    assert resolve_policy("policy") == saved
    (tmp_path / "policy").mkdir()  # a folder of that name is no policy
    assert resolve_policy("policy") == saved
    with pytest.raises(CheckpointError, match=r"neither a file nor .* \(shipped: policy\)"):
        resolve_policy("polizy")


def test_a_path_is_taken_as_it_is(saved: Path, tmp_path: Path) -> None:
    assert resolve_policy(str(saved)) == saved
    other = tmp_path / "without-suffix"
    other.write_bytes(saved.read_bytes())
    assert resolve_policy(str(other)) == other
    assert load_policy(str(other)).name == "learned"
    missing = tmp_path / "missing.safetensors"
    assert resolve_policy(str(missing)) == missing  # loading it then says that it is not there


def test_every_shipped_policy_loads() -> None:
    from importlib import resources

    for one in resources.files("hetsched.checkpoints").iterdir():
        if one.name.endswith(".safetensors"):
            assert load_policy(one.name.removesuffix(".safetensors")).network.config
