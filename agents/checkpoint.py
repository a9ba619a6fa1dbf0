"""Checkpoints: safetensors with JSON metadata; nothing in them is ever executed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hetsched.agents.learned import LearnedPolicy
from hetsched.envs.graph import (
    GLOBAL_FEATURES,
    JOB_FEATURES,
    MACHINE_FEATURES,
    MODE_FEATURES,
)
from hetsched.gnn.config import NetworkConfig
from hetsched.gnn.network import SchedulingNetwork

FORMAT = "hetsched-policy"
VERSION = 2
LONGEST_HEADER = 1_000_000  # characters of description; ours has about three thousand


class CheckpointError(ValueError):
    """A file that is no usable checkpoint; the message says why and what to do."""


@dataclass(frozen=True)
class Checkpoint:
    """A network and what is known about it.

    Attributes:
        network: weights loaded, in evaluation mode.
        metadata: scenario, objective, training provenance, and whatever the trainer added.
    """

    network: SchedulingNetwork
    metadata: dict[str, Any]

    def policy(self, name: str = "learned") -> LearnedPolicy:
        """It decides; its samples are drawn at the temperature that the metadata name, or at 1."""
        temperature = self.metadata.get("temperature", 1.0)
        if not isinstance(temperature, int | float) or not 0 < temperature < math.inf:
            temperature = 1.0
        return LearnedPolicy(self.network, name, float(temperature))


def feature_names() -> dict[str, list[str]]:
    """The features a network reads; a checkpoint made for others is refused."""
    return {
        "jobs": list(JOB_FEATURES),
        "machines": list(MACHINE_FEATURES),
        "modes": list(MODE_FEATURES),
        "overall": list(GLOBAL_FEATURES),
    }


def save_checkpoint(
    path: str | Path, network: SchedulingNetwork, metadata: Mapping[str, Any]
) -> None:
    """Write the network and its metadata; the file appears whole or not at all.

    Args:
        path: ends in .safetensors; its folder exists.
        metadata: JSON-serialisable; ``scenario`` and ``objective`` are expected by the loaders.
    """
    path = Path(path)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "network": asdict(network.config),
        "features": feature_names(),
        "metadata": dict(metadata),
    }
    weights = {
        name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()
    }
    content = save(weights, metadata={"hetsched": json.dumps(header)})
    temporary = path.with_name(path.name + ".partial")
    temporary.write_bytes(content)  # safetensors' save_file hides its files from other users
    os.replace(temporary, path)


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint; the random state of torch is left alone.

    Raises:
        CheckpointError: the file is absent, truncated, no safetensors file, not hetsched's, of
            another format version, made for other features, or its weights do not fit or are not
            numbers.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint at {path}; check the path")
    try:
        with safe_open(path, framework="pt") as file:
            header = _read_header(path, file.metadata())
            # Copies, because the tensors of a mapped file change when somebody writes to it.
            weights = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointError(f"{path} {_why_unreadable(path)}") from error
    if not all(bool(value.isfinite().all()) for value in weights.values()):
        raise CheckpointError(f"{path} holds weights that are not numbers; train it again")
    return Checkpoint(_network(path, header["network"], weights), header["metadata"])


def _network(
    path: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> SchedulingNetwork:
    """The network that the header describes, in evaluation mode.

    It is built without memory first: a header may ask for any size.
    """
    try:
        size = NetworkConfig(**config)
        if size.layers > len(weights):
            raise ValueError("fewer tensors than layers")
        with torch.device("meta"):
            network = SchedulingNetwork(size)
        if any(value.dtype != torch.float32 for value in weights.values()):
            raise ValueError("weights of another type")
        network.load_state_dict(weights, strict=True, assign=True)
    except (TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"the weights in {path} do not fit the network it describes; train it again"
        ) from error
    return network.eval()


def _why_unreadable(path: Path) -> str:
    """What is wrong with a file that safetensors refuses, and the mend."""
    with path.open("rb") as file:
        head = file.read(9)  # the length of the JSON header as eight bytes, then "{"
        size = os.fstat(file.fileno()).st_size
    if head[:2] in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        return "is a pickle, which could run code when read; give a checkpoint from train.py"
    if size < 9 or (head[8:] == b"{" and int.from_bytes(head[:8], "little") < 100_000_000):
        return "is truncated or damaged; copy it anew or train it again"
    return "is no safetensors file; give a checkpoint from train.py"


def _read_header(path: Path, metadata: Mapping[str, str] | None) -> dict[str, Any]:
    raw = (metadata or {}).get("hetsched")
    if raw is None:
        raise CheckpointError(
            f"{path} holds tensors but no hetsched policy; give a checkpoint from train.py"
        )
    try:
        header: Any = json.loads(raw) if len(raw) <= LONGEST_HEADER else None
        known = header["format"] == FORMAT and isinstance(header["version"], int)
    except (json.JSONDecodeError, KeyError, TypeError, RecursionError):
        known = False
    if not known:
        raise CheckpointError(f"the description inside {path} cannot be read; train it again")
    if header["version"] != VERSION:
        age = "an older" if header["version"] < VERSION else "a newer"
        raise CheckpointError(
            f"{path} has {age} format ({header['version']}, this hetsched reads {VERSION}); "
            "train it again or use the matching hetsched"
        )
    if not all(isinstance(header.get(key), dict) for key in ("network", "features", "metadata")):
        raise CheckpointError(f"the description inside {path} is incomplete; train it again")
    if header["features"] != feature_names():
        raise CheckpointError(
            f"{path} was trained on other features than this hetsched computes; train it again"
        )
    return dict(header)


def resolve_policy(name_or_path: str) -> Path:
    """The file of a checkpoint path or of a policy that ships with hetsched, by its name.

    Raises:
        CheckpointError: neither exists.
    """
    path = Path(name_or_path)
    if path.is_file() or path.suffix == ".safetensors":
        return path
    shipped = Path(str(resources.files("hetsched.checkpoints")))
    candidate = shipped / f"{name_or_path}.safetensors"
    if candidate.is_file():
        return candidate
    names = ", ".join(sorted(one.stem for one in shipped.glob("*.safetensors"))) or "none"
    raise CheckpointError(
        f"{name_or_path!r} is neither a file nor a shipped policy (shipped: {names})"
    )


def load_policy(name_or_path: str | Path, name: str = "learned") -> LearnedPolicy:
    """A policy ready to decide, from a checkpoint path or a shipped policy's name.

    Raises:
        CheckpointError: see :func:`load_checkpoint`.
    """
    return load_checkpoint(resolve_policy(str(name_or_path))).policy(name)
