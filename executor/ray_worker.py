"""The half of the Ray executor that lives on a node: one long-lived actor per machine.

An actor never touches a GPU itself. Every attempt is a process group of its own, run by a
`LocalExecutor` exactly as on one computer, so that all of its promises hold here too.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from hetsched.executor import ray_guard
from hetsched.executor.exits import Exits
from hetsched.executor.local import LocalExecutor
from hetsched.executor.protocol import Attempt, Machine, Status

LOG_BYTES = 2**20  # of an attempt's output that go to the scheduler's computer; the last ones
NOT_FOR_JOBS = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "RAY_JOB_ID", "RAY_RAYLET_PID")


@dataclass(frozen=True)
class Ended:
    """How an attempt ended on its node: `Outcome` without what the scheduler knows itself.

    Args:
        status, exit_code, reason, log: as in `Outcome`.
        output: the end of the output, where the scheduler cannot read the file itself.
    """

    status: Status
    exit_code: int | None
    reason: str
    log: str | None
    output: bytes | None


@dataclass
class _Control:
    """How an attempt's thread hears of `stop` and `preempt`, which may come before it runs."""

    requests: list[tuple[str, float]] = field(default_factory=list)
    waker: socket.socket | None = None


def to_fields(attempt: Attempt) -> dict[str, Any]:
    """An attempt as what can travel: its read-only mapping cannot be pickled."""
    values = {one.name: getattr(attempt, one.name) for one in fields(attempt)}
    return {**values, "env": dict(attempt.env)}


class _Noted(Exits):
    """Exit notes as far as one attempt goes.

    Other attempts of the queue on this node are other actors', and a note stays until the scheduler
    has committed what it says.
    """

    def __init__(self, exits: Exits, attempt: Attempt) -> None:
        super().__init__(exits.folder, exits.identity)
        self._attempt = attempt

    def kill(self, job: str | None = None, number: int = 0) -> int:
        """See `Exits.kill`: of this attempt, whoever is meant."""
        return super().kill(self._attempt.job, self._attempt.number)

    def forget(self, job: str, number: int) -> None:
        """Nothing: the scheduler forgets."""


class Worker:
    """One machine on its node. Ray calls every method in a thread of its own.

    Args:
        machine: the machine.
        log_dir: the scheduler's folder of outputs, used here too if it is the same one.
        mark: name of a file in it; not found here: the computers share no such folder.
        workdir: where attempts run that name no folder, if it exists here.
        own_devices: the machine's devices are this computer's; False: those Ray gave.
        exits: the scheduler's folder of exit codes, used if it is here too; None: it has none.
    """

    def __init__(
        self,
        machine: Machine,
        log_dir: str,
        mark: str,
        workdir: str,
        own_devices: bool,
        exits: Exits | None = None,
    ) -> None:
        self._shared = Path(log_dir, mark).exists()
        self._exits = exits if exits is not None and exits.path(mark, 0).exists() else None
        self._log_dir = log_dir if self._shared else tempfile.mkdtemp(prefix="hetsched-logs-")
        self._workdir = workdir if Path(workdir).is_dir() else os.path.expanduser("~")
        self._machine = machine
        if machine.kind == "gpu" and not own_devices:
            self._machine = replace(machine, devices=given_devices())
        self._controls: dict[int, _Control] = {}
        self._lock = threading.Lock()
        _restore_environment()
        token = uuid.uuid4().hex
        self._guard = ray_guard.start_guard(token)
        os.environ[ray_guard.VARIABLE] = token

    def hello(self) -> tuple[str, ...]:
        """The machine's devices; to be called is to be alive."""
        return self._machine.devices

    def vigil(self) -> None:
        """Never returns: whoever waits for it learns of the worker's end."""
        threading.Event().wait()

    def run(
        self, serial: int, values: Mapping[str, Any], units: tuple[int, ...], grace: float
    ) -> Ended:
        """Run an attempt to its end.

        Args:
            serial: the scheduler's number of this attempt, for `end`.
            values: as `to_fields` gives.
            units: the units of the machine that it holds.
            grace: as for `LocalExecutor`.
        """
        attempt = Attempt(**values)
        if attempt.workdir is None:
            attempt = replace(attempt, workdir=self._workdir)
        reader, waker = socket.socketpair()
        reader.setblocking(False)
        control = self._control(serial, waker)
        try:
            executor = LocalExecutor(
                (self._of_units(units),),
                self._log_dir,
                grace=grace,
                wake=reader.fileno(),
                exits=None if self._exits is None else _Noted(self._exits, attempt),
            )
            with contextlib.closing(executor):
                executor.start(attempt)
                while True:
                    for how, patience in self._take_requests(control):
                        getattr(executor, how)(attempt.job, patience)
                    for outcome in executor.poll():
                        log, output = self._output(outcome.log)
                        return Ended(outcome.status, outcome.exit_code, outcome.reason, log, output)
        finally:
            with self._lock:
                del self._controls[serial]
            reader.close()
            waker.close()

    def end(self, serial: int, how: str, grace: float) -> None:
        """``stop`` or ``preempt`` an attempt, also one whose `run` is still on its way here."""
        control = self._control(serial)
        with self._lock:
            control.requests.append((how, grace))
            if control.waker is not None:
                with contextlib.suppress(OSError):  # it has just ended
                    control.waker.send(b"x")

    def settle(self, job: str, number: int) -> None:
        """Kill what is left on this node of an attempt of a scheduler that was killed."""
        if self._exits is not None:
            self._exits.kill(job, number)

    def _control(self, serial: int, waker: socket.socket | None = None) -> _Control:
        with self._lock:
            control = self._controls.setdefault(serial, _Control())
            control.waker = waker or control.waker
            return control

    def _take_requests(self, control: _Control) -> list[tuple[str, float]]:
        with self._lock:
            taken, control.requests = control.requests, []
        return taken

    def _of_units(self, units: tuple[int, ...]) -> Machine:
        """The machine as far as it belongs to one attempt."""
        devices = self._machine.devices
        if len(devices) > 1:
            devices = tuple(devices[unit] for unit in units)
        return replace(self._machine, devices=devices, capacity=len(units))

    def _output(self, log: str | None) -> tuple[str | None, bytes | None]:
        """Where the output is, and its end where the scheduler has to be sent it."""
        if log is None or self._shared:
            return log, None
        with open(log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_BYTES))
            output = file.read()
        if size <= LOG_BYTES:
            os.unlink(log)
            return log, output
        note = f"[the last {LOG_BYTES} of {size} bytes; all are in {log} of this node]\n"
        return log, note.encode() + output


def given_devices() -> tuple[str, ...]:
    """The GPUs that Ray has given to this actor, by UUID where the driver can tell."""
    import ray

    given = [str(one) for one in ray.get_gpu_ids()]
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no library, no driver: logical GPUs
        return tuple(given)
    try:
        return tuple(_uuid(one) if one.isdigit() else one for one in given)
    finally:
        pynvml.nvmlShutdown()


def _uuid(index: str) -> str:
    import pynvml

    try:
        uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(int(index)))
    except pynvml.NVMLError:
        return index
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid)


def _restore_environment() -> None:
    """Give jobs the node's environment: Ray would have them use one thread, among others."""
    lines = os.fsdecode(Path("/proc/self/environ").read_bytes()).split("\0")
    original = dict(line.split("=", 1) for line in lines if "=" in line)
    for name in NOT_FOR_JOBS:
        os.environ.pop(name, None)
        if name in original and not name.startswith("RAY_"):
            os.environ[name] = original[name]
