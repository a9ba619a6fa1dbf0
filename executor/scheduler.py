"""The loop of every scheduler, and all that can happen to a queue while it turns.

Note what has ended, heed what others want, ask the policy and start what it says until it says
WAIT or nothing fits, then sleep until the next event. Nothing here knows whether jobs are processes
or a simulation, nor whether the ledger outlives us.

What makes a kill at any instant harmless is one order: what a policy decided is committed before it
is started, and what has ended is committed before its traces are removed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from hetsched.executor.causes import explain
from hetsched.executor.closures import Closures
from hetsched.executor.ledger import Decision
from hetsched.executor.protocol import after_preemption
from hetsched.executor.retries import is_shutdown

if TYPE_CHECKING:
    from hetsched.executor.adapter import Observer
    from hetsched.executor.backlog import Backlog
    from hetsched.executor.estimates import Estimates
    from hetsched.executor.gpu_watch import GpuWatch
    from hetsched.executor.guard import Guard
    from hetsched.executor.health import Health
    from hetsched.executor.ledger import Ledger, Request
    from hetsched.executor.protocol import Attempt, Executor, Outcome
    from hetsched.executor.queue import Job
    from hetsched.executor.retries import Retries
    from hetsched.executor.view import Choice

CHECK_SECONDS = 5.0  # how often others are listened to when nobody rings
PATIENCE_SECONDS = 10.0  # after the grace, for the kernel to end what was killed


class Scheduler:
    """One run of a queue.

    Args:
        backlog: the jobs; guard: decides; executor: runs; ledger: remembers; observer: is told.
        retries, health: of jobs and machines.
        estimates: corrects expected durations as jobs finish; None: they stay as they were said.
        gpus: says which GPUs are broken; None: nobody does.
        grace: seconds for jobs to end when the run is stopped.
        stops: how often somebody has asked to stop.
        stay: wait for more jobs when all are over.
    """

    def __init__(
        self,
        *,
        backlog: Backlog,
        guard: Guard,
        executor: Executor,
        ledger: Ledger,
        observer: Observer,
        retries: Retries,
        health: Health,
        estimates: Estimates | None = None,
        gpus: GpuWatch | None = None,
        grace: float = 10.0,
        stops: Callable[[], int] = lambda: 0,
        stay: bool = False,
    ) -> None:
        self.backlog, self.guard, self.executor = backlog, guard, executor
        self.ledger, self.observer = ledger, observer
        self.retries, self.estimates = retries, estimates
        self.closures = Closures(health, executor, ledger, self.say, gpus)
        self.grace, self.stops, self.stay = grace, stops, stay
        self.attempts: dict[str, int] = {}  # number of a job's latest attempt
        self.interrupted = False
        self.left: dict[str, str] = {}  # jobs that waited when the run was stopped, and why
        self._cancelled: set[str] = set()  # jobs that somebody asked to cancel while they ran
        self._heed_machines(executor.now())

    def run(self) -> None:
        """Until every job is over, or somebody has asked to stop."""
        while True:
            self._heed(self.executor.now())
            if self.stops():
                self._interrupt()
                break
            now = self.executor.now()
            self._heed_machines(now)
            self._decide(now)
            self.ledger.commit()
            backlog = self.backlog
            if not backlog.jobs and not self.stay:
                break
            until = min(backlog.next_release(now), self.closures.next_trial())
            if not backlog.running and until == math.inf and not self._may_change():
                self._give_up()
                break
            if self._may_change() or self.closures.watches:
                until = min(until, now + CHECK_SECONDS)
            self.note(self.executor.poll(until))
        self.ledger.commit()

    def _may_change(self) -> bool:
        """Whether something may come that nothing here announces."""
        return self.ledger.listens or bool(self.executor.down())

    def _give_up(self) -> None:
        for name in self.backlog.waiting:
            self._over(name, "not run", self._why_nothing_runs(name))

    def _why_nothing_runs(self, name: str) -> str:
        drained = self.closures.drained
        for mode in self.backlog.jobs[name].modes:
            if mode.machine in drained:
                return f"machine {mode.machine!r} is drained: {drained[mode.machine]}"
        return "nothing ran, and the policy started nothing"

    # ---- decisions -----------------------------------------------------------------------------

    def _decide(self, now: float) -> None:
        """Ask until the policy says WAIT or nothing can start now; then start all it chose."""
        if not self.backlog.num_waiting:
            return
        began = time.perf_counter()  # what the policy looks at belongs to the price of asking it
        view = self.backlog.view(now)
        if view is None:
            return
        state = view.state
        choices: list[Choice] = []
        while not bool(state.done) and float(state.now) == now and bool(state.legal().any()):
            answer = self.guard.decide(state)
            seconds = time.perf_counter() - began
            choice = view.choice(answer.action)
            if answer.failure:
                self.say(now, answer.failure)
            self.ledger.decided(
                Decision(now, answer.policy, seconds, view.shown, self._told(choice))
            )
            if choice is None:
                break
            choices.append(choice)
            began = time.perf_counter()
            state.step(state.steps.new_tensor([answer.action]))  # may move its clock on
        attempts = [self._attempt(choice) for choice in choices]
        for attempt in attempts:
            self.ledger.starting(attempt, now)
        self.ledger.commit()
        for choice, attempt in zip(choices, attempts, strict=True):
            at = self.executor.start(attempt)
            self.backlog.started(choice, at)
            self.retries.started(choice.job)
            self.observer.started(attempt, at)

    def _attempt(self, choice: Choice) -> Attempt:
        self.attempts[choice.job] = self.attempts.get(choice.job, 0) + 1
        job = self.backlog.jobs[choice.job]
        attempt = job.attempt(choice.mode, self.attempts[choice.job])
        return replace(attempt, expected=self.backlog.expected(choice))

    def _told(self, choice: Choice | None) -> str:
        if choice is None:
            return "wait"
        return f"{choice.job} on {self.backlog.jobs[choice.job].modes[choice.mode].machine}"

    # ---- ends ----------------------------------------------------------------------------------

    def note(self, outcomes: list[Outcome], blame: bool = True) -> None:
        """Take in what has ended; `blame`: failures are held against machines."""
        changed = False
        for outcome in outcomes:
            if (self.interrupted or self.stops()) and is_shutdown(outcome):
                status, reason = after_preemption(outcome.exit_code, killed=False)
                outcome = replace(outcome, status=status, reason=reason)
            name = outcome.attempt.job
            if name in self._cancelled and outcome.status != "done":
                outcome = replace(outcome, status="cancelled")  # perhaps asked by another scheduler
            if outcome.status == "cancelled" and self._is_for_later(name):
                reason = "killed when the queue was stopped; it goes on with the next run"
                outcome = replace(outcome, status="preempted", reason=reason)
            outcome, cause = explain(outcome)
            attempt, job = outcome.attempt, self.backlog.jobs[outcome.attempt.job]
            self.ledger.ended(outcome)
            self.closures.ended(outcome, cause == "machine" and blame)
            verdict = self.retries.judge(outcome, cause)
            reason = ": ".join(part for part in (outcome.reason, verdict.why) if part)
            self.observer.ended(outcome, verdict.again)
            if verdict.again:
                self.backlog.again(attempt.job)
                self.ledger.changed(self.backlog.jobs[attempt.job])
                self.ledger.fate(attempt.job, "waiting", reason)
            else:
                self._over(attempt.job, outcome.status, reason)
            changed |= self.estimates is not None and self.estimates.observe(job, outcome)
        if changed and self.estimates is not None:
            self.backlog.correct(self.estimates.factor)

    def _is_for_later(self, job: str) -> bool:
        """Whether a job was ended only because this run ends, and the next goes on with it."""
        return self.interrupted and self.ledger.listens and job not in self._cancelled

    def _over(self, name: str, status: str, reason: str) -> None:
        """A job is over, and with it those that can never run any more."""
        ends = [(name, status, reason)]
        while ends:
            name, status, reason = ends.pop()
            self.retries.forget(name)
            self._cancelled.discard(name)
            self.attempts.pop(name, None)
            self.ledger.fate(name, status, reason)
            never = self.backlog.over(name, status == "done")
            ends += [(one, "not run", f"comes after {name!r}, which was not done") for one in never]

    # ---- machines ------------------------------------------------------------------------------

    def _heed_machines(self, now: float) -> None:
        """Close machines that are away or drained; move the jobs of those that are drained."""
        closed = self.closures.now(now)
        if closed != self.backlog.closed:
            self.backlog.closed = closed
            self.retries.machines_changed()
        drained = self.closures.drained
        for job, (mode, _) in self.backlog.running.items() if drained else ():
            if self.backlog.jobs[job].modes[mode].machine in drained:
                self.executor.preempt(job)

    def say(self, now: float, text: str) -> None:
        """Tell people, now and later."""
        self.ledger.note(now, text)
        self.observer.noted(text, now)

    # ---- what others want ----------------------------------------------------------------------

    def _heed(self, now: float) -> None:
        inbox = self.ledger.inbox()
        fresh: list[Job] = []
        for job in inbox.jobs:
            if problem := self._cannot_come(job, {one.name for one in fresh}):
                self.ledger.fate(job.name, "not run", problem)
            else:
                fresh.append(job)
        self.backlog.add(fresh, self.ledger.is_done)
        if fresh and self.estimates is not None:
            self.backlog.correct(self.estimates.factor)
        for request in inbox.requests:
            self._do(request, now)

    def _cannot_come(self, job: Job, fresh: set[str]) -> str:
        """Why a job that was right when it was submitted is not any more; empty: it still is."""
        for before in job.after:
            here = before in self.backlog.jobs or before in fresh
            if not here and not self.ledger.is_done(before):
                return f"comes after {before!r}, which was not done"
        return ""

    def _do(self, request: Request, now: float) -> None:
        """Requests that have come too late, name nothing, or ask for what cannot be do nothing."""
        name = request.name
        if request.kind in ("drain", "undrain"):
            if name in {machine.name for machine in self.backlog.machines}:
                if request.kind == "drain":
                    self.closures.drain(name, request.value, now)
                else:
                    self.closures.undrain(name, now)
        elif name not in self.backlog.jobs:
            return
        elif request.kind in ("priority", "weight"):
            job = self.backlog.jobs[name]
            read = int if request.kind == "priority" else float
            try:
                job = replace(job, **{request.kind: read(request.value)})  # type: ignore[arg-type]
            except ValueError:  # no command asks for that; it must not end the queue
                return
            self.backlog.change(job)
            self.ledger.changed(job)
        elif name in self.backlog.running:
            self.ask(name, request.kind)
            self.ledger.asked(name, request.kind)
        elif request.kind == "cancel":
            when = "while it waited" if name in self.attempts else "before it ran"
            self._over(name, "cancelled", f"cancelled {when}")

    def ask(self, name: str, what: str) -> None:
        """Ask a running job to end: ``cancel``, or ``preempt``."""
        if what == "cancel":
            self._cancelled.add(name)
            self.executor.stop(name)
        elif what == "preempt":
            self.executor.preempt(name)

    def _interrupt(self) -> None:
        """Let what runs save itself and wait for it; what waits, waits for the next run."""
        self.interrupted = True
        asked = self.stops()
        self.left = self.backlog.why_waiting(self.executor.now())
        for name in list(self.backlog.running):
            if self.ledger.listens:
                self.executor.preempt(name)
            else:
                self.executor.stop(name)
        give_up = self.executor.now() + self.grace + PATIENCE_SECONDS
        while self.backlog.running and self.executor.now() < give_up:
            if self.stops() > asked:
                for name in list(self.backlog.running):
                    self.executor.stop(name, grace=0.0)
            self.note(self.executor.poll(give_up))
            self.ledger.commit()
