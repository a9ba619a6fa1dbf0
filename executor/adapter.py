"""Runs a queue with a policy: at every event the live queue becomes a state, the policy decides.

The loop of every scheduler: note what has ended, ask the policy and start what it says until it
says WAIT or nothing fits, then wait for the next event. It takes the decisions that the simulator
takes on the same durations (tests/executor/test_differential.py holds that), whatever the
executor.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch

from hetsched.agents.policy import act
from hetsched.envs.objective import Objective
from hetsched.executor.backlog import Backlog

if TYPE_CHECKING:
    from hetsched.agents.policy import Policy
    from hetsched.executor.protocol import Attempt, Executor, Outcome
    from hetsched.executor.queue import Queue

PATIENCE_SECONDS = 10.0  # after the grace, for the kernel to end what was killed


class Observer(Protocol):
    """Is told what happens while it happens."""

    def started(self, attempt: Attempt, at: float) -> None:
        """An attempt has started."""

    def ended(self, outcome: Outcome, again: bool) -> None:
        """An attempt has ended; `again`: the job will be retried."""


class Silent:
    """An observer that says nothing."""

    def started(self, attempt: Attempt, at: float) -> None:
        """See `Observer.started`."""

    def ended(self, outcome: Outcome, again: bool) -> None:
        """See `Observer.ended`."""


@dataclass
class Run:
    """What happened to a queue.

    Attributes:
        queue: the queue; policy: the name of what decided.
        outcomes: every attempt that ended, in order of its end.
        not_run: jobs of which no attempt was ever made, with the reason.
        interrupted: somebody asked to stop.
        ended: the executor's clock at the end.
        decisions: seconds each question to the policy took.
        began: wall-clock time of the beginning, for people.
    """

    queue: Queue
    policy: str
    outcomes: list[Outcome] = field(default_factory=list)
    not_run: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False
    ended: float = 0.0
    decisions: list[float] = field(default_factory=list)
    began: datetime.datetime = field(
        default_factory=lambda: datetime.datetime.now().astimezone().replace(microsecond=0)
    )

    @property
    def last(self) -> dict[str, Outcome]:
        """The last outcome of every job that was tried."""
        return {outcome.attempt.job: outcome for outcome in self.outcomes}

    @property
    def all_done(self) -> bool:
        """Whether every job is done."""
        last = self.last
        return all(job.name in last and last[job.name].status == "done" for job in self.queue.jobs)


def run_queue(
    queue: Queue,
    policy: Policy,
    executor: Executor,
    *,
    stops: Callable[[], int] = lambda: 0,
    observer: Observer | None = None,
) -> Run:
    """Run every job of a queue, where and when the policy says.

    Args:
        queue: jobs and machines.
        policy: any policy; it sees a one-row dispatch state.
        executor: freshly opened, with the queue's machines; the caller closes it.
        stops: how often somebody has asked to stop; once: running jobs get their grace, twice:
            they are killed.
        observer: told of every start and end.

    Raises:
        ValueError: the executor has other machines, or the policy gave a score that is no number.
    """
    if tuple(executor.machines) != tuple(queue.machines):
        raise ValueError("run_queue: the executor has other machines than the queue; use its own.")
    backlog = Backlog(queue, Objective.parse(queue.objective))
    run = Run(queue, policy.name)
    observer = observer or Silent()
    while backlog.waiting or backlog.running:
        if stops():
            _interrupt(backlog, executor, run, stops, observer)
            break
        now = executor.now()
        if backlog.waiting:
            _decide(backlog, policy, executor, run, observer, now)
        release = backlog.next_release(now)
        if not backlog.running and release == float("inf"):
            for name in backlog.waiting:  # cannot happen: WAIT is illegal on an idle cluster
                backlog.not_run[name] = "nothing ran, and the policy started nothing"
            break
        _note(executor.poll(release), backlog, run, observer)
    run.not_run = dict(backlog.not_run)
    run.ended = executor.now()
    return run


def _decide(
    backlog: Backlog,
    policy: Policy,
    executor: Executor,
    run: Run,
    observer: Observer,
    now: float,
) -> None:
    """Start what the policy says until it says WAIT or nothing can start now."""
    began = time.perf_counter()  # what the policy looks at belongs to the price of asking it
    view = backlog.view(now)
    state = view.state
    while not bool(state.done) and float(state.now) == now and bool(state.legal().any()):
        with torch.no_grad():
            action = act(policy, state)
        run.decisions.append(time.perf_counter() - began)
        choice = view.choice(int(action))
        if choice is None:
            return
        job = backlog.jobs[choice.job]
        backlog.attempts[choice.job] += 1
        attempt = job.attempt(choice.mode, backlog.attempts[choice.job])
        at = executor.start(attempt)
        backlog.started(choice, at)
        observer.started(attempt, at)
        began = time.perf_counter()
        state.step(action)  # moves its clock on when nothing more can start now


def _note(outcomes: list[Outcome], backlog: Backlog, run: Run, observer: Observer) -> None:
    for outcome in outcomes:
        run.outcomes.append(outcome)
        observer.ended(outcome, backlog.ended(outcome, retry=not run.interrupted))


def _interrupt(
    backlog: Backlog,
    executor: Executor,
    run: Run,
    stops: Callable[[], int],
    observer: Observer,
) -> None:
    """Stop what runs, wait for it, and say of the rest why it never ran."""
    run.interrupted = True
    reasons = {name: backlog.why_waiting(name, executor.now()) for name in backlog.waiting}
    backlog.waiting.clear()
    asked = stops()
    for name in list(backlog.running):
        executor.stop(name)
    give_up = executor.now() + backlog.queue.grace + PATIENCE_SECONDS
    while backlog.running and executor.now() < give_up:
        if stops() > asked:
            for name in list(backlog.running):
                executor.stop(name, grace=0.0)
        _note(executor.poll(give_up), backlog, run, observer)
    tried = run.last
    for name, reason in reasons.items():
        if name not in tried:
            backlog.not_run[name] = f"the queue was stopped first; it {reason}"
