"""Runs attempts on a Ray cluster: an existing one, or one on this computer.

One long-lived actor per machine holds the machine's resources, so that Ray's own scheduler is done
when the executor is open; which job runs where is decided by the caller. Each attempt is a
process group beside its actor (`hetsched.executor.ray_worker`). Everything arrives as an event: the
end of an attempt, the end of an actor, the first word of a new one. `poll` sleeps until one comes.

A machine is down from the moment that Ray declares its actor dead until another actor answers on a
living node with room for it. This process never touches a GPU.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import selectors
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from hetsched.executor import ray_cluster
from hetsched.executor.protocol import Attempt, Machine, Occupancy, Outcome
from hetsched.executor.ray_cluster import RayUnavailable
from hetsched.executor.ray_worker import Ended, Worker, to_fields

if TYPE_CHECKING:
    from concurrent.futures import Future

    from hetsched.executor.ray_cluster import Place

OPEN_SECONDS = 120.0  # for the machines to answer; those that do not by then are down
LOOK_SECONDS = 1.0  # how often the cluster is searched for a place for a machine that is down
CLOSE_SECONDS = 10.0  # after the grace: what does not end by then is killed with its actor

Event = tuple[Literal["hello", "vigil", "run"], str, int, "Future[Any]"]


@dataclass
class _Flight:
    attempt: Attempt
    serial: int
    started: float
    stopped: bool = False


@dataclass
class _Slot:
    """A machine, and the actor that is it at the moment."""

    machine: Machine
    place: Place | None = None
    actor: Any = None
    up: bool = False
    generation: int = 0  # which actor: what an earlier one still says is not listened to


def open_ray(
    log_dir: str | Path,
    machines: tuple[Machine, ...] | None = None,
    address: str | None = None,
    grace: float = 10.0,
    wake: int | None = None,
) -> RayExecutor:
    """Connect to a Ray cluster, or start one on this computer, and open its machines.

    Args:
        log_dir, grace, wake: as for `RayExecutor`.
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
            own_devices=address is None and ours and machines is not None,
            at_close=ray_cluster.disconnect if ours else lambda: None,
        )
    except BaseException:
        if ours:
            ray_cluster.disconnect()
        raise


