"""``dispatch.py run``: run a queue of real jobs with a policy."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.cli import UserError, user_input

if TYPE_CHECKING:
    from rich.console import Console

    from hetsched.agents.policy import Policy
    from hetsched.executor.adapter import Run
    from hetsched.executor.protocol import Attempt, Executor, Outcome
    from hetsched.executor.queue import Queue

DEFAULT_POLICY = "gpu-cluster"
DEFAULT_LOGS = Path("runs", "dispatch")
SOME_JOB_FAILED = 1


def main(arguments: Sequence[str]) -> int:
    """The command; returns status 0, 1, or 128 + the signal that stopped it."""
    return dispatch(parse(arguments))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="dispatch.py",
        description="Run a queue of jobs on unrelated machines, placed by a policy.",
        epilog="Exit status: 0 all jobs done, 1 some not, 2 a mistake in the call, 130 Ctrl-C.",
    )
    parser.add_argument("queue", metavar="QUEUE.yaml", help="jobs and machines, docs/dispatch.md")
    parser.add_argument(
        "--policy",
        default=DEFAULT_POLICY,
        help="checkpoint, name of a shipped policy, or of a rule such as ect-wait or atc:k=0.5 "
        "(default: %(default)s)",
    )
    parser.add_argument("--executor", choices=("local", "simulated"), default="local")
    parser.add_argument(
        "--machines",
        metavar="SPEC",
        help="instead of the queue's: a YAML file, or NAME:TYPE@DEVICE*SLOTS,... where DEVICE is "
        "cpu, a GPU's UUID or its index",
    )
    parser.add_argument("--json", metavar="OUT", help="write the report as JSON (-: to stdout)")
    parser.add_argument("--gantt", metavar="OUT", help="draw what ran, OUT.png or OUT.html")
    parser.add_argument(
        "--logs",
        metavar="DIR",
        type=Path,
        help=f"folder for the jobs' output (default: a new one in {DEFAULT_LOGS})",
    )
    parser.add_argument("--dry-run", action="store_true", help="show the plan, start nothing")
    parser.add_argument("--quiet", action="store_true", help="no line per start and end")
    return parser.parse_args(arguments)


def dispatch(options: argparse.Namespace) -> int:
    """Run the queue and report; returns the exit status.

    Raises:
        UserError: a mistake in the options, the queue or the policy; nothing has run then.
    """
    from rich.console import Console

    queue = _queue(options)
    for option, path in (("--json", options.json), ("--gantt", options.gantt)):
        _check_output(option, path)
    policy = _policy(options.policy)
    from hetsched.executor import report
    from hetsched.executor.adapter import run_queue
    from hetsched.executor.signals import StopSignals

    err = Console(stderr=True, highlight=False, soft_wrap=True)
    out = err if options.json == "-" else Console()
    kind = "simulated" if options.dry_run else options.executor
    with StopSignals() as signals:
        executor, logs = _executor(kind, queue, options.logs, signals.descriptor)
        if logs is not None and not options.quiet:
            err.print(f"Output of the jobs: {logs}", markup=False)
        with contextlib.closing(executor):
            done = run_queue(
                queue,
                policy,
                executor,
                stops=lambda: signals.count,
                observer=None if options.quiet or kind == "simulated" else _Printer(err),
            )
        if options.dry_run:
            out.print("Planned from the estimates; nothing was started.", style="bold")
        report.print_report(done, kind, out, planned=options.dry_run)
        _write(done, kind, options, logs)
        last = signals.last
    if options.dry_run:
        return 0
    if done.interrupted and last is not None:
        return 128 + last
    return 0 if done.all_done else SOME_JOB_FAILED


def _queue(options: argparse.Namespace) -> Queue:
    from hetsched.envs.objective import Objective
    from hetsched.executor.queue_file import load_queue, parse_machines

    with user_input():
        machines = None if options.machines is None else parse_machines(options.machines)
        queue = load_queue(options.queue, machines)
    with user_input("queue: objective"):
        Objective.parse(queue.objective)
    return queue


def _check_output(option: str, path: str | None) -> None:
    """Before hours of work, not after: can the file be written?"""
    if path is None or path == "-":
        return
    folder = Path(path).absolute().parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UserError(f"{option}: {path!r} cannot be written; give a path in a writable folder.")
    if option == "--gantt":
        from hetsched.executor.report import check_gantt_path

        with user_input():
            check_gantt_path(path)


def _policy(name: str) -> Policy:
    """A checkpoint's path, a shipped policy's name, or a rule's."""
    from hetsched.agents.rules import make_rule, rule_names

    if name.partition(":")[0] in rule_names():
        with user_input("--policy"):
            return make_rule(name)
    from hetsched.agents.checkpoint import CheckpointError, load_policy  # slow: the network's code

    try:
        return load_policy(name, name=Path(name).stem)
    except CheckpointError as error:
        sentence = str(error).rstrip(".")
        if not (Path(name).exists() or name.endswith(".safetensors")):
            sentence += f"; the rules are {', '.join(rule_names())}"
        raise UserError(f"--policy: {sentence}.") from None


def _executor(
    kind: str, queue: Queue, logs: Path | None, wake: int
) -> tuple[Executor, Path | None]:
    if kind == "simulated":
        from hetsched.executor.simulated import SimulatedExecutor

        return SimulatedExecutor(queue.machines), None
    from hetsched.executor.local import LocalExecutor

    if logs is None:
        logs = DEFAULT_LOGS / f"{datetime.datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    try:
        return LocalExecutor(queue.machines, logs, grace=queue.grace, wake=wake), logs
    except OSError as error:
        raise UserError(
            f"--logs: {logs} cannot be made ({error.strerror}); choose another."
        ) from None


class _Printer:
    """One line per start and end."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def started(self, attempt: Attempt, at: float) -> None:
        from hetsched.executor.report import duration

        expected = f", expected {duration(attempt.expected)}" if attempt.expected else ""
        again = f", attempt {attempt.number}" if attempt.number > 1 else ""
        self._say(at, "start", f"{attempt.job} on {attempt.machine}{expected}{again}")

    def ended(self, outcome: Outcome, again: bool) -> None:
        from hetsched.executor.report import duration

        reason = f": {outcome.reason}" if outcome.reason else ""
        retry = ", will be retried" if again else ""
        log = f" (see {outcome.log})" if outcome.log and outcome.status != "done" else ""
        what = f"{outcome.attempt.job} on {outcome.attempt.machine} after "
        what += f"{duration(outcome.seconds)}{reason}{retry}{log}"
        self._say(outcome.ended, outcome.status, what)

    def _say(self, at: float, word: str, what: str) -> None:
        self._console.print(f"{at:9.1f} s  {word:<9}  {what}", markup=False)


def _write(done: Run, kind: str, options: argparse.Namespace, logs: Path | None) -> None:
    """The report as JSON (also beside the logs) and as a picture."""
    from hetsched.executor import report

    text = json.dumps(report.as_dict(done, kind), indent=2, allow_nan=False) + "\n"
    if logs is not None:
        (logs / "report.json").write_text(text, encoding="utf-8")
    if options.json == "-":
        sys.stdout.write(text)
    elif options.json is not None:
        Path(options.json).write_text(text, encoding="utf-8")
    if options.gantt is not None and done.outcomes:
        report.draw(done, options.gantt)
