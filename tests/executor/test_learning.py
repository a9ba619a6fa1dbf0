"""Completed runs correct what policies decide on, also after a restart."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hetsched.agents.rules import make_rule
from hetsched.executor.estimates import Estimates
from hetsched.executor.guard import Guard
from hetsched.executor.queue import Job, Mode, Queue
from hetsched.executor.restore import resume_queue
from hetsched.executor.simulated import SimulatedExecutor
from hetsched.executor.store_ledger import StoreLedger
from hetsched.executor.store_merge import merge
from hetsched.tests.executor.left_queues import MACHINES, client, make

if TYPE_CHECKING:
    from torch import Tensor

    from hetsched.envs.simulator import State


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


class Watching:
    """A rule that writes down how long it is told that each job on show takes."""

    def __init__(self) -> None:
        self.name = "watching"
        self._rule = make_rule("fifo")
        self.told: list[list[float]] = []

    def scores(self, state: State) -> Tensor:
        self.told.append(sorted(state.problem.processing_times[0, :, 0].tolist()))
        return self._rule.scores(state)


def learn(state: Path, **options: object) -> list[list[float]]:
    policy = Watching()
    with contextlib.closing(StoreLedger(state)) as ledger:
        executor = SimulatedExecutor(ledger.machines, seconds=lambda attempt: 300.0)
        estimates = Estimates(ledger.machines)
        resume_queue(ledger, Guard(policy), executor, estimates=estimates, **options)  # type: ignore[arg-type]
    return policy.told


def test_a_restart_keeps_what_was_learned_and_the_policy_decides_on_it(state: Path) -> None:
    """100 s said and 300 s seen make 287 s, as docs/profile.md says."""
    first = Job("first", (Mode("m", 100.0),), model="net")
    make(state, first)
    assert learn(state) == [[100.0]]
    with client(state) as one:
        one.submit([Job("second", (Mode("m", 100.0),), model="net")])
    ((told,),) = learn(state)
    assert told == pytest.approx(287.0, abs=1.0)
    with client(state) as one:  # and it was written down beside the attempt
        (second,) = one.overview(names=["second"]).jobs
        assert second.status == "done"
        one.submit([Job("other", (Mode("m", 100.0),), model="else")])
    ((other,),) = learn(state)
    assert 131.0 < other < 200.0  # two runs tell a little about everything


def test_new_durations_for_the_same_work_are_believed_as_they_are(state: Path) -> None:
    first, second = (Job(name, (Mode("m", 100.0),), model="net") for name in ("first", "second"))
    make(state, first)
    learn(state)
    with client(state) as one:
        one.submit([second])
    better = Queue((first, replace(second, modes=(Mode("m", 300.0),))), MACHINES)
    with contextlib.closing(StoreLedger(state)) as ledger:
        assert merge(ledger, better).forgot
    assert learn(state) == [[300.0]]  # and not 860
    with contextlib.closing(StoreLedger(state)) as ledger:
        assert not merge(ledger, better).forgot