class RayExecutor:
    """One actor per machine of a Ray cluster to which this process is connected.

    Args:
        machines: as `Executor.machines`; types and kinds as the cluster offers them.
        log_dir: where outputs go. On nodes that have this folder too they are complete, from
            others the end of each is sent here.
        grace: seconds between SIGTERM and SIGKILL (>= 0).
        wake: a non-blocking file descriptor; when it is readable, `poll` empties it and returns
            early.
        own_devices: the machines' devices are taken literally, all on the only node; False: Ray
            says which GPUs of a node a machine gets.
        at_close: called last of all when the executor is closed.

    Raises:
        ValueError: a negative grace, or two machines with one name.
        RayUnavailable: the cluster has no place for a machine, or none has answered in time.
        OSError: the log folder cannot be made.
    """

    def __init__(
        self,
        machines: tuple[Machine, ...],
        log_dir: str | Path,
        grace: float = 10.0,
        wake: int | None = None,
        own_devices: bool = False,
        at_close: Callable[[], None] = lambda: None,
    ) -> None:
        if not grace >= 0:
            raise ValueError(f"ray executor: grace is {grace}; it must be 0 or more seconds.")
        self._machines = machines
        self._occupancy = Occupancy(machines)
        self._log_dir = Path(log_dir).absolute()
        self._log_dir.mkdir(parents=True, exist_ok=True)
        self._grace = grace
        self._wake = wake
        self._own_devices = own_devices
        self._at_close = at_close
        self._slots = {machine.name: _Slot(machine) for machine in machines}
        self._down = frozenset(self._slots)
        self._flights: dict[str, _Flight] = {}
        self._serial = 0
        self._ended: list[Outcome] = []  # ended, not yet reported
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._bell, self._ring = socket.socketpair()
        self._bell.setblocking(False)
        self._ring.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._bell, selectors.EVENT_READ)
        if wake is not None:
            self._selector.register(wake, selectors.EVENT_READ)
        self._mark = self._log_dir / f".hetsched-{uuid.uuid4().hex}"
        self._mark.touch()
        self._opened = time.monotonic()
        self._next_look = 0.0
        self._closed = False
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @property
    def machines(self) -> tuple[Machine, ...]:
        """See `Executor.machines`."""
        return self._machines

    def down(self) -> frozenset[str]:
        """See `Executor.down`."""
        return self._down

    def now(self) -> float:
        """See `Executor.now`."""
        return time.monotonic() - self._opened

    def start(self, attempt: Attempt) -> float:
        """See `Executor.start`."""
        units = self._occupancy.take(attempt)
        slot = self._slots[attempt.machine]
        started = self.now()
        if not slot.up:
            self._occupancy.release(attempt.job)
            self._ended.append(_lost(attempt, started, started, None))
            return started
        self._serial += 1
        answer = slot.actor.run.remote(self._serial, to_fields(attempt), units, self._grace)
        self._flights[attempt.job] = _Flight(attempt, self._serial, started)
        self._listen("run", slot, answer, attempt.job)
        return started

    def poll(self, until: float = math.inf) -> list[Outcome]:
        """See `Executor.poll`."""
        while True:
            before = self._down
            self._receive()
            look = self._look()
            idle = not self._flights and math.isinf(until)
            if self._ended or self._down != before or idle or self.now() >= until:
                break
            if self._sleep(min(until, look)):
                self._receive()
                break
        ended, self._ended = self._ended, []
        return ended

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
            self._receive()
            if self._flights and self._sleep(give_up):
                for job in list(self._flights):  # asked a second time: no more patience
                    self.stop(job, grace=0.0)
        for slot in self._slots.values():
            self._abandon(slot)
        self._mark.unlink(missing_ok=True)
        self._selector.close()
        self._at_close()
        # The sockets stay open until we are collected: a late event may still ring.

    def _open(self) -> None:
        offers = ray_cluster.cluster_offers()
        self._look()
        homeless = [slot.machine for slot in self._slots.values() if slot.place is None]
        if homeless:
            first = homeless[0]
            raise RayUnavailable(
                f"machine {first.name!r}: the Ray cluster has no room for it; it offers "
                f"{ray_cluster.describe(offers)}, so use machines of these types."
            )
        give_up = self.now() + OPEN_SECONDS
        while self._down and self.now() < give_up:
            self._receive()
            if self._down and self._sleep(min(give_up, self._look())):
                break  # somebody does not want to wait any longer
        if len(self._down) == len(self._slots):
            raise RayUnavailable(
                "no machine of the Ray cluster answered; see that nobody else holds its GPUs."
            )

    def _end(self, how: str, job: str, grace: float | None) -> None:
        flight = self._flights.get(job)
        if flight is not None:
            patience = self._grace if grace is None else grace
            flight.stopped = flight.stopped or how == "stop"
            slot = self._slots[flight.attempt.machine]
            slot.actor.end.remote(flight.serial, how, patience)

    def _listen(self, kind: Any, slot: _Slot, answer: Any, what: str) -> None:
        """Have the answer of an actor ring the bell (in a thread of Ray's)."""
        generation = slot.generation

        def tell(future: Future[Any]) -> None:
            self._events.put((kind, what, generation, future))
            with contextlib.suppress(OSError):  # full: it rings already
                self._ring.send(b"x")

        answer.future().add_done_callback(tell)

    def _receive(self) -> None:
        """Take in everything that has been told."""
        with contextlib.suppress(BlockingIOError):
            while self._bell.recv(4096):
                pass
        with contextlib.suppress(queue.Empty):
            while True:
                kind, what, generation, future = self._events.get_nowait()
                if kind == "run":
                    self._attempt_told(what, generation, future)
                else:
                    self._worker_told(kind, self._slots[what], generation, future)

    def _attempt_told(self, job: str, generation: int, future: Future[Any]) -> None:
        from ray.exceptions import RayActorError

        flight = self._flights.get(job)
        if flight is None or self._slots[flight.attempt.machine].generation != generation:
            return
        error = future.exception()
        if isinstance(error, RayActorError):
            return  # the actor is dead or out of sight; its vigil will say which
        del self._flights[job]
        self._occupancy.release(job)
        ended: Ended
        if error is not None:
            ended = Ended("failed", None, f"could not be started: {_first_line(error)}", None, None)
        else:
            ended = future.result()
        self._ended.append(
            Outcome(
                flight.attempt,
                ended.status,
                flight.started,
                self.now(),
                ended.exit_code,
                ended.reason,
                self._keep(flight.attempt, ended),
            )
        )

    def _worker_told(self, kind: str, slot: _Slot, generation: int, future: Future[Any]) -> None:
        from ray.exceptions import ActorUnavailableError

        if slot.generation != generation:
            return
        error = future.exception()
        if error is None:
            slot.up = kind == "hello" or slot.up
        elif isinstance(error, ActorUnavailableError):
            # Dead or cut off: what runs there is lost once it is certain that nothing does.
            import ray

            ray.kill(slot.actor)
            self._listen("vigil", slot, slot.actor.vigil.remote(), slot.machine.name)
            return
        else:
            self._abandon(slot)
        self._down = frozenset(name for name, one in self._slots.items() if not one.up)

    def _abandon(self, slot: _Slot) -> None:
        """Give up a machine's actor; what ran there is lost."""
        import ray

        if slot.actor is not None:
            with contextlib.suppress(Exception):  # dead already, or the cluster is
                ray.kill(slot.actor)
        slot.actor, slot.place, slot.up = None, None, False
        slot.generation += 1
        for job, flight in list(self._flights.items()):
            if flight.attempt.machine == slot.machine.name:
                del self._flights[job]
                self._occupancy.release(job)
                log = self._log_dir / _log_name(flight.attempt)
                where = os.fspath(log) if log.exists() else None
                lost = _lost(flight.attempt, flight.started, self.now(), where)
                if flight.stopped:
                    lost = replace(lost, status="cancelled", reason=f"stopped; {lost.reason}")
                self._ended.append(lost)

    def _look(self) -> float:
        """Find places for machines that have none; returns when to look again."""
        homeless = [slot for slot in self._slots.values() if slot.place is None]
        if not homeless:
            return math.inf
        now = self.now()
        if now < self._next_look:
            return self._next_look
        self._next_look = now + LOOK_SECONDS
        offers = ray_cluster.cluster_offers()
        taken = [(one.machine, one.place) for one in self._slots.values() if one.place is not None]
        for slot in homeless:
            slot.place = (
                ray_cluster.Place(offers[0].node, 0, 0, {})
                if self._own_devices and offers
                else ray_cluster.find_place(slot.machine, offers, taken)
            )
            if slot.place is not None:
                taken.append((slot.machine, slot.place))
                self._hire(slot, slot.place)
        return self._next_look

    def _hire(self, slot: _Slot, place: Place) -> None:
        """Create a machine's actor; it is up when it has answered."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        slot.actor = (
            ray.remote(Worker)
            .options(
                num_cpus=place.num_cpus,
                num_gpus=place.num_gpus,
                resources=dict(place.resources),
                max_restarts=0,
                # A thread per unit, one for the vigil, the others to be heard at any time.
                max_concurrency=slot.machine.capacity + 4,
                scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False),
            )
            .remote(
                slot.machine,
                os.fspath(self._log_dir),
                self._mark.name,
                os.getcwd(),
                self._own_devices,
            )
        )
        self._listen("hello", slot, slot.actor.hello.remote(), slot.machine.name)
        self._listen("vigil", slot, slot.actor.vigil.remote(), slot.machine.name)

    def _keep(self, attempt: Attempt, ended: Ended) -> str | None:
        """The path of the output on this computer."""
        if ended.output is None:
            return ended.log
        path = self._log_dir / _log_name(attempt)
        path.write_bytes(ended.output)
        return os.fspath(path)

    def _sleep(self, until: float) -> bool:
        """Wait for an event, at most until the given time; True: woken from outside."""
        seconds = min(max(until - self.now(), 0.0), 3600.0)
        ready = self._selector.select(seconds)
        woken = any(key.fd == self._wake for key, _ in ready)
        if woken and self._wake is not None:
            os.read(self._wake, 4096)
        return woken


def _lost(attempt: Attempt, started: float, ended: float, log: str | None) -> Outcome:
    reason = f"machine {attempt.machine!r} went away"
    return Outcome(attempt, "lost", started, ended, None, reason, log)


def _log_name(attempt: Attempt) -> str:
    return f"{quote(attempt.job, safe=' ')}.{attempt.number}.log"


def _first_line(error: BaseException) -> str:
    return str(getattr(error, "cause", None) or error).strip().partition("\n")[0]
