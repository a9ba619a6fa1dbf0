"""Runs attempts as processes of this computer, one process group per attempt.

* Every attempt leads a session of its own, so that a signal reaches the whole group: the shell,
  what it started, and their children. What a job leaves behind when it exits is killed.
* A GPU machine's attempts see only its devices (CUDA_VISIBLE_DEVICES), a CPU machine's none.
* Output goes to a file per attempt: no pipe can fill, and nothing is lost when we die.
* `poll` sleeps in the kernel until a process exits, a deadline comes or somebody wakes it.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from hetsched.executor import processes
from hetsched.executor.protocol import (
    Attempt,
    Machine,
    Occupancy,
    Outcome,
    Status,
    after_preemption,
)

GROUP_CHECK_SECONDS = 0.05  # how often a dying group is looked at: nothing announces its end
FALLBACK_CHECK_SECONDS = 0.02  # how often exits are looked for where there is no pidfd
CLOSE_SECONDS = 10.0  # after SIGKILL: a process that the kernel cannot end is left to it


@dataclass
class _Running:
    attempt: Attempt
    process: subprocess.Popen[bytes]
    descriptor: int | None  # readable once the process has exited
    log: Path
    started: float
    reason: Status | None = None  # why we end it: "timeout", "cancelled" or "preempted"
    kill_at: float = math.inf  # when the grace ends
    killed: bool = False

    @property
    def deadline(self) -> float:
        """When something must be done about it."""
        if self.killed:
            return math.inf
        return self.kill_at if self.reason else self.started + self.attempt.timeout


class LocalExecutor:
    """One process per attempt on this computer.

    Args:
        machines: as `Executor.machines`.
        log_dir: where the attempts' outputs go, as ``JOB.NUMBER.log``; made if absent.
        grace: seconds between SIGTERM and SIGKILL (>= 0).
        wake: a non-blocking file descriptor; when it is readable, `poll` empties it and returns
            early.

    Raises:
        ValueError: a negative grace, or two machines with one name.
        OSError: the log folder cannot be made.
    """

    def __init__(
        self,
        machines: tuple[Machine, ...],
        log_dir: str | Path,
        grace: float = 10.0,
        wake: int | None = None,
    ) -> None:
        if not grace >= 0:
            raise ValueError(f"local executor: grace is {grace}; it must be 0 or more seconds.")
        self._machines = machines
        self._by_name = {machine.name: machine for machine in machines}
        self._occupancy = Occupancy(machines)
        self._log_dir = Path(log_dir).absolute()
        self._log_dir.mkdir(parents=True, exist_ok=True)
        self._grace = grace
        self._wake = wake
        self._running: dict[str, _Running] = {}
        self._ended: list[Outcome] = []  # ended without ever running
        self._selector = selectors.DefaultSelector()
        if wake is not None:
            self._selector.register(wake, selectors.EVENT_READ)
        self._opened = time.monotonic()

    @property
    def machines(self) -> tuple[Machine, ...]:
        """See `Executor.machines`."""
        return self._machines

    def down(self) -> frozenset[str]:
        """See `Executor.down`; this computer is here for as long as we are."""
        return frozenset()

    def now(self) -> float:
        """See `Executor.now`."""
        return time.monotonic() - self._opened

    def start(self, attempt: Attempt) -> float:
        """See `Executor.start`."""
        units = self._occupancy.take(attempt)
        devices = self._by_name[attempt.machine].visible_devices(units)
        log = self._log_dir / f"{quote(attempt.job, safe=' ')}.{attempt.number}.log"
        started = self.now()
        try:
            process = self._spawn(attempt, devices, log)
        except (OSError, ValueError) as error:  # ValueError: a NUL inside the command
            self._occupancy.release(attempt.job)
            reason = f"could not be started: {error}"
            self._ended.append(Outcome(attempt, "failed", started, started, None, reason))
            return started
        descriptor = processes.exit_descriptor(process)
        if descriptor is not None:
            self._selector.register(descriptor, selectors.EVENT_READ)
        self._running[attempt.job] = _Running(attempt, process, descriptor, log, started)
        return started

    def poll(self, until: float = math.inf) -> list[Outcome]:
        """See `Executor.poll`."""
        while True:
            finished, self._ended = self._ended + self._collect(), []
            now = self.now()
            if finished or now >= until or not (self._running or math.isfinite(until)):
                return finished
            self._enforce(now)
            if self._sleep(min([until, *(run.deadline for run in self._running.values())])):
                finished, self._ended = self._ended + self._collect(), []
                return finished

    def preempt(self, job: str, grace: float | None = None) -> None:
        """See `Executor.preempt`."""
        run = self._running.get(job)
        if run is not None and run.reason is None:
            self._end(run, "preempted", self._grace if grace is None else grace)

    def stop(self, job: str, grace: float | None = None) -> None:
        """See `Executor.stop`; `grace` overrides the executor's, 0 kills at once."""
        run = self._running.get(job)
        if run is not None:
            self._end(run, "cancelled", self._grace if grace is None else grace)

    def close(self) -> None:
        """See `Executor.close`; waits for the grace if somebody uses it."""
        for job in list(self._running):
            self.stop(job)
        give_up = math.inf
        while self._running:
            self._collect()
            self._enforce(self.now())
            if all(run.killed for run in self._running.values()):
                give_up = min(give_up, self.now() + CLOSE_SECONDS)
            if self.now() >= give_up:
                break
            deadlines = [run.deadline for run in self._running.values()]
            if self._running and self._sleep(min([give_up, *deadlines])):
                for job in list(self._running):  # asked a second time: no more patience
                    self.stop(job, grace=0.0)
        self._selector.close()
        for run in self._running.values():
            if run.descriptor is not None:
                os.close(run.descriptor)
        self._running.clear()

    def _spawn(self, attempt: Attempt, devices: str, log: Path) -> subprocess.Popen[bytes]:
        env = {**os.environ, **attempt.env}
        # PCI order: an index then means the device that nvidia-smi shows under it.
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        env["CUDA_VISIBLE_DEVICES"] = devices
        env["HETSCHED_JOB"] = attempt.job
        env["HETSCHED_ATTEMPT"] = str(attempt.number)
        env["HETSCHED_MACHINE"] = attempt.machine
        with log.open("wb") as output:
            return subprocess.Popen(
                attempt.command,
                shell=isinstance(attempt.command, str),
                cwd=attempt.workdir,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _end(self, run: _Running, reason: Status, grace: float) -> None:
        if run.reason is None:
            run.reason = reason
            processes.signal_group(run.process, signal.SIGTERM)
        elif run.reason == "preempted" and reason == "cancelled":
            run.reason = reason
        run.kill_at = min(run.kill_at, self.now() + grace)

    def _enforce(self, now: float) -> None:
        """End what has run too long, kill what has used up its grace."""
        for run in self._running.values():
            if run.deadline > now:
                continue
            if run.reason is None:
                self._end(run, "timeout", self._grace)
            if run.kill_at <= self.now():
                processes.signal_group(run.process, signal.SIGKILL)
                run.killed = True

    def _sleep(self, until: float) -> bool:
        """Wait for an exit, at most until the given time; True: woken from outside."""
        seconds = until - self.now()
        if any(run.reason for run in self._running.values()):
            seconds = min(seconds, GROUP_CHECK_SECONDS)
        if any(run.descriptor is None for run in self._running.values()):
            seconds = min(seconds, FALLBACK_CHECK_SECONDS)
        # An hour at most: the kernel refuses what does not fit its milliseconds.
        ready = self._selector.select(min(max(seconds, 0.0), 3600.0))
        woken = any(key.fd == self._wake for key, _ in ready)
        if woken and self._wake is not None:
            os.read(self._wake, 4096)
        return woken

    def _collect(self) -> list[Outcome]:
        """Take the attempts that have ended out of the running ones."""
        finished = []
        for job, run in list(self._running.items()):
            if not processes.has_exited(run.process):
                continue
            if run.descriptor is not None:
                self._selector.unregister(run.descriptor)
                os.close(run.descriptor)
                run.descriptor = None
            # The shell dies of SIGTERM at once; what it started may still be saving its state.
            if run.reason and not run.killed and processes.group_is_alive(run.process.pid):
                continue
            processes.signal_group(run.process, signal.SIGKILL)
            code = run.process.wait()
            del self._running[job]
            self._occupancy.release(job)
            finished.append(self._outcome(run, code))
        return finished

    def _outcome(self, run: _Running, code: int) -> Outcome:
        status: Status = "done"
        reason = ""
        if run.reason == "preempted":
            status, reason = after_preemption(code, run.killed)
        elif run.reason is not None:
            status = run.reason
            how = " and was killed after its grace" if run.killed else ""
            limit = f"ran longer than its timeout of {run.attempt.timeout:g} s"
            reason = (limit if status == "timeout" else "stopped") + how
        elif code != 0:
            status = "failed" if code > 0 else "lost"
            reason = processes.describe_exit(code)
        return Outcome(
            run.attempt, status, run.started, self.now(), code, reason, os.fspath(run.log)
        )
