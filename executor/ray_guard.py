"""Kills what a worker leaves behind: ``python ray_guard.py TOKEN``, started by `start_guard`.

A worker can die without a word: its node's Ray stops, the kernel kills it, the scheduler is gone.
Its jobs lead sessions of their own and would go on, unseen, on a GPU that is given away again. So
every worker has a guard, a process that belongs to nobody and waits for the end of its standard
input. That pipe closes with the worker, however it dies. Then the guard kills every process group
that has a member with the worker's token in its environment, until there is none.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

VARIABLE = "HETSCHED_WORKER"  # in the environment of everything that a worker starts
LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 10.0  # what the kernel cannot end by then is left to it


def start_guard(token: str) -> subprocess.Popen[bytes]:
    """Start a guard that acts when this process is gone, and wait until it is on duty.

    Args:
        token: the value of VARIABLE in the environment of what is to be killed.

    Returns:
        The process whose standard input must stay open. It has ended itself: the guard is its
        orphan, because whoever ends a worker may end the worker's children first.

    Raises:
        RuntimeError: the guard could not be started.
    """
    guard = subprocess.Popen(
        (sys.executable, "-I", "-S", __file__, token),  # needs no more than the standard library
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name != VARIABLE},
        start_new_session=True,
    )
    if guard.wait() != 0:
        raise RuntimeError(f"the guard of a worker ended with status {guard.returncode}")
    return guard


def groups_with(token: str) -> set[int]:
    """The process groups in which a living process carries the token."""
    wanted = f"{VARIABLE}={token}".encode()
    groups = set()
    for entry in os.scandir("/proc"):
        # Gone in the meantime, or somebody else's: not ours to kill.
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                variables = Path(entry.path, "environ").read_bytes()
                if wanted in variables.split(b"\0"):
                    groups.add(os.getpgid(int(entry.name)))
    return groups - {os.getpgid(0)}


def kill_all(token: str) -> None:
    """Kill every group with the token, and what they start meanwhile."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while (groups := groups_with(token)) and time.monotonic() < give_up:
        for group in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)


def main() -> None:
    """Wait for the end of the standard input, then kill."""
    (token,) = sys.argv[1:]
    if os.fork():
        os._exit(0)
    while sys.stdin.buffer.read(4096):
        pass
    kill_all(token)


if __name__ == "__main__":
    main()
