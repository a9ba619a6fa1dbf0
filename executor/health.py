"""Which machines can be trusted: two failures in a row drain one, and after a while it is tried.

A failure is held against a machine only where the attempt's end says so (`executor.causes`), and
only once per job: a job that fails in the same way elsewhere takes its blame along.

What the driver says of a machine's GPUs (`executor.gpu_watch`) drains it until the driver says that
they are well. Whoever drains or undrains a machine by hand is believed until the driver says
something else than it did.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

FAILURES_IN_A_ROW = 2
PROBATION_SECONDS = 300.0
BY_DRIVER = " (NVML)"  # how reasons end that the driver gave, also those of an earlier run


@dataclass
class _Record:
    blamed_by: list[str] = field(default_factory=list)  # jobs, since its last success
    reason: str = ""  # why it is drained; empty: it is not
    until: float = math.inf  # when it is tried again
    patience: float = PROBATION_SECONDS
    told: str = ""  # by the driver, the last time that it called it broken


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
        if reason.endswith(BY_DRIVER):
            record.told = reason

    def undrain(self, machine: str) -> None:
        """Give it work again; one more failure is enough to drain one that was on probation."""
        record = self._records[machine]
        record.reason, record.until = "", math.inf
        del record.blamed_by[: -(FAILURES_IN_A_ROW - 1)]

    def inspected(self, broken: Mapping[str, str], well: Collection[str]) -> list[str]:
        """The driver has called machines broken and others well; returns those that changed state.

        One that was drained by hand stays so.
        """
        changed = []
        for name, why in broken.items():
            record, reason = self._records[name], why + BY_DRIVER
            if record.told == reason:  # nothing new; somebody may have undrained it since
                continue
            by_hand = bool(record.reason) and record.until == math.inf
            by_hand &= not record.reason.endswith(BY_DRIVER)
            record.told = reason
            if not by_hand:
                self.drain(name, reason)
                changed.append(name)
        for name in well:
            record = self._records[name]
            record.told = ""
            if record.reason.endswith(BY_DRIVER):
                self.undrain(name)
                changed.append(name)
        return changed

    def end_probations(self, now: float) -> list[str]:
        """The machines whose time has come; they get work again."""
        ready = [name for name, one in self._records.items() if one.reason and one.until <= now]
        for name in ready:
            self.undrain(name)
        return ready
