"""Does what the simulated executor predicts come true on the local one?

Queues of 50 short jobs that only sleep, 0.2 to 2 s and for every job and each of 4 slots another
time, are run by the same policies on both: first on the simulated executor's clock, then as
processes. The makespans are compared, in percent of the predicted one.

    python benchmarks/sim_vs_local.py                          # some 3 minutes
    python benchmarks/sim_vs_local.py --jobs 8 --seeds 1 --policy spt --out short.json

What the local executor adds (decisions, starting processes, noticing their ends) takes CPU time, so
a busy computer shows larger differences; the load is kept with every figure. Status 1: a difference
is larger than asked.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hetsched import cli
from hetsched.executor.commands.common import chosen_policy
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, Mode, Queue

if TYPE_CHECKING:
    from hetsched.agents.policy import Policy
    from hetsched.executor.adapter import Run

RESULT = Path(__file__).resolve().parent / "results" / "sim_vs_local.json"
MACHINES = tuple(Machine(f"slot-{at}") for at in range(4))
SHORTEST, LONGEST = 0.2, 2.0  # seconds of a job
ASKED = 3.0  # percent


@dataclass(frozen=True)
class Figure:
    """One queue under one policy.

    Attributes:
        simulated, local: makespans, seconds.
        percent: by how much the local one is longer.
        elsewhere: jobs that ran on another slot than predicted: the order of ends that are only
            milliseconds apart may change, and with it what is decided next.
        load: mean number of processes that wanted a CPU in the minute before.
    """

    seed: int
    policy: str
    simulated: float
    local: float
    percent: float
    elsewhere: int
    load: float


def make_queue(jobs: int, seed: int) -> Queue:
    """Jobs that sleep as long as they say on each slot."""
    seconds = np.random.default_rng(seed).uniform(SHORTEST, LONGEST, (jobs, len(MACHINES)))
    made = []
    for at, row in enumerate(seconds.round(3).tolist()):
        modes = tuple(Mode(one.name, value) for one, value in zip(MACHINES, row, strict=True))
        cases = " ".join(f"{mode.machine}) exec sleep {mode.seconds};;" for mode in modes)
        command = f'case "$HETSCHED_MACHINE" in {cases} esac'
        made.append(Job(f"job {at}", modes, command))
    return Queue(tuple(made), MACHINES)


def compare(queue: Queue, policy: Policy, seed: int) -> Figure:
    """Run a queue on both executors.

    Raises:
        RuntimeError: a job did not sleep to its end.
    """
    from hetsched.executor.adapter import run_queue
    from hetsched.executor.local import LocalExecutor
    from hetsched.executor.simulated import SimulatedExecutor

    predicted = run_queue(queue, policy, SimulatedExecutor(queue.machines))
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        executor = LocalExecutor(queue.machines, folder)
        with contextlib.closing(executor):
            real = run_queue(queue, policy, executor)
    if not (predicted.all_done and real.all_done):
        raise RuntimeError("a job that sleeps was not done; is `sleep` of this system whole?")
    simulated, local = _makespan(predicted), _makespan(real)
    places, found = _places(predicted), _places(real)
    elsewhere = sum(places[job] != found[job] for job in places)
    percent = 100 * (local / simulated - 1)
    return Figure(seed, policy.name, simulated, local, percent, elsewhere, load)


def _makespan(run: Run) -> float:
    return max(one.ended for one in run.outcomes)


def _places(run: Run) -> dict[str, str]:
    return {one.attempt.job: one.attempt.machine for one in run.outcomes}


def table(figures: Sequence[Figure]) -> str:
    """The figures for people."""
    width = max(6, *(len(one.policy) for one in figures))
    lines = [
        f"{'policy':<{width}} {'seed':>5} {'simulated s':>12} {'local s':>9} {'longer by':>10} "
        f"{'elsewhere':>10} {'load':>6}"
    ]
    lines += [
        f"{one.policy:<{width}} {one.seed:>5} {one.simulated:>12.3f} {one.local:>9.3f} "
        f"{one.percent:>8.2f} % {one.elsewhere:>10} {one.load:>6.2f}"
        for one in figures
    ]
    return "\n".join(lines)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options; ends with status 2 where they make no sense."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--jobs", type=int, default=50, help="of a queue (default %(default)s)")
    add("--seeds", type=int, default=5, help="number of queues (default %(default)s)")
    add("--first-seed", type=int, default=0, help="(default %(default)s)")
    add("--policy", action="append", metavar="NAME",
        help="a rule, a shipped policy or a checkpoint; may be repeated (default ect-wait and "
        "gpu-cluster)")  # fmt: skip
    add("--asked", type=float, default=ASKED, metavar="PERCENT",
        help="largest difference that is well (default %(default)s)")  # fmt: skip
    add("--out", type=Path, default=RESULT, help="where the figures are kept")
    options = parser.parse_args(arguments)
    for name in ("jobs", "seeds", "asked"):
        if not getattr(options, name) > 0:
            parser.error(f"--{name} must be above 0, got {getattr(options, name)}")
    if options.first_seed < 0:
        parser.error(f"--first-seed must be 0 or more, got {options.first_seed}")
    if not options.out.absolute().parent.is_dir():
        parser.error(f"--out: there is no folder {options.out.absolute().parent}; make it first")
    options.policy = options.policy or ["ect-wait", "gpu-cluster"]
    return options


def measure(options: argparse.Namespace) -> int:
    """Carry out the command; returns its exit status."""
    policies = [chosen_policy(name, "--policy") for name in options.policy]
    cli.prepare_process(1)
    figures = []
    for policy in policies:
        compare(make_queue(2, 0), policy, 0)  # what is loaded at first use is no part of a queue
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            figures.append(compare(make_queue(options.jobs, seed), policy, seed))
    largest = max(abs(one.percent) for one in figures)
    print(table(figures))
    print(f"largest difference: {largest:.2f} %, asked: {options.asked:g} %")
    kept = {
        "jobs": options.jobs,
        "slots": len(MACHINES),
        "cores": os.cpu_count(),
        "nice": os.nice(0),
        "asked_percent": options.asked,
        "largest_percent": largest,
        "figures": [asdict(one) for one in figures],
    }
    options.out.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return int(largest > options.asked)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    options = parse(arguments)
    status: list[int] = []
    cli.run(lambda: status.append(measure(options)))
    sys.exit(status[0])


if __name__ == "__main__":
    main()
