"""Exit codes that outlive the process that waits for them.

A job's exit status goes to its parent, and a parent that has been killed can pass it on to nobody.
So each command runs under a shell of four words, which writes the status to a file, and each of
its processes carries the queue's identity in its environment. A scheduler that comes back finds
what still runs by the environment (the number of a process may belong to another by now) and what
has ended by the file.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from hetsched.executor import processes

# SIGTERM reaches the whole group. The command gets it too, with its usual effect, because a trap
# that does something is not inherited; the shell waits for it, and so can still note the status.
_SCRIPT = 'trap : TERM INT HUP; "$@"; code=$?; echo $code >"$0"; exit $code'
_QUEUE, _JOB, _NUMBER, _UNITS = (
    f"HETSCHED_{word}=".encode() for word in ("QUEUE", "JOB", "ATTEMPT", "UNITS")
)
KILL_SECONDS = 5.0  # at most, for what was killed to be gone
LONGEST_NAME = 200  # bytes of a file's name that a job's name may take; file systems allow 255


def file_name(job: str, number: int, suffix: str) -> str:
    """A file's name for an attempt: the job's name where the file system can take it."""
    safe = quote(job, safe=" ")
    if len(safe) > LONGEST_NAME:
        import hashlib

        safe = safe[: LONGEST_NAME - 20] + hashlib.sha256(job.encode()).hexdigest()[:20]
    return f"{safe}.{number}.{suffix}"


@dataclass(frozen=True)
class Marked:
    """A living process of an attempt; `units`: of the machine, as told to it."""

    pid: int
    job: str
    number: int
    units: tuple[int, ...]
    arguments: tuple[str, ...]


class Exits:
    """Where the exit statuses of one queue's attempts are kept.

    Args:
        folder: made if absent.
        identity: of the queue, the same for as long as it exists, and no other's.

    Raises:
        OSError: the folder cannot be made.
    """

    def __init__(self, folder: str | Path, identity: str) -> None:
        self.folder = Path(folder).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.identity = identity

    def path(self, job: str, number: int) -> Path:
        """The file of an attempt."""
        return self.folder / file_name(job, number, "exit")

    def wrap(self, command: tuple[str, ...], job: str, number: int) -> tuple[str, ...]:
        """The command under a shell that notes its exit status."""
        return ("/bin/sh", "-c", _SCRIPT, os.fspath(self.path(job, number)), *command)

    def environment(self, units: tuple[int, ...]) -> dict[str, str]:
        """What marks the processes of an attempt, beside its job and number."""
        return {
            "HETSCHED_QUEUE": self.identity,
            "HETSCHED_UNITS": ",".join(str(unit) for unit in units),
        }

    def read(self, job: str, number: int) -> tuple[int, float] | None:
        """Exit code (negative for a signal) and wall-clock time of an attempt's end, if noted."""
        path = self.path(job, number)
        try:
            text = path.read_text(encoding="ascii")
            ended = path.stat().st_mtime
        except (OSError, UnicodeDecodeError):
            return None
        if not text.endswith("\n") or not text.strip().isdigit():
            return None  # it was written when the power failed
        return exit_code(int(text)), ended

    def forget(self, job: str, number: int) -> None:
        """Remove an attempt's file."""
        self.path(job, number).unlink(missing_ok=True)

    def marked(self) -> list[Marked]:
        """All living processes of the queue, as /proc tells; none where there is no /proc."""
        found = []
        mine = _QUEUE + self.identity.encode()
        with contextlib.suppress(OSError):
            for entry in os.scandir("/proc"):
                if not entry.name.isdigit():
                    continue
                with contextlib.suppress(OSError, ValueError):
                    variables = processes.environment(int(entry.name))
                    if mine in variables and (one := _marked(int(entry.name), variables)):
                        found.append(one)
        return found

    def wrapper_of(self, living: list[Marked], job: str, number: int) -> Marked | None:
        """The shell of an attempt among the processes."""
        path = os.fspath(self.path(job, number))
        for one in living:
            if one.job == job and one.number == number and one.arguments[2:4] == (_SCRIPT, path):
                return one
        return None

    def kill(self, job: str | None = None, number: int = 0) -> int:
        """SIGKILL all living processes of an attempt, or of the queue; returns how many.

        They are gone then, except those that the kernel cannot end within KILL_SECONDS.
        """
        killed: set[int] = set()
        deadline = time.monotonic() + KILL_SECONDS
        for _ in range(10):  # what forks while it is looked for is found the next time
            left = [
                one
                for one in self.marked()
                if one.pid != os.getpid()
                and (job is None or (one.job, one.number) == (job, number))
            ]
            if not left:
                break
            dying = {one.pid: end for one in left if (end := self._kill(one)) is not None}
            killed |= dying.keys()
            for end in dying.values():
                # Readable when its files, a GPU among them, are closed and only a zombie is left.
                select.select([end], [], [], max(0.0, deadline - time.monotonic()))
                os.close(end)
        return len(killed)

    def _kill(self, process: Marked) -> int | None:
        """A descriptor of the process that was killed; None: it was not there any more."""
        if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
            return None
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:  # it has ended since
            return None
        try:
            # The descriptor is of whoever has the number now; is that still the one we meant?
            if _QUEUE + self.identity.encode() in processes.environment(process.pid):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return descriptor
        except OSError:
            pass
        os.close(descriptor)
        return None


def exit_code(status: int) -> int:
    """An exit code as `subprocess` gives it from one as shells do: 128 + a signal's number."""
    with contextlib.suppress(ValueError):
        if status > 128:
            return -signal.Signals(status - 128)
    return status


def _marked(pid: int, variables: list[bytes]) -> Marked | None:
    values = {}
    for prefix in (_JOB, _NUMBER, _UNITS):
        for variable in variables:
            if variable.startswith(prefix):
                values[prefix] = variable[len(prefix) :].decode(sys.getfilesystemencoding())
    if _JOB not in values or _NUMBER not in values:
        return None
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return Marked(
        pid,
        values[_JOB],
        int(values[_NUMBER]),
        tuple(int(unit) for unit in values.get(_UNITS, "").split(",") if unit),
        tuple(os.fsdecode(one) for one in arguments),
    )
