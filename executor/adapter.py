"""Runs a queue with a policy: at every event the live queue becomes a state, the policy decides.

`run_queue` is the call for programs: it keeps nothing once it returns. It takes the decisions that
the simulator takes on the same durations (tests/executor/test_differential.py holds that), whatever
the executor. `hetsched.executor.restore` is the same for a queue that outlives its scheduler.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from hetsched.envs.objective import Objective
from hetsched.executor.backlog import WINDOW, Backlog
from hetsched.executor.guard import TIMEOUT_SECONDS, Guard
from hetsched.executor.health import PROBATION_SECONDS, Health
from hetsched.executor.ledger import Notebook
from hetsched.executor.retries import Retries
from hetsched.executor.scheduler import Scheduler

if TYPE_CHECKING:
    from hetsched.agents.policy import Policy
    from hetsched.executor.estimates import Estimates
    from hetsched.executor.protocol import Attempt, Executor, Outcome
    from hetsched.executor.queue import Queue


class Observer(Protocol):
    """Is told what happens while it happens."""

    def started(self, attempt: Attempt, at: float) -> None:
        """An attempt has started."""

    def ended(self, outcome: Outcome, again: bool) -> None:
        """An attempt has ended; `again`: the job will run once more."""

    def noted(self, text: str, at: float) -> None:
        """Something else that people should know: a policy has failed, a machine is drained."""


class Silent:
    """An observer that says nothing."""

    def started(self, attempt: Attempt, at: float) -> None:
        """See `Observer.started`."""

    def ended(self, outcome: Outcome, again: bool) -> None:
        """See `Observer.ended`."""

    def noted(self, text: str, at: float) -> None:
        """See `Observer.noted`."""


@dataclass
class Run:
    """What happened to a queue.

    Attributes:
        queue: the queue; policy: the name of what decided.
        outcomes: every attempt that ended, in order of its end.
        not_run: jobs of which no attempt was ever made, with the reason.
        verdicts: jobs whose end is not that of their last attempt, as status and reason: one that
            was preempted, say, and cancelled while it waited to go on.
        interrupted: somebody asked to stop.
        ended: the executor's clock at the end.
        decisions: seconds each question to the policy took.
        notes: what else people should know, in its order.
        began: wall-clock time of the beginning, for people.
    """

    queue: Queue
    policy: str
    outcomes: list[Outcome] = field(default_factory=list)
    not_run: Mapping[str, str] = field(default_factory=dict)
    verdicts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    interrupted: bool = False
    ended: float = 0.0
    decisions: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
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
    fallback: Policy | None = None,
    decision_timeout: float = TIMEOUT_SECONDS,
    estimates: Estimates | None = None,
    probation: float = PROBATION_SECONDS,
    window: int = WINDOW,
    stops: Callable[[], int] = lambda: 0,
    observer: Observer | None = None,
) -> Run:
    """Run every job of a queue, where and when the policy says.

    Args:
        queue: jobs and machines.
        policy: any policy; it sees a one-row dispatch state.
        executor: freshly opened, with the queue's machines; the caller closes it.
        fallback, decision_timeout: see `Guard`; without a fallback a policy's failure is raised.
        estimates: corrects expected durations as jobs finish; None: they stay as they are.
        probation: see `Health`.
        window: modes that the policy is shown at most, see `Backlog`.
        stops: how often somebody has asked to stop; once: running jobs get their grace, twice:
            they are killed.
        observer: told of every start and end.

    Raises:
        ValueError: the executor has other machines, or the policy gave a score that is no number.
    """
    if tuple(executor.machines) != tuple(queue.machines):
        raise ValueError("run_queue: the executor has other machines than the queue; use its own.")
    backlog = Backlog(queue.machines, Objective.parse(queue.objective), window)
    backlog.add(queue.jobs)
    notebook = Notebook()
    scheduler = Scheduler(
        backlog=backlog,
        guard=Guard(policy, fallback, decision_timeout),
        executor=executor,
        ledger=notebook,
        observer=observer or Silent(),
        retries=Retries(backlog),
        health=Health([machine.name for machine in queue.machines], probation),
        estimates=estimates,
        grace=queue.grace,
        stops=stops,
    )
    run = Run(queue, policy.name, notebook.outcomes, decisions=notebook.decisions)
    scheduler.run()
    run.notes = notebook.notes
    run.interrupted, run.ended = scheduler.interrupted, executor.now()
    never = {name: why for name, (status, why) in notebook.fates.items() if status == "not run"}
    tried = run.last
    for name, why in scheduler.left.items():
        if name not in tried:
            never[name] = f"the queue was stopped first; it {why}"
    run.not_run = never
    return run
