"""``dispatch.py run``: run a queue of real jobs with a policy, or go on with one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.cli import UserError, user_input
from hetsched.executor.commands.common import DEFAULT_FOLDER, chosen_policy
from hetsched.executor.commands.run_options import DEFAULT_FALLBACK, check_output, parse
from hetsched.executor.commands.watching import check_web_options, watching, web_page

if TYPE_CHECKING:
    import argparse

    from hetsched.executor.adapter import Run
    from hetsched.executor.exits import Exits
    from hetsched.executor.guard import Guard
    from hetsched.executor.protocol import Executor, Machine
    from hetsched.executor.queue import Queue
    from hetsched.executor.store_ledger import StoreLedger

SOME_JOB_FAILED = 1
RUNS = "runs.csv"  # in the state: what its completed runs teach, for `profile --learn`


def main(arguments: Sequence[str]) -> int:
    """The command; returns status 0, 1, or 128 + the signal that stopped it.

    Raises:
        UserError: a mistake in the options, the queue or the policy; nothing has run then.
    """
    options = parse(arguments)
    check_web_options(options)
    for option, path in (("--json", options.json), ("--gantt", options.gantt)):
        check_output(option, path)
    if options.dry_run or options.executor == "simulated":
        return _simulate(options)
    return _run(options)


def _simulate(options: argparse.Namespace) -> int:
    """Run on a fake clock; nothing is remembered."""
    from hetsched.executor.adapter import run_queue
    from hetsched.executor.simulated import SimulatedExecutor

    if options.queue is None:
        raise UserError("QUEUE.yaml is missing; give the queue to simulate")
    queue = _queue(options)
    policy = chosen_policy(options.policy)
    done = run_queue(queue, policy, SimulatedExecutor(queue.machines))
    _report(done, "simulated", options, logs=None)
    return 0 if done.all_done or options.dry_run else SOME_JOB_FAILED


def _run(options: argparse.Namespace) -> int:
    """Run on this computer or on a Ray cluster, remembering everything."""
    from hetsched.executor import store

    queue = None if options.queue is None else _queue(options)
    guard = _guard(options)
    folder = _folder(options)
    if queue is not None:
        _prepare(folder, queue, options)
    with user_input("--state"):
        ledger = _open(folder)
    with contextlib.closing(ledger):
        if queue is not None:
            with user_input():
                _merge(ledger, queue, options.quiet)
        done, stopped_by = _go_on(ledger, guard, options)
        logs = options.logs or folder / store.LOGS
        _report(done, options.executor, options, logs)
        left = sum(job.name not in _over(done) for job in done.queue.jobs)
        if done.interrupted and left:
            print(
                f"Jobs not over: {left}. To go on: dispatch.py run --state {folder}",
                file=sys.stderr,
            )
    if done.interrupted and stopped_by is not None:
        return 128 + stopped_by
    return 0 if done.all_done else SOME_JOB_FAILED


def _go_on(
    ledger: StoreLedger, guard: Guard, options: argparse.Namespace
) -> tuple[Run, int | None]:
    from rich.console import Console

    from hetsched.executor import store
    from hetsched.executor.estimates import Estimates
    from hetsched.executor.gpu_watch import GpuWatch
    from hetsched.executor.restore import resume_queue
    from hetsched.executor.signals import StopSignals

    err = Console(stderr=True, highlight=False, soft_wrap=True)
    with (
        StopSignals(store.make_bell(ledger.folder)) as signals,
        web_page(ledger.folder, options, err),
    ):
        executor = _executor(ledger, options, signals.descriptor)
        if not options.quiet:
            err.print(f"State of the queue: {ledger.folder}", markup=False)
        # On a Ray cluster the GPUs may be other computers'.
        gpus = GpuWatch(ledger.machines if options.executor == "local" else ())
        estimates = None if options.no_learning else Estimates(ledger.machines)
        with (
            contextlib.closing(executor),
            contextlib.closing(gpus),
            watching(ledger.folder, options.quiet, err, lambda: signals.count) as observer,
        ):
            done = resume_queue(
                ledger,
                guard,
                executor,
                estimates=estimates,
                gpus=gpus,
                probation=options.probation,
                stops=lambda: signals.count,
                observer=observer,
                stay=options.stay,
            )
        if estimates is not None and estimates.runs:
            estimates.save(ledger.folder / RUNS)
        if not done.interrupted:
            ledger.set(ended=repr(done.ended))
        return done, signals.last


def _queue(options: argparse.Namespace) -> Queue:
    from hetsched.envs.objective import Objective
    from hetsched.executor.machine_specs import parse_machines
    from hetsched.executor.queue_file import load_queue

    with user_input():
        machines = None if options.machines is None else parse_machines(options.machines)
        if machines is None and options.executor == "ray" and options.ray_address is not None:
            machines = _ray_machines(options.ray_address)
        queue = load_queue(options.queue, machines)
    with user_input("queue: objective"):
        Objective.parse(queue.objective)
    return queue


def _ray_machines(address: str) -> tuple[Machine, ...]:
    from hetsched.executor import ray_cluster

    try:
        ray_cluster.connect(address)
        return ray_cluster.cluster_machines()
    except ray_cluster.RayUnavailable as error:
        raise UserError(f"--executor ray: {error}") from None


def _folder(options: argparse.Namespace) -> Path:
    if options.state is not None:
        return Path(options.state)
    if options.queue is None:
        raise UserError("QUEUE.yaml is missing; give a queue, or --state to go on with one")
    return DEFAULT_FOLDER / Path(options.queue).stem


def _prepare(folder: Path, queue: Queue, options: argparse.Namespace) -> None:
    """Have a state to go on with: the queue's own, unless that is to begin anew.

    In the default folder a queue that has come to its end is run again when it is named again. A
    folder that was asked for is never run again unasked: a supervisor that restarts the command
    after a crash must not start a weekend of work a second time.
    """
    from hetsched.executor import store
    from hetsched.executor.store_merge import set_aside

    with user_input("--state"):
        if store.exists(folder):
            with contextlib.closing(store.connect(folder)) as file:
                ended = store.has_ended(file)
            if options.fresh or (ended and options.state is None):
                place = set_aside(folder)
                if not options.quiet:
                    print(f"The last run of this queue is now in {place}", file=sys.stderr)
        if not store.exists(folder):
            try:
                store.create(folder, queue)
            except OSError as error:
                raise UserError(
                    f"--state: {folder} cannot be made ({error.strerror}); choose another."
                ) from None


def _open(folder: Path) -> StoreLedger:
    from hetsched.executor.store_ledger import StoreLedger

    return StoreLedger(folder)


def _merge(ledger: StoreLedger, queue: Queue, quiet: bool) -> None:
    from hetsched.executor.store_merge import merge

    merged = merge(ledger, queue)
    if merged.kept:
        print(
            f"{len(merged.kept)} jobs differ in the file from what has run already, "
            f"{merged.kept[0]!r} first; they stay as they are (--fresh begins anew).",
            file=sys.stderr,
        )
    if merged.forgot:
        print(
            "The file gives new durations for jobs that have not run: they are believed, and what "
            "was learned from completed runs so far is not used any more.",
            file=sys.stderr,
        )
    for name in merged.stranded:
        print(f"Job {name!r} will not run: none of its machines is listed.", file=sys.stderr)


def _guard(options: argparse.Namespace) -> Guard:
    """The policy, or, where it cannot be loaded and one was asked for, its fallback."""
    from hetsched.executor.guard import Guard

    if not options.decision_timeout > 0:
        raise UserError(f"--decision-timeout is {options.decision_timeout}; give seconds above 0")
    if not (options.probation > 0 and not math.isnan(options.probation)):
        raise UserError(f"--probation is {options.probation}; give seconds above 0")
    fallback = chosen_policy(options.fallback or DEFAULT_FALLBACK, "--fallback", rule=True)
    try:
        policy = chosen_policy(options.policy)
    except UserError as error:
        if options.fallback is None:
            raise
        print(f"WARNING: {error} {fallback.name} decides instead.", file=sys.stderr)
        return Guard(None, fallback, options.decision_timeout)
    return Guard(policy, fallback, options.decision_timeout)


def _executor(ledger: StoreLedger, options: argparse.Namespace, wake: int) -> Executor:
    from hetsched.executor import store
    from hetsched.executor.exits import Exits
    from hetsched.executor.local import LocalExecutor

    logs = options.logs or ledger.folder / store.LOGS
    ledger.set(logs=os.fspath(logs.absolute()))
    exits = Exits(ledger.folder / store.EXITS, ledger.identity)
    try:
        if options.executor == "ray":
            return _ray(ledger, options, logs, wake, exits)
        return LocalExecutor(
            ledger.machines, logs, ledger.grace, wake, exits=exits, opened=ledger.clock()
        )
    except OSError as error:
        raise UserError(
            f"--logs: {logs} cannot be made ({error.strerror}); choose another."
        ) from None


def _ray(
    ledger: StoreLedger, options: argparse.Namespace, logs: Path, wake: int, exits: Exits
) -> Executor:
    from hetsched.executor.ray_cluster import RayUnavailable
    from hetsched.executor.ray_executor import open_ray

    try:
        return open_ray(
            logs,
            ledger.machines,
            options.ray_address,
            grace=ledger.grace,
            wake=wake,
            opened=ledger.clock(),
            exits=exits,
        )
    except RayUnavailable as error:
        raise UserError(f"--executor ray: {error}") from None


def _over(done: Run) -> set[str]:
    """The jobs that need no other run."""
    over = {name for name, one in done.last.items() if one.status != "preempted"}
    return (
        over
        | set(done.verdicts)
        | {name for name, why in done.not_run.items() if not why.startswith("waits")}
    )


def _report(done: Run, kind: str, options: argparse.Namespace, logs: Path | None) -> None:
    """On the terminal, as JSON (also beside the logs), and as a picture."""
    from rich.console import Console

    from hetsched.executor import report

    out = Console(stderr=options.json == "-", highlight=False, soft_wrap=True)
    if not out.is_terminal:  # into a file or a pipe: no word of a table broken
        out.width = 200
    if options.dry_run:
        out.print("Planned from the estimates; nothing was started.", style="bold")
    report.print_report(done, kind, out, planned=options.dry_run)
    text = json.dumps(report.as_dict(done, kind), indent=2, allow_nan=False) + "\n"
    if logs is not None:
        (logs / "report.json").write_text(text, encoding="utf-8")
    if options.json == "-":
        sys.stdout.write(text)
    elif options.json is not None:
        Path(options.json).write_text(text, encoding="utf-8")
    if options.gantt is not None and done.outcomes:
        report.draw(done, options.gantt)
