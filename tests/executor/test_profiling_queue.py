"""What is measured of a queue: each model once on each type of machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched.executor.profiling_queue import read_subjects
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import QueueError

QUEUE = """
machines:
  - {name: cpu, slots: 2}
  - {name: big, type: h200, device: GPU-a}
  - {name: node, type: v100, devices: [0, 1, 2, 3]}
  - {name: more, type: v100, devices: [4, 5, 6, 7]}
speeds: not-measured-yet.csv
defaults: {timeout: 2h, env: {LEVEL: 1, COLOUR: red}}
jobs:
  - {name: first, command: "train 1", model: net, steps: 100, env: {COLOUR: blue}}
  - {name: second, command: "train 2", model: net, steps: 900}
  - {name: gang, command: "train 4", model: net, steps: 100, gpus: 4}
  - {name: report, command: "make", durations: {cpu: 1m}, after: [gang], workdir: work}
  - {name: anywhere, command: "make all"}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "queue.yaml"
    path.write_text(QUEUE, encoding="utf-8")
    return path


def test_models_and_jobs_are_measured_once_on_each_type_that_they_may_use(path: Path) -> None:
    subjects = read_subjects(path)
    assert [(one.model, one.machine.name, one.gpus, one.job.name) for one in subjects] == [
        ("net", "cpu", 1, "first"),
        ("net", "big", 1, "first"),
        ("net", "node", 1, "first"),
        ("net", "node", 4, "gang"),
        ("report", "cpu", 1, "report"),
        ("anywhere", "cpu", 1, "anywhere"),
        ("anywhere", "big", 1, "anywhere"),
        ("anywhere", "node", 1, "anywhere"),
    ]
    assert [one.steps for one in subjects[:5]] == [100.0, 100.0, 100.0, 100.0, 0.0]
    assert dict(subjects[0].job.env) == {"LEVEL": "1", "COLOUR": "blue"}
    assert subjects[4].job.workdir == str(path.parent / "work")
    assert all(one.job.modes[one.mode].machine == one.machine.name for one in subjects)


def test_several_numbers_of_gpus_can_be_measured(path: Path) -> None:
    subjects = read_subjects(path, only=["net"], types=["v100"], gpus=[1, 2])
    assert [(one.gpus, one.job.name) for one in subjects] == [
        (1, "first"),
        (2, "first"),
        (4, "gang"),
    ]


def test_other_machines_can_be_given(path: Path) -> None:
    subjects = read_subjects(path, [Machine("mine", "l40s", "gpu", ("0",))], only=["first"])
    assert [(one.model, one.machine.name) for one in subjects] == [("net", "mine")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"only": ["nett"]}, "--jobs: there is no 'nett' in this queue; use anywhere, first"),
        ({"types": ["a100"]}, "--on: there is no 'a100' in this queue; use cpu, h200, v100."),
        ({"gpus": [9]}, "job 'first': needs more units of one machine than the 4"),
    ],
)
def test_mistakes_are_named(path: Path, arguments: dict[str, list[str]], message: str) -> None:
    with pytest.raises(QueueError, match=message):
        read_subjects(path, **arguments)


def test_a_queue_without_machines_or_jobs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "queue.yaml"
    path.write_text("jobs: [{name: a, command: x}]", encoding="utf-8")
    with pytest.raises(QueueError, match="machines is missing"):
        read_subjects(path)
    path.write_text("machines: [{name: cpu}]", encoding="utf-8")
    with pytest.raises(QueueError, match="jobs is missing"):
        read_subjects(path)
    path.write_text("machines: [{name: cpu}]\njobs: [{name: a}]", encoding="utf-8")
    with pytest.raises(QueueError, match="job 'a': command is missing"):
        read_subjects(path)
