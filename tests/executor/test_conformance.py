"""The executors of this computer against every promise; `test_ray.py` does the same for Ray."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hetsched.executor.exits import Exits
from hetsched.executor.faults import FaultyExecutor
from hetsched.executor.local import LocalExecutor
from hetsched.executor.protocol import Executor
from hetsched.executor.simulated import SimulatedExecutor
from hetsched.tests.executor import conformance_processes
from hetsched.tests.executor.conformance import EVERYWHERE, GRACE, MACHINES, Check, Subject
from hetsched.tests.executor.conformance_processes import OPENING, PROCESSES

Open = Callable[[Path, int | None], Executor]


def simulated(folder: Path, wake: int | None) -> Executor:
    return SimulatedExecutor(MACHINES)


def local(folder: Path, wake: int | None) -> Executor:
    return LocalExecutor(MACHINES, folder / "logs", GRACE, wake)


def remembering(folder: Path, wake: int | None) -> Executor:
    """As `dispatch.py` opens it: every command under a shell that notes its exit status."""
    exits = Exits(folder / "exits", "of this test")
    return LocalExecutor(MACHINES, folder / "logs", GRACE, wake, exits=exits)


def faulty(inner: Open, folder: Path, wake: int | None) -> Executor:
    """Without a single fault: what is wrapped must not be seen."""
    return FaultyExecutor(inner(folder, wake))


IMPLEMENTATIONS: dict[str, Open] = {
    "simulated": simulated,
    "local": local,
    "remembering local": remembering,
    "faulty simulated": functools.partial(faulty, simulated),
    "faulty local": functools.partial(faulty, local),
}


def runs_processes(open_: Open) -> bool:
    return open_ in (local, remembering, IMPLEMENTATIONS["faulty local"])


CASES = [
    pytest.param(open_, check, id=f"{name} - {check.__name__}")
    for name, open_ in IMPLEMENTATIONS.items()
    for check in EVERYWHERE + (PROCESSES + OPENING if runs_processes(open_) else [])
]


@pytest.fixture
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    open_: Open = request.getfixturevalue("open_")
    executor = open_(tmp_path, None)
    with contextlib.closing(executor):
        another = functools.partial(open_, tmp_path / "another")
        yield Subject(executor, another, tmp_path, processes=runs_processes(open_))


@pytest.mark.parametrize(("open_", "check"), CASES)
def test_an_executor_keeps_its_promises(open_: Open, check: Check, subject: Subject) -> None:
    check(subject)


@pytest.mark.parametrize("name", ["simulated", "faulty simulated"])
def test_an_executor_without_processes_can_be_closed_twice_too(name: str, tmp_path: Path) -> None:
    open_ = functools.partial(IMPLEMENTATIONS[name], tmp_path)
    subject = Subject(open_(None), open_, tmp_path, processes=False)
    conformance_processes.closing_ends_what_runs_and_may_happen_twice(subject)
