"""The actors of a Ray executor: one per machine, hired again elsewhere when it is lost.

A machine is down from the moment that Ray declares its actor dead until another actor answers on a
living node with room for it. Everything that an actor says, and its end, rings a bell.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import queue
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.executor import ray_cluster
from hetsched.executor.ray_worker import Worker

if TYPE_CHECKING:
    from concurrent.futures import Future

    from hetsched.executor.exits import Exits
    from hetsched.executor.protocol import Attempt, Machine
    from hetsched.executor.ray_cluster import Place

LOOK_SECONDS = 1.0  # how often the cluster is searched for a place for a machine that is down
SETTLE_SECONDS = 10.0  # for nodes to end what an earlier scheduler has left there


class Bell:
    """Brings answers of actors from Ray's threads to the one that waits.

    Attributes:
        socket: readable when there is something to `take`.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.socket, self._rope = socket.socketpair()
        self.socket.setblocking(False)
        self._rope.setblocking(False)

    def listen(self, answer: Any, tell: Callable[[Future[Any]], None]) -> None:
        """Have `tell` called with the answer, when it is there, by `take`."""

        def ring(future: Future[Any]) -> None:
            self._calls.put(functools.partial(tell, future))
            with contextlib.suppress(OSError):  # full: it rings already; closed: nobody cares
                self._rope.send(b"x")

        answer.future().add_done_callback(ring)

    def take(self) -> None:
        """Tell everything that has been answered."""
        with contextlib.suppress(BlockingIOError):
            while self.socket.recv(4096):
                pass
        with contextlib.suppress(queue.Empty):
            while True:
                self._calls.get_nowait()()

    def close(self) -> None:
        """No more answers."""
        self.socket.close()
        self._rope.close()


@dataclass
class _Post:
    """A machine, and the actor that is it at the moment."""

    machine: Machine
    place: Place | None = None
    actor: Any = None
    up: bool = False


class Crew:
    """An actor for every machine.

    Args:
        machines: with unique names.
        log_dir: the folder of outputs, which the nodes may share; it exists.
        own_devices: as for `Worker`; the machines are then all on the first node.
        bell: for all that actors say.
        lost: told the name of a machine that has gone away, when Ray is certain of it.
        exits: where exit codes are kept, which the nodes may share; None: nowhere.
    """

    def __init__(
        self,
        machines: tuple[Machine, ...],
        log_dir: Path,
        own_devices: bool,
        bell: Bell,
        lost: Callable[[str], None],
        exits: Exits | None = None,
    ) -> None:
        self._posts = {machine.name: _Post(machine) for machine in machines}
        self._log_dir = log_dir
        self._own_devices = own_devices
        self._bell = bell
        self._lost = lost
        self._next_look = -math.inf
        self._exits = exits
        self._mark = log_dir / f".hetsched-{uuid.uuid4().hex}"
        self._marks = [self._mark]
        if exits is not None:  # one scheduler at a time has this folder
            for left in exits.folder.glob(".hetsched-*"):  # by one that was killed
                left.unlink()
            self._marks.append(exits.path(self._mark.name, 0))
        for mark in self._marks:
            mark.touch()

    def actor(self, name: str) -> Any:
        """A machine's actor; None: the machine is down."""
        post = self._posts[name]
        return post.actor if post.up else None

    def down(self) -> frozenset[str]:
        """The names of the machines without an actor that has answered."""
        return frozenset(name for name, post in self._posts.items() if not post.up)

    def homeless(self) -> list[Machine]:
        """The machines for which no living node has room."""
        return [post.machine for post in self._posts.values() if post.place is None]

    def expected(self) -> bool:
        """Whether an actor has been hired and has not answered yet."""
        return any(post.place is not None and not post.up for post in self._posts.values())

    def look(self) -> float:
        """Hire for the homeless machines.

        Returns:
            Seconds until it is worth to look again; infinity: there is nobody to look for.
        """
        if not self.homeless():
            return math.inf
        wait = self._next_look - time.monotonic()
        if wait > 0:
            return wait
        self._next_look = time.monotonic() + LOOK_SECONDS
        offers = ray_cluster.cluster_offers()
        taken = [(one.machine, one.place) for one in self._posts.values() if one.place is not None]
        for post in self._posts.values():
            if post.place is not None:
                continue
            if self._own_devices:
                post.place = ray_cluster.Place(offers[0].node, 0, 0, {}) if offers else None
            else:
                post.place = ray_cluster.find_place(post.machine, offers, taken)
            if post.place is not None:
                taken.append((post.machine, post.place))
                self._hire(post, post.place)
        return LOOK_SECONDS

    def close(self) -> None:
        """Dismiss all actors; their guards end what still runs."""
        for post in self._posts.values():
            self._dismiss(post)
        for mark in self._marks:
            mark.unlink(missing_ok=True)

    def settle(self, attempt: Attempt) -> None:
        """Have every node that is here end what is left of an earlier scheduler's attempt."""
        import ray

        actors = {
            post.place.node: post.actor
            for post in self._posts.values()
            if post.up and post.place is not None
        }
        answers = [one.settle.remote(attempt.job, attempt.number) for one in actors.values()]
        if answers:
            ray.wait(answers, num_returns=len(answers), timeout=SETTLE_SECONDS)

    def _hire(self, post: _Post, place: Place) -> None:
        """Create a machine's actor; it is up when it has answered."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor: Any = (
            ray.remote(Worker)
            .options(
                num_cpus=place.num_cpus,
                num_gpus=place.num_gpus,
                resources=dict(place.resources),
                max_restarts=0,
                # A thread per unit, one for the vigil, the others to be heard at any time.
                max_concurrency=post.machine.capacity + 4,
                scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False),
            )
            .remote(
                post.machine,
                os.fspath(self._log_dir),
                self._mark.name,
                os.getcwd(),
                self._own_devices,
                self._exits,
            )
        )
        post.actor = actor
        for answer in (actor.hello.remote(), actor.vigil.remote()):
            self._bell.listen(answer, functools.partial(self._told, post, actor))

    def _told(self, post: _Post, actor: Any, answer: Future[Any]) -> None:
        """The actor has said hello, or is gone."""
        from ray.exceptions import ActorUnavailableError

        if post.actor is not actor:
            return  # an earlier one
        error = answer.exception()
        if error is None:
            post.up = True
        elif isinstance(error, ActorUnavailableError):
            # Dead or cut off. What runs there is lost once it is certain that nothing does.
            import ray

            ray.kill(actor)
            self._bell.listen(actor.vigil.remote(), functools.partial(self._told, post, actor))
        else:
            self._dismiss(post)
            self._lost(post.machine.name)

    def _dismiss(self, post: _Post) -> None:
        import ray

        if post.actor is not None:
            with contextlib.suppress(Exception):  # dead already, or the whole cluster is
                ray.kill(post.actor)
        post.actor, post.place, post.up = None, None, False
