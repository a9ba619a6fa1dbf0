"""Runs attempts as processes of this computer, one process group per attempt.

* Every attempt leads a session of its own, so that a signal reaches the whole group: the shell,
  what it started, and their children. What a job leaves behind when it exits is killed.
* A GPU machine's attempts see only its devices (CUDA_VISIBLE_DEVICES), a CPU machine's none.
* Output goes to a file per attempt: no pipe can fill, and nothing is lost when we die.
* `poll` sleeps in the kernel until a process exits, a deadline comes or somebody wakes it.
* With `exits`, what it starts can be found again by the next executor when it is killed itself.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.executor import processes
from hetsched.executor.exits import file_name
from hetsched.executor.local_attempt import Running, found_outcome
from hetsched.executor.local_start import spawn
from hetsched.executor.protocol import Attempt, Machine, Occupancy, Outcome, Status

if TYPE_CHECKING:
    from hetsched.executor.exits import Exits

GROUP_CHECK_SECONDS = 0.05  # how often a dying group is looked at: nothing announces its end
MEMORY_CHECK_SECONDS = 0.25  # how often the memory of attempts with a limit is looked at
FALLBACK_CHECK_SECONDS = 0.02  # how often exits are looked for where there is no pidfd
GONE_SECONDS = 5.0  # at most, for the rest of a killed group to be gone before its end is reported
GONE_CHECK_SECONDS = 0.01
CLOSE_SECONDS = 10.0  # after SIGKILL: a process that the kernel cannot end is left to it


class LocalExecutor:
    """One process per attempt on this computer.

    Args:
        machines: as `Executor.machines`.
        log_dir: where the attempts' outputs go, as ``JOB.NUMBER.log``; made if absent.
        grace: seconds between SIGTERM and SIGKILL (>= 0).
        wake: a non-blocking file descriptor; when it is readable, `poll` empties it and returns
            early.
        exits: keeps exit codes for the next executor (`adopt`); None: nothing survives us.
        opened: what the clock shows at first.

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
        exits: Exits | None = None,
        opened: float = 0.0,
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
        self._exits = exits
        self._reported: list[Outcome] = []  # by the last poll; their exits are still on disk
        self._next_memory_check = -math.inf
        self._running: dict[str, Running] = {}
        self._ended: list[Outcome] = []  # ended without ever running
        self._selector = selectors.DefaultSelector()
        if wake is not None:
            self._selector.register(wake, selectors.EVENT_READ)
        self._opened = time.monotonic() - opened

    @property
    def machines(self) -> tuple[Machine, ...]:
        """See `Executor.machines`."""
        return self._machines

    def down(self) -> frozenset[str]:
        """See `Executor.down`; this computer is here for as long as we are."""
        return frozenset()

    def now(self) -> float:
        """See `Executor.now`; it begins at `opened`."""
        return time.monotonic() - self._opened

    def start(self, attempt: Attempt) -> float:
        """See `Executor.start`."""
        units = self._occupancy.take(attempt)
        log = self._log_dir / file_name(attempt.job, attempt.number, "log")
        started = self.now()
        try:
            process = spawn(attempt, self._by_name[attempt.machine], units, log, self._exits)
        except (OSError, ValueError) as error:  # ValueError: a NUL inside the command
            self._occupancy.release(attempt.job)
            reason = f"could not be started: {error}"
            self._ended.append(Outcome(attempt, "failed", started, started, None, reason))
            return started
        self._watch(attempt, process, log, started)
        return started

    def adopt(self, attempt: Attempt, started: float) -> bool:
        """Take over an attempt of an executor that was killed, if its fate is known.

        One that still runs goes on as if we had started it; one that has ended meanwhile is
        reported by the next `poll`. What is left of any other is killed.

        Args:
            attempt: as it was started.
            started: the time of that on this executor's clock.

        Returns:
            Whether `poll` will report it.

        Raises:
            ValueError: there are no `exits`, or the machine has not the room that it holds.
        """
        if self._exits is None:
            raise ValueError("local executor: adopt needs exits; give them to the constructor.")
        log = self._log_dir / file_name(attempt.job, attempt.number, "log")
        living = self._exits.marked()
        wrapper = self._exits.wrapper_of(living, attempt.job, attempt.number)
        if wrapper is not None:
            process = processes.Found(wrapper.pid)
            self._occupancy.take(attempt, wrapper.units)
            self._watch(attempt, process, log, started)
            return True
        if any((one.job, one.number) == (attempt.job, attempt.number) for one in living):
            self._exits.kill(attempt.job, attempt.number)
        noted = self._exits.read(attempt.job, attempt.number)
        if noted is None and log.exists():
            return False
        if noted is None:  # we were killed between the decision and the start
            reason = "had not started when the scheduler was killed"
            self._ended.append(Outcome(attempt, "preempted", started, started, None, reason))
            return True
        ended = min(max(started, self.now() - (time.time() - noted[1])), self.now())
        self._ended.append(found_outcome(attempt, started, ended, noted[0], log))
        return True

    def _watch(
        self, attempt: Attempt, process: processes.Process, log: Path, started: float
    ) -> None:
        descriptor = processes.exit_descriptor(process)
        if descriptor is not None:
            self._selector.register(descriptor, selectors.EVENT_READ)
        self._running[attempt.job] = Running(attempt, process, descriptor, log, started)

    def poll(self, until: float = math.inf) -> list[Outcome]:
        """See `Executor.poll`. What it has reported is forgotten by the next call."""
        self._forget_reported()
        while True:
            finished, self._ended = self._ended + self._collect(), []
            now = self.now()
            if not (finished or now >= until or not (self._running or math.isfinite(until))):
                self._enforce(now)
                if not self._sleep(min([until, *(run.deadline for run in self._running.values())])):
                    continue
                finished, self._ended = self._ended + self._collect(), []
            self._reported = finished
            return finished

    def preempt(self, job: str, grace: float | None = None) -> None:
        """See `Executor.preempt`."""
        run = self._running.get(job)
        if run is not None and run.reason is None and run.gone_by is None:
            self._end(run, "preempted", self._grace if grace is None else grace)

    def stop(self, job: str, grace: float | None = None) -> None:
        """See `Executor.stop`; `grace` overrides the executor's, 0 kills at once."""
        run = self._running.get(job)
        if run is not None and run.gone_by is None:  # else it has ended
            self._end(run, "cancelled", self._grace if grace is None else grace)

    def close(self) -> None:
        """See `Executor.close`; waits for the grace if somebody uses it."""
        for job in list(self._running):
            self.stop(job)
        give_up = math.inf
        while self._running:
            self._collect()
            self._enforce(self.now())
            if all(run.killed or run.gone_by for run in self._running.values()):
                give_up = min(give_up, self.now() + CLOSE_SECONDS)
            if self.now() >= give_up:
                break
            deadlines = [run.deadline for run in self._running.values()]
            if self._running and self._sleep(min([give_up, *deadlines])):
                for job in list(self._running):  # asked a second time: no more patience
                    self.stop(job, grace=0.0)
        self._forget_reported()
        if self._exits is not None:  # what left its group: a daemon, a job of a job
            self._exits.kill()
        self._selector.close()
        for run in self._running.values():
            if run.descriptor is not None:
                os.close(run.descriptor)
        self._running.clear()

    def _forget_reported(self) -> None:
        if self._exits is not None:
            for outcome in self._reported:
                self._exits.forget(outcome.attempt.job, outcome.attempt.number)
        self._reported = []

    def _end(self, run: Running, reason: Status, grace: float) -> None:
        if run.reason is None:
            run.reason = reason
            processes.signal_group(run.process, signal.SIGTERM)
        elif run.reason == "preempted" and reason == "cancelled":
            run.reason = reason
        run.kill_at = min(run.kill_at, self.now() + grace)

    def _enforce(self, now: float) -> None:
        """End what has run too long or holds too much, kill what has used up its grace."""
        self._check_memory(now)
        for run in self._running.values():
            if run.deadline > now or run.gone_by is not None:
                continue
            if run.reason is None:
                self._end(run, "timeout", self._grace)
            if run.kill_at <= self.now():
                processes.signal_group(run.process, signal.SIGKILL)
                run.killed = True

    def _check_memory(self, now: float) -> None:
        limited = [run for run in self._running.values() if math.isfinite(run.attempt.memory)]
        if not limited or now < self._next_memory_check:
            return
        self._next_memory_check = now + MEMORY_CHECK_SECONDS
        held = processes.memory_of_groups({run.process.pid for run in limited})
        for run in limited:
            if held[run.process.pid] > run.attempt.memory and run.reason is None:
                run.held = held[run.process.pid]
                self._end(run, "memory", 0.0)  # it may not live to save anything: memory is short

    def _sleep(self, until: float) -> bool:
        """Wait for an exit, at most until the given time; True: woken from outside."""
        seconds = until - self.now()
        if any(run.reason for run in self._running.values()):
            seconds = min(seconds, GROUP_CHECK_SECONDS)
        if any(run.gone_by is not None for run in self._running.values()):
            seconds = min(seconds, GONE_CHECK_SECONDS)
        if any(math.isfinite(run.attempt.memory) for run in self._running.values()):
            seconds = min(seconds, MEMORY_CHECK_SECONDS)
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
            if not self._is_gone(run):
                continue
            code = self._exit_code(run)
            del self._running[job]
            self._occupancy.release(job)
            finished.append(run.outcome(self.now(), code))
        return finished

    def _is_gone(self, run: Running) -> bool:
        """End what the attempt has left behind; whether its units can go to the next one.

        A process that was killed holds its GPU until the kernel has taken it apart.
        """
        if run.gone_by is None:
            if isinstance(run.process, processes.Found):
                # It is nobody's zombie: its group's number may be a stranger's by now.
                if self._exits is not None:
                    self._exits.kill(run.attempt.job, run.attempt.number)
            else:
                processes.signal_group(run.process, signal.SIGKILL)
            run.process.wait()
            run.gone_by = self.now() + GONE_SECONDS
        if processes.group_is_gone(run.process.pid):
            return True
        run.survived = self.now() >= run.gone_by
        return run.survived

    def _exit_code(self, run: Running) -> int | None:
        """Of an attempt that is over; None if nobody knows it."""
        if self._exits is not None:
            noted = self._exits.read(run.attempt.job, run.attempt.number)
            if noted is not None:
                return noted[0]
        return run.process.returncode
