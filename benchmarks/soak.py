"""Jobs that crash, hang, ignore SIGTERM, under a scheduler that is killed: is all accounted for?

Thousands of short jobs run on this computer with a state in a folder. At random times the scheduler
gets SIGKILL and another takes its place, machines go away with all that runs there and come back,
and machines are drained. In the end every job must be in exactly one final state, which must be the
right one; every job that is done must have run to its end once, and no other; no process may be
left; and memory may not grow. For that the last two fifths of the jobs run under one scheduler.

    python benchmarks/soak.py                      # 5,000 jobs
    python benchmarks/soak.py --jobs 300 --kill-every 5 --away-every 5 --out short.json

The schedulers are forks of this process, so that a restart costs no import of torch. Status 1:
something is wrong.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hetsched.benchmarks import soak_checks as checks
from hetsched.executor import store
from hetsched.executor.ledger import Request
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, Mode, Queue
from hetsched.executor.store_client import Client

RESULT = Path(__file__).resolve().parent / "results" / "soak.json"
MACHINES = (Machine("fast", capacity=2), Machine("slow", capacity=2), Machine("spare", capacity=1))
DISTURBED = 0.6  # share of the jobs before which schedulers are killed
GROWTH_MB = 10.0  # per 1,000 jobs
SAMPLE_JOBS = 100  # so often the memory is looked at
# Ends by itself, saves itself on SIGTERM, and says that it was here, once and at its very end.
GOOD = (
    "trap 'exit 75' TERM; sleep {seconds} & wait $!; trap '' TERM; "
    'echo {name}"/$HETSCHED_ATTEMPT" >> {ends}'
)
KINDS = {  # share of the jobs: command, right final state
    "crash once": (0.025, 'if [ "$HETSCHED_ATTEMPT" = 1 ]; then exit 3; fi; ' + GOOD, "done"),
    "crash": (0.025, "exit 3", "failed"),
    "hang": (0.02, "sleep 1000; echo {name}/ >> {ends}", "timeout"),
    "ignore": (0.02, "trap '' TERM; sleep 1000 & sleep 1000; sleep 1000", "timeout"),
    "good": (1.0, GOOD, "done"),
}


@dataclass
class Report:
    """What was found; `wrong` is empty if all is well.

    Attributes:
        kills: of schedulers; drains, outages: of machines.
        lost: attempts that went away with their machine; lost_at_the_end: those among them that
            were killed between their last act and their exit, and so ran to their end for nothing.
        mb_per_1000_jobs: by which the last scheduler grew; None: too few jobs to say.
    """

    jobs: int
    seconds: float
    kills: int
    drains: int
    outages: int
    attempts: int
    lost: int
    lost_at_the_end: int
    states: dict[str, int]
    most_memory_mb: float
    mb_per_1000_jobs: float | None
    memory: list[checks.Sample]
    wrong: list[str] = field(default_factory=list)


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
                moves=jobs,  # however often its machine goes away
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


def run_scheduler(state: Path, away_every: float, seed: int) -> int:
    """A child that runs the queue; returns its process number."""
    from hetsched.benchmarks.soak_outages import OutageExecutor
    from hetsched.executor.commands import run

    child = os.fork()
    if child:
        return child
    status = 70
    try:
        sink = os.open(state.parent / "schedulers.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        outages = os.open(state.parent / "outages.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        make_local = run._executor

        def make(*arguments: Any) -> OutageExecutor:
            def tell(name: str) -> None:
                os.write(outages, f"{name}\n".encode())

            return OutageExecutor(make_local(*arguments), away_every, seed, tell)  # type: ignore[arg-type]

        run._executor = make  # type: ignore[assignment]
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
    away_every: float,
    limit: float,
    most_kills: float = math.inf,
) -> Report:
    """Run the queue to its end under kills; `kill_every`, `away_every`: mean seconds."""
    from hetsched.agents import rules  # noqa: F401  (so that the children have torch and all)
    from hetsched.executor import restore  # noqa: F401

    rng = random.Random(seed)
    state, ends = folder / "state", folder / "ends.txt"
    queue, right = make_queue(jobs, ends, seed)
    store.create(state, queue)
    identity = _identity(state)
    began, kills, drains = time.monotonic(), 0, 0
    drained: str | None = None
    child = run_scheduler(state, away_every, seed)
    next_kill = time.monotonic() + rng.uniform(0.5, 1.5) * kill_every
    next_drain = time.monotonic() + rng.uniform(0.5, 1.5) * kill_every
    wrong: list[str] = []
    samples: list[checks.Sample] = []
    most = 0.0
    while True:
        time.sleep(0.05)
        memory = checks.memory_mb(child)
        most = max(most, memory)
        done, status = os.waitpid(child, os.WNOHANG)
        now = time.monotonic()
        if done:
            if os.waitstatus_to_exitcode(status) not in (0, 1):
                wrong.append(f"a scheduler ended with {os.waitstatus_to_exitcode(status)}")
            break
        if now - began > limit:
            wrong.append(f"not over after {limit:g} s")
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
            break
        over = checks.over(state)
        if memory and (not samples or over >= samples[-1].over + min(SAMPLE_JOBS, jobs // 50 + 1)):
            samples.append(checks.Sample(kills, over, memory))
        if now > next_kill and kills < most_kills and over < DISTURBED * jobs:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            kills += 1
            next_kill = now + 0.5 + rng.expovariate(1 / kill_every)
            time.sleep(rng.uniform(0, 0.3))  # jobs end meanwhile, and nobody sees it
            child = run_scheduler(state, away_every, seed + kills)
        if now > next_drain:
            with contextlib.closing(Client(state)) as client:
                kind = "drain" if drained is None else "undrain"
                drained = drained or rng.choice(("fast", "slow"))
                client.request([Request(kind, drained, "the soak")])
                drained = drained if kind == "drain" else None
            drains += kind == "drain"
            next_drain = now + rng.expovariate(1 / kill_every)
    tried = checks.attempts(state)
    slope = checks.mb_per_1000_jobs(samples)
    wrong += checks.mistakes(state, ends, right) + checks.left_behind(state, identity)
    if slope is not None and slope > GROWTH_MB:
        wrong.append(f"the last scheduler grew by {slope:.1f} MB per 1,000 jobs")
    lost = {key for key, away in tried.items() if away}
    with contextlib.closing(Client(state)) as client:
        counts = client.overview(limit=0).counts
    outages = folder / "outages.txt"
    return Report(
        jobs=jobs,
        seconds=time.monotonic() - began,
        kills=kills,
        drains=drains,
        outages=len(outages.read_text(encoding="utf-8").splitlines()) if outages.exists() else 0,
        attempts=len(tried),
        lost=len(lost),
        lost_at_the_end=len(lost & checks.ran_to_their_end(ends).keys()),
        states=counts,
        most_memory_mb=most,
        mb_per_1000_jobs=slope,
        memory=samples,
        wrong=wrong,
    )


def _identity(state: Path) -> str:
    with contextlib.closing(store.connect(state)) as file:
        return store.read_meta(file)["identity"]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options; ends with status 2 where they make no sense."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--jobs", type=int, default=5000, help="(default %(default)s)")
    add("--seed", type=int, default=0, help="(default %(default)s)")
    add(
        "--kill-every",
        type=float,
        default=6.0,
        metavar="SECONDS",
        help="mean time between kills of the scheduler, and between drains (default %(default)s)",
    )
    add(
        "--away-every",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="mean time between the outages of a machine (default %(default)s)",
    )
    add(
        "--limit",
        type=float,
        default=3000.0,
        metavar="SECONDS",
        help="for all of it (default %(default)s)",
    )
    add("--out", type=Path, default=RESULT, help="where the report is kept")
    options = parser.parse_args(arguments)
    for name in ("jobs", "kill_every", "away_every", "limit"):
        if not getattr(options, name) > 0:
            parser.error(
                f"--{name.replace('_', '-')} must be above 0, got {getattr(options, name)}"
            )
    if not options.out.absolute().parent.is_dir():
        parser.error(f"--out: there is no folder {options.out.absolute().parent}; make it first")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """The command; status 1 if something is wrong."""
    options = parse(arguments)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        report = soak(
            folder, options.jobs, options.seed, options.kill_every, options.away_every,
            options.limit,
        )  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = json.dumps(asdict(report) | {"seed": options.seed}, indent=2) + "\n"
    print(text, end="")
    options.out.write_text(text, encoding="utf-8")
    sys.exit(1 if report.wrong else 0)


if __name__ == "__main__":
    main()
