"""A process group and how to end it: what the local executor needs of the operating system.

Linux first: exits arrive on a pidfd, and /proc says who is left of a group. Elsewhere the same
functions answer by asking again a little later.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

_CAN_PEEK = hasattr(os, "waitid") and hasattr(os, "WNOWAIT")


def exit_descriptor(process: subprocess.Popen[bytes]) -> int | None:
    """A file descriptor that becomes readable when the process exits; None: not available."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(process.pid)
    except OSError:  # an old kernel, a sandbox that forbids it, or no descriptor left
        return None


def has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has exited, leaving it a zombie.

    Its number, and so the number of its group, cannot go to another process before it is
    collected: a signal sent to the group cannot hit a stranger.
    """
    if process.returncode is not None:
        return True
    if not _CAN_PEEK:
        return process.poll() is not None
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, process.pid, options) is not None
    except ChildProcessError:  # somebody else collected it; Popen.poll then says 0
        return True


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the whole group that the process leads; nobody left is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
        if number == signal.SIGTERM:
            os.killpg(process.pid, signal.SIGCONT)  # a stopped process would never see it


def group_is_alive(group: int) -> bool:
    """Whether a process of the group still runs (zombies do not). Without /proc: False."""
    with contextlib.suppress(OSError):
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                stat = Path(entry.path, "stat").read_bytes()
            except OSError:  # it has ended since
                continue
            # pid (name) state parent group ...; the name may itself contain ")" and spaces.
            state, _, its_group = stat[stat.rindex(b")") + 2 :].split(maxsplit=3)[:3]
            if int(its_group) == group and state not in (b"Z", b"X"):
                return True
    return False


def describe_exit(code: int) -> str:
    """One phrase for an exit code: "exit status 3", "killed by SIGSEGV"."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
