"""Which machines can be trusted: two failures in a row drain one, and after a while it is tried.

A failure is held against a machine only where the attempt's end says so (`executor.causes`), and
only once per job: a job that fails in the same way elsewhere takes its blame along.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

FAILURES_IN_A_ROW = 2
PROBATION_SECONDS = 300.0


@dataclass
class _Record:
    blamed_by: list[str] = field(default_factory=list)  # jobs, since its last success
    reason: str = ""  # why it is drained; empty: it is not
    until: float = math.inf  # when it is tried again
    patience: float = PROBATION_SECONDS


class Health:
    """The state of every machine.

    Args:
        machines: their names.
        probation: seconds after which a machine drained for its failures gets work again; twice
            as long each time that it goes on failing.
    """

    def __init__(self, machines: Iterable[str], probation: float = PROBATION_SECONDS) -> None:
        self._records = {name: _Record(patience=probation) for name in machines}
        self._probation = probation

    @property
    def drained(self) -> dict[str, str]:
        """Machines that get no work, with the reason."""
        return {name: one.reason for name, one in self._records.items() if one.reason}

    def until(self, machine: str) -> float:
        """When a drained machine will be tried again; infinity: when somebody says so."""
        return self._records[machine].until

    def next_trial(self) -> float:
        """The earliest such time of all; infinity where there is none."""
        return min((one.until for one in self._records.values() if one.reason), default=math.inf)

    def succeeded(self, machine: str) -> None:
        """A job is done there: what was held against the machine is forgotten."""
        record = self._records[machine]
        record.blamed_by.clear()
        record.patience = self._probation

    def failed(self, machine: str, job: str, now: float) -> list[str]:
        """A job ended there as if the machine were broken; returns machines that changed state."""
        elsewhere = [
            name for name, one in self._records.items() if name != machine and job in one.blamed_by
        ]
        if elsewhere:  # broken machines do not come in pairs: it is the job
            changed = []
            for name in elsewhere:
                record = self._records[name]
                record.blamed_by.remove(job)
                if record.reason and record.until < math.inf:
                    self.undrain(name)
                    changed.append(name)
            return changed
        record = self._records[machine]
        if job not in record.blamed_by:
            record.blamed_by.append(job)
        if record.reason or len(record.blamed_by) < FAILURES_IN_A_ROW:
            return []
        jobs = ", ".join(repr(one) for one in record.blamed_by[-FAILURES_IN_A_ROW:])
        self.drain(machine, f"failed twice in a row, with {jobs}", now + record.patience)
        record.patience *= 2
        return [machine]

    def drain(self, machine: str, reason: str, until: float = math.inf) -> None:
        """Give a machine no more work."""
        record = self._records[machine]
        record.reason, record.until = reason, until

    def undrain(self, machine: str) -> None:
        """Give it work again; one more failure is enough to drain one that was on probation."""
        record = self._records[machine]
        record.reason, record.until = "", math.inf
        del record.blamed_by[: -(FAILURES_IN_A_ROW - 1)]

    def end_probations(self, now: float) -> list[str]:
        """The machines whose time has come; they get work again."""
        ready = [name for name, one in self._records.items() if one.reason and one.until <= now]
        for name in ready:
            self.undrain(name)
        return ready
