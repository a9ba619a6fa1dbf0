"""The jobs that benchmarks/gpu.py runs: `python gpu_job.py KIND [VALUE] --on cuda|cpu`.

On the CPU each does the same without torch, as far as it can: steps sleep, and memory is the
process's own.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

GIB = 2**30
SIDE = 4096  # of the matrices of a step
PRODUCTS = 8  # matrix products a step
PAUSE = 0.01  # seconds a step takes on the CPU
FRACTION = 0.05  # of the GPU's memory


def say(**what: Any) -> None:
    """One line of JSON for the benchmark to read."""
    print(json.dumps(what), flush=True)


def look(on: str, value: float) -> None:
    """Say which devices this job sees."""
    if on == "cpu":
        say(count=0, visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
        return
    import torch

    count = torch.cuda.device_count()
    one = torch.cuda.get_device_properties(0) if count else None
    say(
        count=count,
        uuid=str(getattr(one, "uuid", "")),
        name=getattr(one, "name", ""),
        memory=getattr(one, "total_memory", 0),
        torch=torch.__version__,
    )


def steps(on: str, value: float) -> None:
    """Work for `value` seconds, report every step, and say the speed of the second half."""
    step, progress = _step(on), os.environ.get("HETSCHED_PROGRESS")
    for _ in range(3):
        step()
    begun, times = time.monotonic(), [time.monotonic()]
    while times[-1] < begun + value:
        step()
        times.append(time.monotonic())
        if progress:
            with open(progress, "a", encoding="utf-8") as file:
                file.write(f"{len(times) - 1}\n")
    late = [at for at in times if at >= begun + value / 2]
    say(speed=(len(late) - 1) / (late[-1] - late[0]))


def share(on: str, value: float) -> None:
    """Work for `value` seconds and say when each step ended."""
    step = _step(on)
    for _ in range(3):
        step()
    times = [time.time()]
    while times[-1] < times[0] + value:
        step()
        times.append(time.time())
    say(times=times)


def allocate(on: str, value: float) -> None:
    """Take `value` GiB; on a machine called "small" there is half of that."""
    small = os.environ.get("HETSCHED_MACHINE") == "small"
    if on == "cpu":
        if small:
            most = int((value / 2 + 1) * GIB)
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        with mmap.mmap(-1, int((value + 1) * GIB)) as data:  # counts against the limit, costs none
            say(taken=len(data))
        return
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    if small:
        torch.cuda.set_per_process_memory_fraction(value / 2 * GIB / total)
    taken = torch.empty(int(value * GIB), dtype=torch.uint8, device="cuda")
    say(taken=taken.numel())


def fraction(on: str, value: float) -> None:
    """Take less, then more than a share of the GPU's memory; the second must be refused."""
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(FRACTION)
    some = torch.empty(int(0.5 * FRACTION * total), dtype=torch.uint8, device="cuda")
    del some
    torch.cuda.empty_cache()
    try:
        torch.empty(int(2 * FRACTION * total), dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        say(refused=True, limit=FRACTION * total)
    else:
        say(refused=False, limit=FRACTION * total)


def hold(on: str, value: float) -> None:
    """Take `value` GiB and a child along, ignore SIGTERM, and stay."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "600"])  # it ignores SIGTERM too: that is inherited
    if on == "cuda":
        import torch

        taken = torch.empty(int(value * GIB), dtype=torch.uint8, device="cuda").fill_(1)
        torch.cuda.synchronize()
        say(child=child.pid, taken=taken.numel())
    else:
        say(child=child.pid, taken=0)
    time.sleep(600)


def poison(on: str, value: float) -> None:
    """Break the CUDA context; every later call in this process fails."""
    import torch

    data = torch.zeros(4, device="cuda")
    data[torch.tensor([10**6], device="cuda")] += 1
    torch.cuda.synchronize()


def _step(on: str) -> Callable[[], None]:
    if on == "cpu":
        return lambda: time.sleep(PAUSE)
    import torch

    matrix = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        for _ in range(PRODUCTS):
            torch.mm(matrix, matrix)
        torch.cuda.synchronize()

    return step


KINDS = {one.__name__: one for one in (look, steps, share, allocate, fraction, hold, poison)}


def main() -> None:
    """Run the job that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("value", type=float, nargs="?", default=0.0)
    parser.add_argument("--on", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    KINDS[options.kind](options.on, options.value)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
