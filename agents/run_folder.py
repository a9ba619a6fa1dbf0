"""RunFolder: what a training run leaves on disk, and how a killed run is found again.

| file | holds |
| --- | --- |
| ``config.json`` | the resolved configuration |
| ``resume.pt`` | everything that training goes on from |
| ``best.safetensors``, ``last.safetensors`` | checkpoints: best by validation, and of the end |
| ``warm_start.safetensors`` | the checkpoint that PPO began with, if both stages run |
| ``metrics.csv``, ``learning_curve.png`` | by the tracker |

Every file appears whole or not at all, so a kill at any moment leaves a folder that can be resumed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hetsched.agents.checkpoint import CheckpointError, load_checkpoint, save_checkpoint

if TYPE_CHECKING:
    from hetsched.agents.recipe import TrainConfig
    from hetsched.gnn.network import SchedulingNetwork

RESUME_FORMAT = 1
RATIO = "validation/ratio_to_rule"


class TrainingError(ValueError):
    """A run folder that cannot be used; one sentence with the mend."""


class RunFolder:
    """The files of one run.

    Args:
        path: created if needed.
        config: of the run.

    Raises:
        OSError: the folder cannot be made.
    """

    def __init__(self, path: str | Path, config: TrainConfig) -> None:
        self.path, self.config = Path(path), config
        self.path.mkdir(parents=True, exist_ok=True)

    def checkpoint_path(self, name: str) -> Path:
        return self.path / f"{name}.safetensors"

    def write_config(self) -> None:
        """``config.json``; once it is there the folder counts as a run."""
        temporary = self.path / "config.json.partial"
        temporary.write_text(json.dumps(self.config.to_dict(), indent=2) + "\n", encoding="utf-8")
        os.replace(temporary, self.path / "config.json")

    def write_checkpoint(
        self, name: str, network: SchedulingNetwork, metadata: Mapping[str, Any]
    ) -> None:
        """``NAME.safetensors``, with the configuration among its metadata."""
        known = {"scenario": self.config.scenario, "training": self.config.to_dict()}
        save_checkpoint(self.checkpoint_path(name), network, {**known, **metadata})

    def best_ratio(self) -> float:
        """The validation that ``best.safetensors`` had, infinity where this run has no such file.

        The file may be newer than ``resume.pt``; what counts is what is on disk.
        """
        try:
            metadata = load_checkpoint(self.checkpoint_path("best")).metadata
            if metadata["training"] == self.config.to_dict():
                return float(metadata["validation"][RATIO])
        except (CheckpointError, KeyError, TypeError, ValueError):
            pass  # the next validation writes a new one
        return float("inf")

    def save(self, state: Mapping[str, Any]) -> None:
        """``resume.pt``: tensors, numbers, text and their dictionaries."""
        config = json.dumps(self.config.to_dict())
        temporary = self.path / "resume.pt.partial"
        torch.save({"format": RESUME_FORMAT, "config": config, **state}, temporary)
        os.replace(temporary, self.path / "resume.pt")

    def load(self) -> dict[str, Any]:
        """What :meth:`save` wrote; nothing in the file is executed.

        Raises:
            TrainingError: the file is absent, damaged, of another format or of another run.
        """
        path = self.path / "resume.pt"
        if not path.is_file():
            raise TrainingError(f"there is no {path} to go on from; train into another folder")
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
            known, config = saved["format"] == RESUME_FORMAT, json.loads(saved["config"])
        except Exception as error:  # torch raises many kinds for a damaged file
            raise TrainingError(
                f"{path} is damaged; delete {self.path} or train into another folder"
            ) from error
        if not known:
            raise TrainingError(f"{path} is of another hetsched; train into another folder")
        if config != self.config.to_dict():
            raise TrainingError(
                f"the run in {self.path} was begun with other options than its config.json says; "
                "restore that file or train into another folder"
            )
        return dict(saved)
