"""Why an attempt really ended: a job's own fault, too little memory, or its machine.

Exit codes do not tell. A framework that runs out of GPU memory exits with status 1, like any other
exception, and so does one whose GPU has fallen off the bus; what it wrote last says which.
"""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hetsched.executor.protocol import Outcome

Cause = Literal["none", "job", "memory", "machine"]

TAIL_BYTES = 16384  # of the log: a traceback of several ranks, and what is printed after it

_NO_MEMORY = re.compile(
    rb"CUDA out of memory|CUDA error: out of memory|HIP out of memory|CUDA_ERROR_OUT_OF_MEMORY"
    rb"|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|torch\.(?:cuda\.)?OutOfMemoryError"
    rb"|RESOURCE_EXHAUSTED: Out of memory|std::bad_alloc|^MemoryError\b|Cannot allocate memory",
    re.MULTILINE,
)
_BROKEN_GPU = re.compile(
    rb"uncorrectable ECC|ECC error|fallen off the bus|GPU is lost|hardware error"
    rb"|unspecified launch failure|CUDA-capable device\(s\) is/are busy or unavailable"
    rb"|no CUDA-capable device|CUDA driver initialization failed|NVML: Driver/library version"
    rb"|CUDA error: (?:an illegal (?:memory access|instruction)|unknown error|misaligned address"
    rb"|device not ready|system not yet initialized)|cudaErrorDevicesUnavailable"
    rb"|illegal memory access was encountered",
)
_SIGNALS_OF_A_MACHINE = (signal.SIGKILL, signal.SIGBUS)
"""Nobody here sent them: the kernel's out-of-memory killer, an operator, failing memory or disks.
SIGSEGV, SIGABRT and the like are faults of programs."""


def explain(outcome: Outcome) -> tuple[Outcome, Cause]:
    """The outcome, told more exactly where the log says more, and whose fault it was.

    A job that was stopped or timed out has ended for no other reason, whatever it wrote.
    """
    if outcome.status in ("done", "cancelled", "preempted"):
        return outcome, "none"
    if outcome.status == "memory":
        return outcome, "memory"
    if outcome.machine_failed:
        return outcome, "machine"
    if outcome.status == "timeout" or outcome.exit_code is None:
        return outcome, "job"
    tail = log_tail(outcome.log)
    if _NO_MEMORY.search(tail):
        reason = f"ran out of memory ({outcome.reason})"
        return replace(outcome, status="memory", reason=reason), "memory"
    if (found := _BROKEN_GPU.search(tail)) is not None:
        said = found[0].decode("ascii", "replace")
        return replace(outcome, reason=f"{outcome.reason}: {said}"), "machine"
    if outcome.status == "lost" and -outcome.exit_code in _SIGNALS_OF_A_MACHINE:
        return outcome, "machine"
    return outcome, "job"


def log_tail(path: str | None) -> bytes:
    """The last bytes of an attempt's output; empty where there is none."""
    if path is None:
        return b""
    try:
        with Path(path).open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - TAIL_BYTES))
            return log.read()
    except OSError:
        return b""
