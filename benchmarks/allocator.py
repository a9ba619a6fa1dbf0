"""What keeping freed memory saves: time and page faults of elementwise tensor operators.

    python benchmarks/allocator.py [--repeats 5] [--json benchmarks/results/allocator.json]

Each line of the table compares fresh processes that differ in one thing: whether
:func:`hetsched.cli.keep_freed_memory` was called. A process runs ``z = (x + 1) * y`` on tensors of
one size, one thread, and counts the CPU time and the page faults of the measured part only. The
variants take turns, so that a busy computer slows both alike; the table gives the median and the
range of the repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hetsched.cli import keep_freed_memory, run

SIZES = (1, 10, 30, 60)  # megabytes of one tensor; a rollout of 256 instances has tens
VARIANTS = ("as it is", "kept")
BYTES_PER_PROCESS = 2 * 2**30  # how much each process writes, whatever the size
MEGABYTE = 2**20


def measure(megabytes: int, keep: bool) -> dict[str, float]:
    """Milliseconds of CPU time and page faults per operator, in this process.

    Args:
        megabytes: size of each tensor.
        keep: whether freed memory is kept.

    Raises:
        RuntimeError: it cannot be kept, as this is not Linux with glibc.
    """
    if keep and not keep_freed_memory():
        raise RuntimeError("mallopt is not available here; this benchmark needs Linux with glibc")
    import torch

    torch.set_num_threads(1)
    x = torch.ones(megabytes * MEGABYTE // 4)  # float32
    y = torch.ones_like(x)
    for _ in range(3):
        z = (x + 1) * y
    rounds = max(8, BYTES_PER_PROCESS // (2 * megabytes * MEGABYTE))
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    started = time.process_time()
    for _ in range(rounds):
        z = (x + 1) * y
    seconds = time.process_time() - started
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    assert float(z[-1]) == 2.0
    return {"milliseconds": seconds * 1e3 / (2 * rounds), "page_faults": faults / (2 * rounds)}


def measure_in_child(megabytes: int, keep: bool) -> dict[str, float]:
    """:func:`measure` in a fresh process whose environment says nothing about the allocator."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MALLOC_") and name not in ("GLIBC_TUNABLES", "LD_PRELOAD")
    }
    command = [sys.executable, __file__, "--child", str(megabytes), str(int(keep))]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(answer.stdout)
    return result


def compare(megabytes: int, repeats: int) -> dict[str, Any]:
    """One line of the table: both variants, in turns."""
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    for _ in range(repeats):
        for name in VARIANTS:
            measured[name].append(measure_in_child(megabytes, keep=name == "kept"))
    line: dict[str, Any] = {"megabytes": megabytes}
    for name, runs in measured.items():
        line[name] = {key: [one[key] for one in runs] for key in runs[0]}
    return line


def show(lines: list[dict[str, Any]]) -> None:
    """Print the table."""
    print("                as it is                          freed memory kept")
    print(
        "  MB CPU ms per operator      page faults CPU ms per operator      page faults  speed-up"
    )
    for line in lines:
        cells = []
        for name in VARIANTS:
            times, faults = line[name]["milliseconds"], line[name]["page_faults"]
            spread = f"{statistics.median(times):.2f} ({min(times):.2f}-{max(times):.2f})"
            cells.append(f"{spread:>19} {statistics.median(faults):>14,.0f}")
        before, after = (statistics.median(line[name]["milliseconds"]) for name in VARIANTS)
        print(f"{line['megabytes']:>4} {'  '.join(cells)} {before / after:>8.1f}x")


def main() -> None:
    """Measure, print the table, keep the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--json", type=Path, default=Path(__file__).with_name("results") / "allocator.json"
    )
    parser.add_argument("--child", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child[0], bool(options.child[1]))))
        return
    lines = [compare(megabytes, options.repeats) for megabytes in SIZES]
    show(lines)
    import torch

    report = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "libc": " ".join(platform.libc_ver()),
        "cores": os.cpu_count(),
        "lines": lines,
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    run(main)
