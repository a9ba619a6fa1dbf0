"""Runs attempts on a Ray cluster: an existing one, or one on this computer.

One long-lived actor per machine holds the machine's resources, so that Ray's own scheduler is done
when the executor is open; which job runs where is decided by the caller. Each attempt is a
process group beside its actor (`hetsched.executor.ray_worker`). Everything arrives as an event: the
end of an attempt, the end of an actor, the first word of a new one; `poll` sleeps until one comes.
This process never touches a GPU.
"""

from __future__ import annotations

import functools
import math
import os
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.executor import ray_cluster
from hetsched.executor.protocol import Attempt, Machine, Occupancy, Outcome
from hetsched.executor.ray_cluster import RayUnavailable
from hetsched.executor.ray_crew import Bell, Crew
from hetsched.executor.ray_ends import Ends, cancelled
from hetsched.executor.ray_worker import Ended, to_fields

if TYPE_CHECKING:
    from concurrent.futures import Future

    from hetsched.executor.exits import Exits

OPEN_SECONDS = 120.0  # for the machines to answer; those that do not by then are down
GUARD_SECONDS = 0.5  # for a guard to end what a dead actor has left, before it may run elsewhere
CLOSE_SECONDS = 10.0  # after the grace: what does not end by then is killed with its actor


@dataclass
class _Flight:
    attempt: Attempt
    serial: int
    started: float
    stopped: bool = False
    lost_at: float = math.inf  # when its end is to be reported, once its machine is away


def open_ray(
    log_dir: str | Path,
    machines: tuple[Machine, ...] | None = None,
    address: str | None = None,
    grace: float = 10.0,
    wake: int | None = None,
    opened: float = 0.0,
    exits: Exits | None = None,
) -> RayExecutor:
    """Connect to a Ray cluster, or start one on this computer, and open its machines.

    Args:
        log_dir, grace, wake, opened, exits: as for `RayExecutor`.
        machines: None: all that the cluster has, one per GPU. On a cluster of our own they are
            taken literally, devices included; elsewhere by type.
        address: of a running cluster, such as ``auto`` or ``10.0.0.1:6379``; None: a new one on
            this computer that ends with the executor. A process that is connected stays so.

    Raises:
        RayUnavailable, ValueError, OSError: as for `RayExecutor`, or Ray is not installed or not
            there.
    """
    ours = ray_cluster.connect(address)
    try:
        found = ray_cluster.cluster_machines() if machines is None else machines
        return RayExecutor(
            found,
            log_dir,
            grace,
            wake,
            opened,
            own_devices=address is None and ours and machines is not None,
            at_close=ray_cluster.disconnect if ours else lambda: None,
            exits=exits,
        )
    except BaseException:
        if ours:
            ray_cluster.disconnect()
        raise


