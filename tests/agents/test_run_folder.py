"""Folders of runs that cannot be gone on with, and that nothing in them is executed."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch

from hetsched.agents.run_folder import TrainingError
from hetsched.agents.training import Trainer
from hetsched.tests.agents.tiny_runs import run_tiny, tiny


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run; not to be changed."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    run_tiny(folder, tiny(timesteps=0))
    return folder


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    for one in whole.iterdir():
        (tmp_path / one.name).write_bytes(one.read_bytes())
    return tmp_path


def refusal(folder: Path, **values) -> str:
    with pytest.raises(TrainingError) as caught:
        Trainer(tiny(**{"timesteps": 0, **values}), folder, resume=True)
    assert str(folder) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("length", [0, 10, 1000, -1, -2000])
def test_a_truncated_state_is_refused(copied: Path, length: int) -> None:
    path = copied / "resume.pt"
    path.write_bytes(path.read_bytes()[:length])
    assert "is damaged" in refusal(copied)


@pytest.mark.parametrize("value", [3, [], {}, {"format": 1}, {"format": 1, "config": "{"}])
def test_a_state_that_makes_no_sense_is_refused(copied: Path, value) -> None:
    torch.save(value, copied / "resume.pt")
    assert "is damaged" in refusal(copied)


def test_a_state_that_would_run_code_is_refused_and_does_not_run(copied: Path) -> None:
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(copied / "trap"),)

    for write in (lambda path: torch.save(Payload(), path), _pickle(Payload())):
        write(copied / "resume.pt")
        assert "is damaged" in refusal(copied)
        assert not (copied / "trap").exists()


def _pickle(value):
    return lambda path: path.write_bytes(pickle.dumps(value))


def test_a_state_of_another_format_is_refused(copied: Path) -> None:
    saved = torch.load(copied / "resume.pt", weights_only=True)
    torch.save({**saved, "format": 99}, copied / "resume.pt")
    assert "is of another hetsched" in refusal(copied)


def test_other_options_are_refused(copied: Path) -> None:
    assert "with other options" in refusal(copied, timesteps=145)


def test_a_missing_state_is_refused(copied: Path) -> None:
    (copied / "resume.pt").unlink()
    assert "there is no" in refusal(copied)
