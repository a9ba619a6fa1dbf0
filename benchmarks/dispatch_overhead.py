"""What hetsched adds to a job, and how long decisions and submitting take when the queue is long.

    python benchmarks/dispatch_overhead.py [--jobs 500] [--queued 10000] [--out FILE]

* 500 jobs that do nothing (`true`) on 4 slots: the time per job of the local executor, with a state
  on disk, against a bare loop that keeps 4 `subprocess.Popen` going. Both in turn, three times.
  CPU time is of this process and its children: on an idle computer the wall clock shows no more.
* 10,000 queued jobs on 8 machines: the time of a decision, views of the queue included, for the
  shipped policy and for rules, and the memory that the queue takes.
* `dispatch.py submit` to such a queue while a scheduler has it open: wall-clock and CPU time of a
  fresh process, and of an interpreter that does nothing. Modules are compiled once, as everywhere.

A computer that is busy otherwise makes everything slower; the load is written down.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from hetsched.agents.checkpoint import load_policy
from hetsched.agents.rules import make_rule
from hetsched.envs.objective import Objective
from hetsched.executor import store
from hetsched.executor.backlog import Backlog
from hetsched.executor.exits import Exits
from hetsched.executor.guard import Guard
from hetsched.executor.local import LocalExecutor
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, Mode, Queue
from hetsched.executor.restore import resume_queue
from hetsched.executor.store_ledger import StoreLedger

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "dispatch_overhead.json"
SLOTS = 4
POLICIES = ("gpu-cluster", "fifo", "spt", "ect-wait", "atc")
DECISIONS = 30
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"  # a setting of some test machines, and of no user


Times = tuple[float, float]  # wall clock, CPU of this process and its children


def _clocks() -> Times:
    cpu = 0.0
    for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(whose)
        cpu += usage.ru_utime + usage.ru_stime
    return time.perf_counter(), cpu


def _since(before: Times) -> Times:
    now = _clocks()
    return now[0] - before[0], now[1] - before[1]


def bare_loop(jobs: int) -> Times:
    """Seconds for so many trivial processes, four at a time."""
    began = _clocks()
    running: list[subprocess.Popen[bytes]] = []
    for _ in range(jobs):
        if len(running) == SLOTS:
            running.pop(0).wait()
        running.append(subprocess.Popen(["true"], stdin=subprocess.DEVNULL))
    for process in running:
        process.wait()
    return _since(began)


def dispatched(jobs: int, folder: Path, policy: str) -> Times:
    """Seconds for the same as a queue."""
    queue = Queue(
        tuple(Job(f"job {at}", (Mode("cpu", 0.01),), ("true",)) for at in range(jobs)),
        (Machine("cpu", capacity=SLOTS),),
    )
    store.create(folder, queue)
    with contextlib.closing(StoreLedger(folder)) as ledger:
        exits = Exits(folder / store.EXITS, ledger.identity)
        executor = LocalExecutor(queue.machines, folder / store.LOGS, exits=exits)
        with contextlib.closing(executor):
            guard = Guard(make_rule(policy), make_rule("fifo"))
            began = _clocks()
            run = resume_queue(ledger, guard, executor)
            seconds = _since(began)
    assert run.all_done
    return seconds


def overhead(jobs: int, policy: str, repeats: int = 3) -> dict[str, Any]:
    """Milliseconds per job of both, and their difference."""
    bare, ours = [], []
    for _ in range(repeats):
        bare.append(bare_loop(jobs))
        with tempfile.TemporaryDirectory() as folder:
            ours.append(dispatched(jobs, Path(folder, "state"), policy))
    found: dict[str, Any] = {"jobs": jobs, "slots": SLOTS}
    for at, what in enumerate(("wall", "cpu")):
        pairs = [
            (1000 * one[at] / jobs, 1000 * other[at] / jobs)
            for one, other in zip(bare, ours, strict=True)
        ]
        found[what] = {
            "bare_ms_per_job": [one for one, _ in pairs],
            "hetsched_ms_per_job": [other for _, other in pairs],
            "added_median_ms": statistics.median(other - one for one, other in pairs),
        }
    return found


def long_queue(jobs: int) -> Queue:
    """A queue on 8 machines, durations from 1 to 100 s."""
    rng = np.random.default_rng(0)
    machines = tuple(Machine(f"m{at}") for at in range(8))
    seconds = rng.uniform(1, 100, size=(jobs, 8)).tolist()
    return Queue(
        tuple(
            Job(
                f"job {at}",
                tuple(Mode(one.name, value) for one, value in zip(machines, row, strict=True)),
                ("true",),
            )
            for at, row in enumerate(seconds)
        ),
        machines,
    )


def decisions(queue: Queue) -> dict[str, Any]:
    """Milliseconds of a decision at full length, for several policies."""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    backlog = Backlog(queue.machines, Objective.parse(queue.objective))
    backlog.add(queue.jobs)
    built = time.perf_counter() - began
    found: dict[str, Any] = {"jobs": len(queue.jobs), "build_ms": 1000 * built}
    for name in POLICIES:
        policy = load_policy(name) if name == "gpu-cluster" else make_rule(name)
        guard = Guard(policy, make_rule("fifo"))
        times, shown = [], 0
        for _ in range(DECISIONS + 1):
            before = _clocks()
            view = backlog.view(0.0)
            assert view is not None
            guard.decide(view.state)
            times.append(_since(before))
            shown = view.shown
        wall, cpu = zip(*times[1:], strict=True)  # the first warms up
        found[name] = {
            "wall_median_ms": 1000 * statistics.median(wall),
            "wall_max_ms": 1000 * max(wall),
            "cpu_median_ms": 1000 * statistics.median(cpu),
            "shown": shown,
        }
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found["memory_mb"] = (after - memory) / 1024
    return found


def submitting(queue: Queue, repeats: int = 7) -> dict[str, Any]:
    """Milliseconds of `dispatch.py submit` and of an empty interpreter, wall-clock and CPU."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder, "state")
        store.create(state, queue)
        kept = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
        found: dict[str, list[Times]] = {"submit": [], "python": []}
        with contextlib.closing(StoreLedger(state)):
            for at in range(repeats + 1):
                call = [sys.executable, os.fspath(ROOT / "dispatch.py"), "submit"]
                call += ["--state", os.fspath(state), "--name", f"new {at}", "--on", "m0=5"]
                found["submit"].append(_timed([*call, "--", "true"], kept))
                found["python"].append(_timed([sys.executable, "-c", "pass"], kept))
    medians = {
        f"{name}_{what}_ms": 1000 * statistics.median(one[at] for one in times[1:])
        for name, times in found.items()
        for at, what in enumerate(("wall", "cpu"))
    }
    added = medians["submit_cpu_ms"] - medians["python_cpu_ms"]
    return {"jobs": len(queue.jobs), **medians, "added_cpu_ms": added}


def _timed(command: list[str], environment: dict[str, str]) -> Times:
    before = _clocks()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return _since(before)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--policy", default="fifo", help="rule of the trivial jobs")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    queue = long_queue(options.queued)
    result = {
        "load": os.getloadavg()[0],
        "cores": os.cpu_count(),
        "nice": os.nice(0),
        "decisions": decisions(queue),
        "submit": submitting(queue),
        "overhead": overhead(options.jobs, options.policy),
    }
    text = json.dumps(result, indent=2) + "\n"
    print(text, end="")
    options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
