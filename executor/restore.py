"""Goes on with a queue that was left: after a stop, a crash, or kill -9 of its scheduler.

What is over stays over. An attempt that was running is looked for: if it still runs it is watched
again, and if it has ended its exit code is on disk. One that is gone without a trace (the computer
was restarted) is ``lost``, counts as a failure of its machine, and the job runs again within its
`moves`. Executors that cannot look for attempts have lost them all.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from hetsched.envs.objective import Objective
from hetsched.executor.adapter import Observer, Run, Silent
from hetsched.executor.backlog import WINDOW, Backlog
from hetsched.executor.causes import explain
from hetsched.executor.health import PROBATION_SECONDS, Health
from hetsched.executor.protocol import Outcome
from hetsched.executor.queue import Queue
from hetsched.executor.retries import Retries
from hetsched.executor.scheduler import Scheduler
from hetsched.executor.store import OPEN_STATUSES
from hetsched.executor.view import Choice

if TYPE_CHECKING:
    from hetsched.executor.estimates import Estimates
    from hetsched.executor.gpu_watch import GpuWatch
    from hetsched.executor.guard import Guard
    from hetsched.executor.protocol import Attempt, Executor, Status
    from hetsched.executor.store_ledger import Remembered, StoreLedger

# What became of a job that is gone, by what it had been asked for.
ENDS_AS: dict[str, Status] = {"cancel": "cancelled", "preempt": "preempted"}


@runtime_checkable
class Adopting(Protocol):
    """An executor that can look for attempts of one that was killed."""

    def adopt(self, attempt: Attempt, started: float) -> bool:
        """Take over an attempt; returns whether `poll` will report its end."""
        ...


def resume_queue(
    ledger: StoreLedger,
    guard: Guard,
    executor: Executor,
    *,
    estimates: Estimates | None = None,
    gpus: GpuWatch | None = None,
    probation: float = PROBATION_SECONDS,
    window: int = WINDOW,
    stops: Callable[[], int] = lambda: 0,
    observer: Observer | None = None,
    stay: bool = False,
) -> Run:
    """Run what is left of a queue, where and when the policy says.

    Args:
        ledger: of the queue; the caller closes it after the executor.
        guard: what decides.
        executor: freshly opened, with the queue's machines and a clock that shows
            `ledger.clock()`; the caller closes it.
        stay: wait for more jobs when all are over.
        gpus: watches the health of this computer's GPUs; the caller closes it.
        estimates, probation, window, stops, observer: see `run_queue`.

    Raises:
        ValueError: the executor has other machines.
    """
    machines = ledger.machines
    if tuple(executor.machines) != machines:
        raise ValueError(
            "resume_queue: the executor has other machines than the queue; use its own."
        )
    policy = guard.name
    backlog = Backlog(machines, Objective.parse(ledger.objective), window)
    health = Health([machine.name for machine in machines], probation)
    for name, (reason, until) in ledger.drained().items():
        health.drain(name, reason, until)
    scheduler = Scheduler(
        backlog=backlog,
        guard=guard,
        executor=executor,
        ledger=ledger,
        observer=observer or Silent(),
        retries=Retries(backlog),
        health=health,
        estimates=estimates,
        gpus=gpus,
        grace=ledger.grace,
        stops=stops,
        stay=stay,
    )
    _recall(scheduler, ledger.load(), ledger.learn_after)
    ledger.commit()
    scheduler.run()
    return _tell(ledger, policy, scheduler)


def _recall(scheduler: Scheduler, remembered: list[Remembered], learn_after: float) -> None:
    """Bring the scheduler to where the last one was."""
    backlog = scheduler.backlog
    backlog.add(one.job for one in remembered)
    for one in remembered:
        name = one.job.name
        if one.status not in ("waiting", "running"):
            backlog.over(name, one.status == "done")
    if scheduler.estimates is not None:
        runs = [(outcome, one.job) for one in remembered for outcome in one.outcomes]
        for outcome, job in sorted(runs, key=lambda run: run[0].ended):  # the latest count
            if outcome.ended > learn_after:
                scheduler.estimates.observe(job, outcome)
        backlog.correct(scheduler.estimates.factor)
    for one in remembered:
        if one.status in ("waiting", "running"):
            _recall_open(scheduler, one)


def _recall_open(scheduler: Scheduler, one: Remembered) -> None:
    name = one.job.name
    for outcome in one.outcomes:
        scheduler.retries.judge(outcome, explain(outcome)[1])
        scheduler.attempts[name] = outcome.attempt.number
    if one.running is None:
        return
    attempt, started = one.running
    scheduler.attempts[name] = attempt.number
    scheduler.backlog.started(Choice(name, attempt.mode), started)
    executor = scheduler.executor
    if isinstance(executor, Adopting) and executor.adopt(attempt, started):
        scheduler.ask(name, one.asked)
        return
    now = max(started, executor.now())
    reason = "ran when the scheduler was killed, and is gone"
    status = ENDS_AS.get(one.asked, "lost")
    scheduler.note([Outcome(attempt, status, started, now, None, reason)], blame=False)


def _tell(ledger: StoreLedger, policy: str, scheduler: Scheduler) -> Run:
    """All that ever happened to the queue."""
    remembered = ledger.load()
    run = Run(
        Queue(
            tuple(one.job for one in remembered), ledger.machines, ledger.objective, ledger.grace
        ),
        policy,
        sorted(
            (outcome for one in remembered for outcome in one.outcomes), key=lambda one: one.ended
        ),
        interrupted=scheduler.interrupted,
        ended=scheduler.executor.now(),
        decisions=ledger.decision_seconds(),
        notes=ledger.notes(),
        began=datetime.datetime.fromtimestamp(math.floor(ledger.began)).astimezone(),
    )
    never = {}
    for one in remembered:
        if not one.outcomes:
            why = scheduler.left.get(one.job.name)
            never[one.job.name] = one.reason if why is None else f"waits for the next run; it {why}"
    run.not_run = never
    run.verdicts = {
        one.job.name: (one.status, one.reason)
        for one in remembered
        if one.outcomes and one.status not in (*OPEN_STATUSES, one.outcomes[-1].status)
    }
    return run