class RayExecutor:
    """One actor per machine of a Ray cluster to which this process is connected.

    Args:
        machines: as `Executor.machines`; types and kinds as the cluster offers them. Those for
            which it has no room are down until it has.
        log_dir: where outputs go. On nodes that have this folder too they are complete, from
            others the end of each is sent here.
        grace: seconds between SIGTERM and SIGKILL (>= 0).
        wake: a non-blocking file descriptor; when it is readable, `poll` empties it and returns
            early.
        opened: what the clock shows at first.
        own_devices: the machines' devices are taken literally, all on the only node; False: Ray
            says which GPUs of a node a machine gets.
        at_close: called last of all when the executor is closed.
        exits: keeps exit codes for the next executor (`adopt`), of nodes that have this folder too;
            None: what an attempt came to is known to nobody once we are killed.

    Raises:
        ValueError: a negative grace, or two machines with one name.
        RayUnavailable: the cluster has room for no machine at all, or none has answered in time.
        OSError: the log folder cannot be made.
    """

    def __init__(
        self,
        machines: tuple[Machine, ...],
        log_dir: str | Path,
        grace: float = 10.0,
        wake: int | None = None,
        opened: float = 0.0,
        own_devices: bool = False,
        at_close: Callable[[], None] = lambda: None,
        exits: Exits | None = None,
    ) -> None:
        if not grace >= 0:
            raise ValueError(f"ray executor: grace is {grace}; it must be 0 or more seconds.")
        self._machines = machines
        self._occupancy = Occupancy(machines)
        self._log_dir = Path(log_dir).absolute()
        self._log_dir.mkdir(parents=True, exist_ok=True)
        self._grace = grace
        self._wake = wake
        self._at_close = at_close
        self._flights: dict[str, _Flight] = {}
        self._serial = 0
        self._ended: list[Outcome] = []  # ended, not yet reported
        self._ends = Ends(self._log_dir, exits)
        self._adopts = exits is not None
        self._reported: list[Outcome] = []  # by the last poll; their exit codes are still on disk
        self._bell = Bell()
        self._crew = Crew(
            machines, self._log_dir, own_devices, self._bell, self._machine_lost, exits
        )
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._bell.socket, selectors.EVENT_READ)
        if wake is not None:
            self._selector.register(wake, selectors.EVENT_READ)
        self._closed = False
        self._opened = time.monotonic() - opened
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        self._opened = time.monotonic() - opened  # waiting for actors is no part of a queue
        self._down = self._crew.down()

    @property
    def machines(self) -> tuple[Machine, ...]:
        """See `Executor.machines`."""
        return self._machines

    def down(self) -> frozenset[str]:
        """See `Executor.down`."""
        return self._down

    def now(self) -> float:
        """See `Executor.now`; it begins at `opened`."""
        return time.monotonic() - self._opened

    def start(self, attempt: Attempt) -> float:
        """See `Executor.start`."""
        units = self._occupancy.take(attempt)
        actor = self._crew.actor(attempt.machine)
        started = self.now()
        if actor is None:
            self._occupancy.release(attempt.job)
            self._ended.append(self._ends.lost(attempt, started, started))
            return started
        self._serial += 1
        flight = _Flight(attempt, self._serial, started)
        answer = actor.run.remote(flight.serial, to_fields(attempt), units, self._grace)
        self._flights[attempt.job] = flight
        self._bell.listen(answer, functools.partial(self._attempt_ended, flight))
        return started

    def adopt(self, attempt: Attempt, started: float) -> bool:
        """Learn what an attempt came to whose scheduler was killed.

        What still runs of it is killed first. If it had ended by itself its exit code is on disk;
        otherwise it has ended with its scheduler, which is as good as a preemption.

        Args:
            attempt: as it was started.
            started: the time of that on this executor's clock.

        Returns:
            Whether `poll` will report it; False: there are no `exits`.
        """
        if not self._adopts:
            return False
        self._crew.settle(attempt)
        self._ended.append(self._ends.orphaned(attempt, started, self.now()))
        self._ended.sort(key=lambda one: one.ended)
        return True

    def poll(self, until: float = math.inf) -> list[Outcome]:
        """See `Executor.poll`. What it has reported is forgotten by the next call."""
        self._ends.forget(self._reported)
        while True:
            self._bell.take()
            self._report_lost()
            look = self._crew.look()
            before, self._down = self._down, self._away()
            idle = not self._flights and math.isinf(until)
            if self._ended or self._down != before or idle or self.now() >= until:
                break
            if self._sleep(min(until, self.now() + look, self._next_lost())):
                self._bell.take()
                break
        self._reported, self._ended = self._ended, []
        return self._reported

    def preempt(self, job: str, grace: float | None = None) -> None:
        """See `Executor.preempt`."""
        self._end("preempt", job, grace)

    def stop(self, job: str, grace: float | None = None) -> None:
        """See `Executor.stop`."""
        self._end("stop", job, grace)

    def close(self) -> None:
        """See `Executor.close`; waits for the grace if somebody uses it."""
        if self._closed:
            return
        self._closed = True
        for job in list(self._flights):
            self.stop(job)
        give_up = self.now() + self._grace + CLOSE_SECONDS
        while self._flights and self.now() < give_up:
            self._bell.take()
            self._report_lost()
            if self._flights and self._sleep(min(give_up, self._next_lost())):
                for job in list(self._flights):  # asked a second time: no more patience
                    self.stop(job, grace=0.0)
        self._crew.close()
        self._ends.forget(self._reported)
        self._flights.clear()
        self._selector.close()
        self._bell.close()
        self._at_close()

    def _open(self) -> None:
        self._crew.look()
        if len(self._crew.homeless()) == len(self._machines):
            first, offers = self._machines[0], ray_cluster.cluster_offers()
            raise RayUnavailable(
                f"the Ray cluster has no room for a machine of type {first.type!r} such as "
                f"{first.name!r}, nor for any other; it offers {ray_cluster.describe(offers)}."
            )
        give_up = self.now() + OPEN_SECONDS
        while self._crew.expected() and self.now() < give_up:
            self._bell.take()
            look = self._crew.look()
            if self._crew.expected() and self._sleep(min(give_up, self.now() + look)):
                break  # somebody does not want to wait any longer
        if len(self._crew.down()) == len(self._machines):
            raise RayUnavailable(
                "no machine of the Ray cluster answered; see that nobody else holds them."
            )

    def _end(self, how: str, job: str, grace: float | None) -> None:
        flight = self._flights.get(job)
        if flight is None:
            if how == "stop":  # what was to be continued is not, if nobody has heard of it yet
                self._ended = [
                    cancelled(one) if one.attempt.job == job else one for one in self._ended
                ]
            return
        flight.stopped = flight.stopped or how == "stop"
        actor = self._crew.actor(flight.attempt.machine)
        if actor is not None and math.isinf(flight.lost_at):
            actor.end.remote(flight.serial, how, self._grace if grace is None else grace)

    def _attempt_ended(self, flight: _Flight, answer: Future[Any]) -> None:
        from ray.exceptions import RayActorError

        attempt = flight.attempt
        if self._flights.get(attempt.job) is not flight:
            return  # lost with its machine
        error = answer.exception()
        if isinstance(error, RayActorError):
            return  # the actor is dead or out of sight; the crew learns which, and says so
        del self._flights[attempt.job]
        self._occupancy.release(attempt.job)
        if error is None:
            ended: Ended = answer.result()
        else:
            reason = str(getattr(error, "cause", None) or error).strip().partition("\n")[0]
            ended = Ended("failed", None, f"could not be started: {reason}", None, None)
        log = ended.log
        if ended.output is not None:
            log = os.fspath(self._ends.log_of(attempt))
            Path(log).write_bytes(ended.output)
        code, reason = ended.exit_code, ended.reason
        end = self.now()
        self._ended.append(Outcome(attempt, ended.status, flight.started, end, code, reason, log))

    def _machine_lost(self, name: str) -> None:
        for flight in self._flights.values():
            if flight.attempt.machine == name:
                flight.lost_at = min(flight.lost_at, self.now() + GUARD_SECONDS)

    def _away(self) -> frozenset[str]:
        """The machines without an actor, and those whose last attempts are not reported yet."""
        leaving = {
            one.attempt.machine for one in self._flights.values() if math.isfinite(one.lost_at)
        }
        return self._crew.down() | leaving

    def _next_lost(self) -> float:
        return min((flight.lost_at for flight in self._flights.values()), default=math.inf)

    def _report_lost(self) -> None:
        """Attempts whose machine has been away for long enough to be certain that they ended."""
        now = self.now()
        for job, flight in list(self._flights.items()):
            if flight.lost_at <= now:
                del self._flights[job]
                self._occupancy.release(job)
                lost = self._ends.lost(flight.attempt, flight.started, now, flight.stopped)
                self._ended.append(lost)

    def _sleep(self, until: float) -> bool:
        """Wait for an event, at most until the given time; True: woken from outside."""
        ready = self._selector.select(min(max(until - self.now(), 0.0), 3600.0))
        woken = any(key.fd == self._wake for key, _ in ready)
        if woken and self._wake is not None:
            os.read(self._wake, 4096)
        return woken
