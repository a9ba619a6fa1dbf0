"""What every executor promises: machines, down, start, poll, preempt, stop, close.

An executor turns a decision ("this job, on this machine, now") into work that runs, and
reports each attempt's end exactly once. It decides nothing. Its clock counts seconds from its
own opening and never goes back; for a simulated executor it is not the wall clock at all.

Its machines are fixed when it is opened. One that goes away and comes back shows in `down`; what
ran there is reported as ``lost``, without an exit code. `tests/executor/conformance.py` holds every
executor to each of these promises.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol, get_args

Status = Literal["done", "failed", "timeout", "memory", "lost", "cancelled", "preempted"]
"""How an attempt ended.

``done``: the command returned 0. ``failed``: it returned another status, or could not be
started. ``timeout``: it was stopped for running longer than its limit. ``memory``: it ran out of
memory, or was stopped for taking more than its limit. ``lost``: it died by a signal nobody here
sent (a crash, the kernel's out-of-memory killer), or its machine went away.
``cancelled``: `stop` was called, or the executor was closed. ``preempted``: `preempt` was called,
and it ended without being done.
"""
STATUSES: tuple[Status, ...] = get_args(Status)

PREEMPTED_EXIT = 75
"""What a command returns that was told to go and has saved its state (sysexits: EX_TEMPFAIL)."""

Kind = Literal["cpu", "gpu"]

MOST_UNITS = 10_000  # of a machine; each is kept account of


@dataclass(frozen=True)
class Machine:
    """A place where attempts run, with `capacity` units that an attempt takes `demand` of.

    Args:
        name: unique among the executor's machines.
        type: machines of one type are equally fast; durations may be given for the type.
        kind: ``cpu`` or ``gpu``.
        devices: the GPUs behind a ``gpu`` machine, as UUIDs (preferred) or indices. One device:
            all units share it. As many devices as units: every unit is one of them.
        capacity: units.
        memory: bytes of each device, for a ``cpu`` machine of the computer; None: not known.

    Raises:
        ValueError: naming the machine and the field.
    """

    name: str
    type: str = "cpu"
    kind: Kind = "cpu"
    devices: tuple[str, ...] = ()
    capacity: int = 1
    memory: float | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("machine: name is empty; give every machine a name.")
        who = f"machine {self.name!r}"
        for key, word in (("name", self.name), ("type", self.type)):
            if not word.isprintable() or len(word) > 80:
                raise ValueError(
                    f"{who}: {key} must be at most 80 printable characters; rename it."
                )
        if not self.type:
            raise ValueError(f"{who}: type is empty; name the machine's type.")
        if self.kind not in get_args(Kind):
            raise ValueError(f"{who}: kind is {self.kind!r}; use 'cpu' or 'gpu'.")
        if self.capacity < 1:
            raise ValueError(f"{who}: slots is {self.capacity}; it must be at least 1.")
        if self.capacity > MOST_UNITS:
            raise ValueError(f"{who}: slots is {self.capacity}; it must be at most {MOST_UNITS}.")
        if self.memory is not None and not self.memory > 0:
            raise ValueError(f"{who}: memory is {self.memory:g}; it must be above 0 bytes.")
        if self.kind == "cpu" and self.devices:
            raise ValueError(f"{who}: a cpu machine has no device; remove it or use kind gpu.")
        if self.kind == "gpu":
            if len(self.devices) not in (1, self.capacity):
                raise ValueError(
                    f"{who}: {len(self.devices)} devices for {self.capacity} slots; "
                    "give one device to share, or one per slot."
                )
            if len(set(self.devices)) < len(self.devices):
                raise ValueError(f"{who}: a device is listed twice; list each device once.")

    def visible_devices(self, units: tuple[int, ...]) -> str:
        """The value of CUDA_VISIBLE_DEVICES for an attempt that holds these units."""
        if self.kind == "cpu":
            return ""
        if len(self.devices) == 1:
            return self.devices[0]
        return ",".join(self.devices[unit] for unit in units)


@dataclass(frozen=True)
class Attempt:
    """One run of a job on a machine: all an executor needs to know.

    Args:
        job: the job's name; at most one attempt of a job runs at a time.
        machine: a machine's name.
        number: 1 for the first attempt, 2 for the first retry.
        mode: index into the job's own list of modes.
        demand: units of the machine that it occupies.
        command: an argument list, or a string for the shell.
        env: variables added to the executor's own environment.
        workdir: directory to run in; None: the executor's.
        timeout: seconds it may run (> 0).
        memory: bytes of the computer's memory that its processes may hold together (> 0).
        expected: seconds it is believed to take; None: not known.
    """

    job: str
    machine: str
    number: int = 1
    mode: int = 0
    demand: int = 1
    command: tuple[str, ...] | str = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    timeout: float = math.inf
    memory: float = math.inf
    expected: float | None = None

    def __post_init__(self) -> None:
        if not self.job:
            raise ValueError("attempt: job is empty; give every job a name.")
        who = f"attempt {self.number} of job {self.job!r}"
        if self.number < 1:
            raise ValueError(f"{who}: number must be at least 1.")
        if self.demand < 1:
            raise ValueError(f"{who}: demand is {self.demand}; it must be at least 1.")
        if not self.timeout > 0:
            raise ValueError(f"{who}: timeout is {self.timeout}; it must be above 0.")
        if not self.memory > 0:
            raise ValueError(f"{who}: memory is {self.memory}; it must be above 0.")
        object.__setattr__(self, "env", MappingProxyType(dict(self.env)))


@dataclass(frozen=True)
class Outcome:
    """How and when an attempt ended (seconds on the executor's clock).

    Args:
        attempt: which one.
        status: one of STATUSES.
        started, ended: times on the executor's clock, ``ended >= started``.
        exit_code: the process's, negative for a signal; None where there was no process.
        reason: one sentence for people; empty when done, unless there is something to say.
        log: path of the attempt's output; None where there is none.
    """

    attempt: Attempt
    status: Status
    started: float
    ended: float
    exit_code: int | None = None
    reason: str = ""
    log: str | None = None

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"outcome: status is {self.status!r}; use one of {STATUSES}.")
        if not self.ended >= self.started:
            raise ValueError(
                f"outcome of job {self.attempt.job!r}: ended {self.ended} is before "
                f"started {self.started}."
            )

    @property
    def seconds(self) -> float:
        """How long the attempt ran."""
        return self.ended - self.started

    @property
    def machine_failed(self) -> bool:
        """Whether the machine went away and not the job: no retry of the job is used up."""
        return self.status == "lost" and self.exit_code is None


def after_preemption(exit_code: int | None, killed: bool) -> tuple[Status, str]:
    """Status and reason of an attempt that ended after `Executor.preempt`."""
    if exit_code == 0:
        return "done", ""
    if exit_code == PREEMPTED_EXIT:
        return "preempted", "made to leave its machine; it has saved its state"
    how = "was killed after its grace" if killed else "did not say that it saved its state"
    return "preempted", f"made to leave its machine; it {how}"


class Executor(Protocol):
    """From decisions to running work; see the module's docstring for the contract."""

    @property
    def machines(self) -> tuple[Machine, ...]:
        """The machines, in the order in which a policy sees them."""
        ...

    def down(self) -> frozenset[str]:
        """The names of the machines that are away now: nothing should be started there.

        It changes inside `poll` only. A caller looks at it after every `poll` and leaves these
        machines out of what it decides on; while nothing runs it must give `poll` a finite
        deadline to wait for their return.
        """
        ...

    def now(self) -> float:
        """Seconds since the executor was opened, on a clock that never goes back."""
        ...

    def start(self, attempt: Attempt) -> float:
        """Start an attempt and return its start time, without waiting for it.

        A command that cannot be started is an outcome (``failed``) of the next `poll`, not an
        exception. So is a machine that is down or has just gone away (``lost``, no exit code).

        Raises:
            ValueError: an unknown machine, no room on it, or a job that already runs. These are
                mistakes of the caller; nothing was started.
        """
        ...

    def poll(self, until: float = math.inf) -> list[Outcome]:
        """Wait for the next attempts to end, at most until the clock shows `until`.

        The deadline is a time and not a length, so that no rounding comes between it and the
        clock. Returns the ended attempts, earliest first; an empty list at the deadline, when
        nothing runs and `until` is infinite, when `down` has changed, or when somebody asked to
        be woken.
        """
        ...

    def preempt(self, job: str, grace: float | None = None) -> None:
        """Ask a running attempt to save its state and leave, to be continued elsewhere.

        Its process group gets SIGTERM; what is still there after the grace gets SIGKILL. A command
        that can be continued saves its state, exits with PREEMPTED_EXIT, and finds the state when
        it is started again. `poll` then reports ``preempted``, whatever the exit code, except
        for 0: a command that returns 0 is ``done``, also when it had been told to go. An exit
        with PREEMPTED_EXIT that nobody asked for is ``failed``.

        `grace`: as for `stop`. A job that does not run, or is being ended already, is ignored;
        `stop` after `preempt` turns it into a cancellation.
        """
        ...

    def stop(self, job: str, grace: float | None = None) -> None:
        """Ask a running attempt to end; `poll` reports it, as ``cancelled``, when it has.

        It is ``cancelled`` however it then ends, also when its machine goes away.
        `grace`: seconds until it is made to (None: the executor's own, 0: at once). A job that
        does not run is ignored: it may have ended in the meantime.
        """
        ...

    def close(self) -> None:
        """End everything that still runs and free all resources. May be called twice."""
        ...


class Occupancy:
    """Which units of which machine are taken: the checks that all executors share."""

    def __init__(self, machines: tuple[Machine, ...]) -> None:
        self.machines = {machine.name: machine for machine in machines}
        if len(self.machines) < len(machines):
            raise ValueError("machines: two have the same name; give each its own.")
        self._free = {machine.name: set(range(machine.capacity)) for machine in machines}
        self._held: dict[str, tuple[str, tuple[int, ...]]] = {}  # job -> machine, units

    def take(self, attempt: Attempt, units: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Occupy units for an attempt and return them: the given ones, else the lowest free.

        Raises:
            ValueError: as `Executor.start` says, or a given unit is not free.
        """
        if attempt.job in self._held:
            raise ValueError(f"job {attempt.job!r} already runs on {self._held[attempt.job][0]!r}.")
        free = self._free.get(attempt.machine)
        if free is None:
            raise ValueError(f"job {attempt.job!r}: there is no machine {attempt.machine!r}.")
        if attempt.demand > len(free):
            raise ValueError(
                f"job {attempt.job!r} needs {attempt.demand} units of {attempt.machine!r}, "
                f"which has {len(free)} free."
            )
        if not free.issuperset(units):
            raise ValueError(f"job {attempt.job!r}: of {attempt.machine!r} {units} are not free.")
        units = units or tuple(sorted(free)[: attempt.demand])
        free.difference_update(units)
        self._held[attempt.job] = (attempt.machine, units)
        return units

    def release(self, job: str) -> None:
        """Free the units of a job that has ended."""
        machine, units = self._held.pop(job)
        self._free[machine].update(units)
