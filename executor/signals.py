"""Turns Ctrl-C and its relatives into a request that a waiting loop can see.

An exception raised by a signal can strike between the start of a process and the note that it
runs, and leave an orphan. A request cannot: it is looked at where nothing is half done.
"""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from types import FrameType
from typing import Any

STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")


class StopSignals:
    """While entered (main thread only), stop signals are counted instead of ending the process.

    Attributes:
        count: how many have arrived.
        last: the number of the latest; None before the first.
        descriptor: a non-blocking file descriptor that is readable once a signal has arrived.

    Args:
        bell: a named pipe; it serves as the descriptor, so that other processes can make it
            readable too. None: nobody else can.
    """

    def __init__(self, bell: Path | None = None) -> None:
        self.count = 0
        self.last: int | None = None
        self._sockets: tuple[socket.socket, ...] = ()
        if bell is None:
            self._sockets = socket.socketpair()
            for one in self._sockets:
                one.setblocking(False)
            self._reader, self._writer = (one.fileno() for one in self._sockets)
        else:  # open for writing too: without a writer it would always be readable
            self._reader = self._writer = os.open(bell, os.O_RDWR | os.O_NONBLOCK)
        self._before: dict[int, Any] = {}
        self._wakeup = -1

    @property
    def descriptor(self) -> int:
        """Readable once a signal has arrived."""
        return self._reader

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.last = number

    def __enter__(self) -> StopSignals:
        # The interpreter itself writes here, also for a signal that arrives just before a wait.
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for name in STOPPING:
            number = getattr(signal, name, None)
            # nohup ignores SIGHUP and wants it to stay so.
            if number is None or (name == "SIGHUP" and signal.getsignal(number) == signal.SIG_IGN):
                continue
            self._before[number] = signal.signal(number, self._note)
        if hasattr(signal, "SIGCHLD"):  # where it is ignored, exit statuses are lost
            self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        for one in self._sockets:
            one.close()
        if not self._sockets:
            os.close(self._reader)
