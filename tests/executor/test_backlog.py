"""Many jobs: what a policy is shown of them, and what a long run keeps."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from hetsched.agents.policy import act
from hetsched.agents.rules import make_rule
from hetsched.envs.objective import Objective
from hetsched.executor import backlog as module
from hetsched.executor.backlog import Backlog
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, Mode
from hetsched.executor.view import Choice

MACHINES = tuple(Machine(f"m{at}") for at in range(4))
OBJECTIVE = Objective.parse("mean(flow_time + weighted_tardiness)")


def jobs(count: int, seed: int = 0) -> list[Job]:
    rng = np.random.default_rng(seed)
    return [
        Job(
            f"j{at}",
            tuple(Mode(one.name, float(rng.uniform(1, 100))) for one in MACHINES),
            weight=float(rng.integers(1, 5)),
            due=float(rng.uniform(10, 1000)),
        )
        for at in range(count)
    ]


def chosen(backlog: Backlog, rule: str, now: float = 0.0) -> Choice | None:
    view = backlog.view(now)
    assert view is not None
    return view.choice(int(act(make_rule(rule), view.state)))


@pytest.mark.parametrize("rule", ["fifo", "spt", "edd", "ect", "min-min", "wspt"])
def test_a_rule_decides_as_if_it_saw_all_though_it_is_shown_a_part(rule: str) -> None:
    for seed in range(3):
        whole = Backlog(MACHINES, OBJECTIVE, window=10**9)
        part = Backlog(MACHINES, OBJECTIVE, window=4 * 60)
        for one in (whole, part):
            one.add(jobs(700, seed))
        seen = part.view(0.0)
        assert seen is not None
        assert seen.shown == 60
        assert chosen(part, rule) == chosen(whole, rule)


def test_ten_thousand_jobs_are_shown_in_a_moment() -> None:
    backlog = Backlog(MACHINES, OBJECTIVE)
    backlog.add(jobs(10_000))
    backlog.view(0.0)
    began = time.process_time()  # the wall clock also counts what else the computer does
    for _ in range(5):
        backlog.view(0.0)
    assert (time.process_time() - began) / 5 < 0.05


def test_arrivals_that_are_out_of_sight_or_gone_are_still_counted() -> None:
    sums = []
    for window, keep in ((10**9, 10**9), (4 * 10, 10**9), (10**9, 5)):
        backlog = Backlog(MACHINES, OBJECTIVE, window=window)
        backlog.add(jobs(40))
        for at in range(30):
            backlog.started(Choice(f"j{at}", 0), 0.0)
            backlog.over(f"j{at}", done=True)
        before, module.COMPACT_ABOVE = module.COMPACT_ABOVE, keep
        try:
            backlog.add([Job("new", (Mode("m0", 1.0),))])
        finally:
            module.COMPACT_ABOVE = before
        assert len(backlog._arrays) == (11 if keep == 5 else 41)
        view = backlog.view(0.0)
        assert view is not None
        assert view.state.past is not None
        own = view.state.problem.statics.arrival[0].sum(0)
        sums.append(view.state.past.sums[0] + own)
    assert torch.allclose(sums[0], sums[1])
    assert torch.allclose(sums[0], sums[2])


def test_compaction_changes_no_name_and_no_order() -> None:
    backlog = Backlog(MACHINES, OBJECTIVE)
    backlog.add([Job("first", (Mode("m0", 1.0),))])
    backlog.add(jobs(6000))
    for at in range(5000):
        backlog.over(f"j{at}", done=True)
    backlog.add([Job("late", (Mode("m1", 1.0),), after=("first", "j5999"))])
    assert len(backlog._arrays) == 1002
    assert backlog.waiting == ["first", *(f"j{at}" for at in range(5000, 6000)), "late"]
    backlog.over("first", done=True)
    assert backlog.over("j5999", done=False) == ["late"]


def test_what_comes_after_a_job_out_of_sight_is_out_of_sight_too() -> None:
    backlog = Backlog(MACHINES, OBJECTIVE)
    first, second = Job("a", (Mode("m0", 1.0),)), Job("b", (Mode("m1", 1.0),), after=("a",))
    backlog.add([first, second, Job("c", (Mode("m2", 1.0),))])
    backlog.closed = frozenset(["m0"])
    view = backlog.view(0.0)
    assert view is not None
    assert view.shown == 1


def test_a_due_time_before_the_queue_began_is_shown_as_its_beginning() -> None:
    backlog = Backlog(MACHINES, OBJECTIVE)
    backlog.add([Job("a", (Mode("m0", 10.0),), due=-5.0), Job("b", (Mode("m0", 10.0),), due=3.0)])
    view = backlog.view(0.0)
    assert view is not None
    assert view.state.problem.due_times.tolist() == [[0.0, 3.0]]


def test_corrected_durations_change_what_is_expected() -> None:
    backlog = Backlog(MACHINES, OBJECTIVE)
    backlog.add([Job("a", (Mode("m0", 10.0), Mode("m1", 20.0)), model="resnet")])
    backlog.correct(lambda model, machine, units: 3.0 if machine == MACHINES[0].type else 1.0)
    assert backlog.expected(Choice("a", 0)) == 30.0
