"""Jobs that crash, hang, ignore SIGTERM, under a scheduler that is killed: is all accounted for?

Thousands of short jobs run on this computer with a state in a folder. At random times the scheduler
gets SIGKILL and another takes its place, and machines are drained and come back. In the end every
job must be in exactly one final state, which must be the right one; every job that is done must
have run to its end once, and no other; no process may be left; and memory may not grow.

    python benchmarks/soak.py                      # 5,000 jobs, some minutes
    python benchmarks/soak.py --jobs 200 --seed 3

The schedulers are forks of this process, so that a restart costs no import of torch.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from hetsched.executor import store
from hetsched.executor.exits import Exits
from hetsched.executor.ledger import Request
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, Mode, Queue
from hetsched.executor.store_client import FINAL, Client

RESULT = Path(__file__).resolve().parent / "results" / "soak.json"
MACHINES = (Machine("fast", capacity=2), Machine("slow", capacity=2), Machine("spare", capacity=1))
GROWTH_MB = 64.0
# Ends by itself, saves itself on SIGTERM, and says that it was here, once and at its very end.
GOOD = "trap 'exit 75' TERM; sleep {seconds} & wait $!; trap '' TERM; echo {name} >> {ends}"
KINDS = {  # share of the jobs: command, right final state
    "crash once": (0.025, 'if [ "$HETSCHED_ATTEMPT" = 1 ]; then exit 3; fi; ' + GOOD, "done"),
    "crash": (0.025, "exit 3", "failed"),
    "hang": (0.02, "sleep 1000; echo {name} >> {ends}", "timeout"),
    "ignore": (0.02, "trap '' TERM; sleep 1000 & sleep 1000; sleep 1000", "timeout"),
    "good": (1.0, GOOD, "done"),
}


@dataclass
class Report:
    """What was found; `wrong` is empty if all is well."""

    jobs: int
    seconds: float
    kills: int
    drains: int
    attempts: int
    states: dict[str, int]
    most_memory_mb: float
    memory_growth_mb: float
    wrong: list[str]


def make_queue(jobs: int, ends: Path, seed: int) -> tuple[Queue, dict[str, str]]:
    """The queue, and the state that each job should come to."""
    rng = random.Random(seed)
    made, right = [], {}
    for at in range(jobs):
        name = f"job {at}"
        kind = _drawn(rng.random())
        _, command, right[name] = KINDS[kind]
        text = command.format(name=f"'{name}'", seconds=f"{rng.uniform(0, 0.05):.3f}", ends=ends)
        made.append(
            Job(
                name,
                tuple(Mode(one.name, rng.uniform(0.05, 0.1)) for one in MACHINES),
                text,
                retries=1 if "crash" in kind else 0,
                timeout=1.0 if kind in ("hang", "ignore") else 600.0,
                weight=rng.choice((1.0, 2.0)),
            )
        )
    return Queue(tuple(made), MACHINES, grace=0.3), right


def _drawn(number: float) -> str:
    """The kind of job for a number from 0 to 1."""
    for kind, (share, _, _) in KINDS.items():
        number -= share
        if number < 0:
            return kind
    return "good"


def run_scheduler(state: Path) -> int:
    """A child that runs the queue; returns its process number."""
    from hetsched.executor.commands import run

    child = os.fork()
    if child:
        return child
    status = 70
    try:
        sink = os.open(state.parent / "schedulers.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        status = run.main(["--state", str(state), "--policy", "ect", "--quiet"])
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def soak(
    folder: Path,
    jobs: int,
    seed: int,
    kill_every: float,
    limit: float,
    most_kills: float = math.inf,
) -> Report:
    """Run the queue to its end under kills; `kill_every`: mean seconds between them."""
    from hetsched.agents import rules  # noqa: F401  (so that the children have torch and all)
    from hetsched.executor import restore  # noqa: F401

    rng = random.Random(seed)
    state, ends = folder / "state", folder / "ends.txt"
    queue, right = make_queue(jobs, ends, seed)
    store.create(state, queue)
    identity = _identity(state)
    began, kills, drains, memory = time.monotonic(), 0, 0, []
    drained: str | None = None
    child = run_scheduler(state)
    next_kill = time.monotonic() + rng.uniform(0.5, 1.5) * kill_every
    next_drain = time.monotonic() + rng.uniform(0.5, 1.5) * kill_every
    wrong, most = [], 0.0
    while True:
        time.sleep(0.05)
        most = max(most, _memory_mb(child))
        done, status = os.waitpid(child, os.WNOHANG)
        now = time.monotonic()
        if done:
            memory.append(most)
            if os.waitstatus_to_exitcode(status) not in (0, 1):
                wrong.append(f"a scheduler ended with {os.waitstatus_to_exitcode(status)}")
            break
        if now - began > limit:
            wrong.append(f"not over after {limit:g} s")
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
            break
        if now > next_kill and kills < most_kills and _is_open(state):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            memory.append(most)
            kills, most = kills + 1, 0.0
            next_kill = now + 0.5 + rng.expovariate(1 / kill_every)
            time.sleep(rng.uniform(0, 0.3))  # jobs end meanwhile, and nobody sees it
            child = run_scheduler(state)
        if now > next_drain:
            with contextlib.closing(Client(state)) as client:
                kind = "drain" if drained is None else "undrain"
                drained = drained or rng.choice(("fast", "slow"))
                client.request([Request(kind, drained, "the soak")])
                drained = drained if kind == "drain" else None
            drains += kind == "drain"
            next_drain = now + rng.expovariate(1 / kill_every)
    wrong += _mistakes(state, ends, right)
    wrong += _left_behind(state, identity)
    growth = memory[-1] - memory[0] if len(memory) > 1 else 0.0
    if growth > GROWTH_MB:
        wrong.append(f"memory grew by {growth:.0f} MB from the first scheduler to the last")
    with contextlib.closing(Client(state)) as client:
        counts = client.overview(limit=0).counts
        attempts = client.num_attempts()
    return Report(
        jobs, time.monotonic() - began, kills, drains, attempts, counts,
        max(memory, default=0.0), growth, wrong,
    )  # fmt: skip


def _identity(state: Path) -> str:
    with contextlib.closing(store.connect(state)) as file:
        return store.read_meta(file)["identity"]


def _is_open(state: Path) -> bool:
    """Whether a job waits or runs: once all are over there is nothing left to disturb."""
    with contextlib.closing(store.connect(state)) as file:
        query = "SELECT 1 FROM jobs WHERE status IN (?, ?) LIMIT 1"
        return file.execute(query, store.OPEN_STATUSES).fetchone() is not None


def _mistakes(state: Path, ends: Path, right: dict[str, str]) -> list[str]:
    wrong = []
    text = ends.read_text(encoding="utf-8") if ends.exists() else ""
    times = collections.Counter(text.splitlines())
    with contextlib.closing(Client(state)) as client:
        found = {one.job.name: one.status for one in client.overview().jobs}
    if found.keys() != right.keys():
        wrong.append(f"{len(right)} jobs went in, {len(found)} are there")
    for name, status in found.items():
        if status not in FINAL:
            wrong.append(f"{name} is {status}")
        elif status != right[name]:
            wrong.append(f"{name} is {status} and should be {right[name]}")
        if times[name] != (status == "done"):
            wrong.append(f"{name} is {status} and ran to its end {times[name]} times")
    return wrong[:20]


def _left_behind(state: Path, identity: str) -> list[str]:
    living = Exits(state / store.EXITS, identity).marked()
    return [f"process {one.pid} of {one.job} is still there" for one in living]


def _memory_mb(process: int) -> float:
    with contextlib.suppress(OSError, IndexError, ValueError):
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def main() -> None:
    """The command; status 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kill-every", type=float, default=20.0, help="mean seconds")
    parser.add_argument("--limit", type=float, default=3000.0, help="seconds for all of it")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        report = soak(folder, options.jobs, options.seed, options.kill_every, options.limit)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = json.dumps(asdict(report) | {"seed": options.seed}, indent=2) + "\n"
    print(text, end="")
    options.out.write_text(text, encoding="utf-8")
    sys.exit(1 if report.wrong else 0)


if __name__ == "__main__":
    main()
