"""A process group and how to end it: what the local executor needs of the operating system.

Linux first: exits arrive on a pidfd, and /proc says who is left of a group. Elsewhere the same
functions answer by asking again a little later.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import subprocess


KERNEL_THREAD = 0x00200000  # in the flags of proc(5)
EXEC_SECONDS = 1.0  # at most, for a process that is taking on its program


class Found:
    """A process that somebody else started, with the parts of `subprocess.Popen` used here.

    Args:
        pid: of a process that is known to be the right one now.

    Attributes:
        returncode: always None: nobody tells us.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._born = birth(pid)

    def has_exited(self) -> bool:
        """Whether it has; another process may have its number by now."""
        return self._born is None or birth(self.pid) != self._born

    def wait(self) -> int | None:
        """None: the exit code went to its parent."""
        return None


Process: TypeAlias = "subprocess.Popen[bytes] | Found"

_CAN_PEEK = hasattr(os, "waitid") and hasattr(os, "WNOWAIT")


def exit_descriptor(process: Process) -> int | None:
    """A file descriptor that becomes readable when the process exits; None: not available."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(process.pid)
    except OSError:  # an old kernel, a sandbox that forbids it, or no descriptor left
        return None


def has_exited(process: Process) -> bool:
    """Whether the process has exited, leaving it a zombie.

    Its number, and so the number of its group, cannot go to another process before it is
    collected: a signal sent to the group cannot hit a stranger.
    """
    if isinstance(process, Found):
        return process.has_exited()
    if process.returncode is not None:
        return True
    if not _CAN_PEEK:
        return process.poll() is not None
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, process.pid, options) is not None
    except ChildProcessError:  # somebody else collected it; Popen.poll then says 0
        return True


def signal_group(process: Process, number: int) -> None:
    """Send a signal to the whole group that the process leads; nobody left is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
        if number == signal.SIGTERM:
            os.killpg(process.pid, signal.SIGCONT)  # a stopped process would never see it


def group_is_alive(group: int) -> bool:
    """Whether a process of the group still runs (zombies do not). Without /proc: False."""
    return any(
        int(fields[2]) == group and fields[0] not in (b"Z", b"X") for _, fields in _all_processes()
    )


def group_is_gone(group: int) -> bool:
    """Whether nobody of a group runs any more. Without /proc zombies count as running no more.

    Almost always the number is free by now, and one call says so. It is not given to anybody else
    while a process of the group is left.
    """
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # somebody is there
        pass
    return not group_is_alive(group)


def _all_processes() -> Iterator[tuple[int, list[bytes]]]:
    """(pid, fields) of every process; nothing without /proc."""
    with contextlib.suppress(OSError):
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and (fields := _fields(int(entry.name))) is not None:
                yield int(entry.name), fields


def _fields(pid: int) -> list[bytes] | None:
    """What /proc says of a process from the state on (proc(5): state, parent, group, ...); None:
    it is not there."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # pid (name) state ...; the name may itself contain ")" and spaces.
    return stat[stat.rindex(b")") + 2 :].split()


def birth(pid: int) -> bytes | None:
    """The time at which a process was started, in the kernel's own units; None: it is not there.

    A zombie is not there: it has exited and only waits for its parent.
    """
    fields = _fields(pid)
    return None if fields is None or fields[0] in (b"Z", b"X") else fields[19]


def environment(pid: int) -> list[bytes]:
    """The environment that a process was started with, as ``NAME=value``.

    For a moment after its exec a process has none, and no arguments, although its parent goes on
    already: that moment is waited out, or a process of a queue could pass for a stranger.

    Raises:
        OSError: the process is not there, or not ours to look at.
    """
    deadline = time.monotonic() + EXEC_SECONDS
    has_program = False
    while True:
        variables = Path(f"/proc/{pid}/environ").read_bytes()
        if variables or has_program:
            return variables.split(b"\0")
        fields = _fields(pid)
        if fields is None or fields[0] in (b"Z", b"X") or int(fields[6]) & KERNEL_THREAD:
            return []
        if time.monotonic() >= deadline:
            return []
        has_program = Path(f"/proc/{pid}/cmdline").read_bytes() != b""  # so the next look counts
        time.sleep(0.001)


def memory_of_groups(groups: set[int]) -> dict[int, int]:
    """Bytes that the processes of each group hold for themselves (resident and not shared).

    What is shared, such as the code of libraries, would be counted once per process. Without
    /proc: zeros.
    """
    page = os.sysconf("SC_PAGE_SIZE") if groups else 0
    held = dict.fromkeys(groups, 0)
    for pid, fields in _all_processes() if groups else ():
        group = int(fields[2])
        if group in held:
            with contextlib.suppress(OSError, IndexError, ValueError):  # it has ended since
                size = Path(f"/proc/{pid}/statm").read_bytes().split()
                held[group] += (int(size[1]) - int(size[2])) * page
    return held


def describe_exit(code: int) -> str:
    """One phrase for an exit code: "exit status 3", "killed by SIGSEGV"."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
