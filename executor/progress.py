"""How far running jobs say they are: the file that HETSCHED_PROGRESS names to each attempt.

A job appends lines ``STEP [UNITS]`` to it, as for profiling (`hetsched.executor.profiling_steps`),
or the share that is done: ``0.25`` or ``25%``. Nobody reads it but those who look at the queue.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
from pathlib import Path

VARIABLE = "HETSCHED_PROGRESS"
SUFFIX = "progress"  # of the file, which lies beside the attempt's log
TAIL_BYTES = 512


def read_share(path: Path, steps: float) -> float | None:
    """The share of its work that a job has done, 0 to 1; None: it does not say.

    Args:
        path: the attempt's file, which may be absent, or anything that a job has put there.
        steps: all of the job's work; 0: not known. Then only shares can be understood.
    """
    try:
        # A pipe would keep us waiting, and a link might lead to somebody else's file.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        tail = os.pread(descriptor, TAIL_BYTES, max(0, status.st_size - TAIL_BYTES))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    for line in reversed(tail.decode(errors="replace").splitlines()):
        share = _share(line, steps)
        if share is not None:
            return share
    return None


def _share(line: str, steps: float) -> float | None:
    words = line.split()
    if len(words) not in (1, 2):
        return None
    value = math.nan
    with contextlib.suppress(ValueError):
        if words[-1].endswith("%"):
            value = float(words[-1][:-1]) / 100
        elif steps > 0:
            value = float(words[-1]) / steps
        elif not words[-1].isdecimal():  # "1" of who knows how many is the first step
            value = float(words[-1])
            value = value if 0 <= value <= 1 else math.nan
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else None
