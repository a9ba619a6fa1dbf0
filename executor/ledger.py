"""What a scheduler writes down, and what it is told by others while it runs.

`Notebook` keeps it for the length of one run, in memory. `hetsched.executor.store` keeps it in a
file that outlives the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hetsched.executor.protocol import Attempt, Outcome
    from hetsched.executor.queue import Job

REQUESTS = ("cancel", "priority", "weight", "preempt", "drain", "undrain")


@dataclass(frozen=True)
class Request:
    """What somebody wants: a word of REQUESTS, a job or machine, and a value where one is due."""

    kind: str
    name: str
    value: str = ""


@dataclass(frozen=True)
class Inbox:
    """What has come since the last look: new jobs, and requests, in their order."""

    jobs: tuple[Job, ...] = ()
    requests: tuple[Request, ...] = ()


@dataclass(frozen=True)
class Decision:
    """An answer of a policy: when, whose, how long it took, jobs it was shown, what it said."""

    at: float
    policy: str
    seconds: float
    shown: int
    action: str


class Ledger(Protocol):
    """Where it is written down. Nothing is certain before `commit`."""

    @property
    def listens(self) -> bool:
        """Whether others may write to it while the scheduler runs."""
        ...

    def inbox(self) -> Inbox:
        """What has come since the last call."""
        ...

    def is_done(self, name: str) -> bool:
        """Whether a job that the scheduler does not hold is done."""
        ...

    def decided(self, decision: Decision) -> None:
        """A policy has answered."""
        ...

    def starting(self, attempt: Attempt, at: float) -> None:
        """An attempt is about to start: to be committed before it does."""
        ...

    def ended(self, outcome: Outcome) -> None:
        """An attempt has ended."""
        ...

    def fate(self, name: str, status: str, reason: str) -> None:
        """A job waits again, or is over."""
        ...

    def asked(self, name: str, what: str) -> None:
        """A running job is asked to end: a word of REQUESTS, empty when that is settled."""
        ...

    def changed(self, job: Job) -> None:
        """A job has another weight, priority, or need of memory."""
        ...

    def machine(self, name: str, drained: str, until: float) -> None:
        """A machine gets no work until then, for a reason; an empty one: it gets work."""
        ...

    def away(self, since: Mapping[str, float]) -> None:
        """The machines that cannot be reached at present, all of them, and since when."""
        ...

    def note(self, at: float, text: str) -> None:
        """Something that people should know."""
        ...

    def commit(self) -> None:
        """Make certain all that was written since the last time."""
        ...


@dataclass
class Notebook:
    """A ledger in memory; `Run` of `hetsched.executor.adapter` is made of it."""

    outcomes: list[Outcome] = field(default_factory=list)
    decisions: list[float] = field(default_factory=list)
    fates: dict[str, tuple[str, str]] = field(default_factory=dict)  # status, reason
    notes: list[str] = field(default_factory=list)
    listens: bool = False

    def inbox(self) -> Inbox:
        """Nobody can write here."""
        return Inbox()

    def is_done(self, name: str) -> bool:
        """See `Ledger.is_done`."""
        return self.fates.get(name, ("", ""))[0] == "done"

    def decided(self, decision: Decision) -> None:
        """See `Ledger.decided`."""
        self.decisions.append(decision.seconds)

    def starting(self, attempt: Attempt, at: float) -> None:
        """Nothing to keep: its end will be told."""

    def ended(self, outcome: Outcome) -> None:
        """See `Ledger.ended`."""
        self.outcomes.append(outcome)

    def fate(self, name: str, status: str, reason: str) -> None:
        """See `Ledger.fate`."""
        self.fates[name] = (status, reason)

    def asked(self, name: str, what: str) -> None:
        """Nothing to keep."""

    def changed(self, job: Job) -> None:
        """Nothing to keep."""

    def machine(self, name: str, drained: str, until: float) -> None:
        """Nothing to keep."""

    def away(self, since: Mapping[str, float]) -> None:
        """Nothing to keep."""

    def note(self, at: float, text: str) -> None:
        """See `Ledger.note`."""
        self.notes.append(text)

    def commit(self) -> None:
        """Nothing to keep."""
