"""``dispatch.py status``: the jobs and machines of a queue, for people or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from hetsched.cli import user_input
from hetsched.executor.commands.common import add_state_option, count_of, open_client
from hetsched.executor.status_data import as_dict, why_closed

if TYPE_CHECKING:
    from hetsched.executor.overview import JobStatus, MachineStatus, Overview

SHOWN = 20
COLOURS = {"done": "green", "running": "cyan", "waiting": "white", "cancelled": "yellow"}


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit status.

    Raises:
        UserError: there is no such queue or job.
    """
    parser = argparse.ArgumentParser(
        prog="dispatch.py status",
        description="Show the jobs and machines of a queue: what runs and until when, why the "
        "others wait, and how those that are over ended.",
    )
    add_state_option(parser)
    parser.add_argument("jobs", metavar="JOB", nargs="*", help="only these (default: all)")
    parser.add_argument(
        "--limit",
        metavar="N",
        type=int,
        default=SHOWN,
        help="rows of waiting jobs, and of those that are over (default: %(default)s)",
    )
    parser.add_argument("--all", action="store_true", help="no limit")
    parser.add_argument("--json", action="store_true", help="as JSON on stdout")
    options = parser.parse_args(arguments)
    with closing(open_client(options.state, read_only=True)) as client, user_input():
        overview = client.overview(None if options.all else max(0, options.limit), options.jobs)
        if options.json:
            print(json.dumps(as_dict(overview), indent=2, allow_nan=False))
        else:
            _show(overview, str(client.folder))
    return 0


def _show(overview: Overview, folder: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from hetsched.executor.report import duration
    from hetsched.executor.store import OPEN_STATUSES

    # Into a file or a pipe: no word broken, whatever the terminal's width.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    counts = ", ".join(f"{number} {status}" for status, number in sorted(overview.counts.items()))
    clock = duration(overview.now)
    alive = "scheduler runs"
    if not overview.scheduler:
        open_jobs = sum(overview.counts.get(status, 0) for status in OPEN_STATUSES)
        alive = "NO SCHEDULER RUNS" if open_jobs else "all over, no scheduler runs"
    line = f"{folder}: {counts or 'no jobs'}; {clock} since its start; {alive}."
    console.print(line, markup=False, soft_wrap=True)
    machines = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("machine", "type", "in use", "state"):
        machines.add_column(column, overflow="fold")
    for machine in overview.machines:
        machines.add_row(*_machine_row(machine, overview.now))
    console.print(machines)
    jobs = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("job", "status", "machine", "started", "ends", "reason"):
        jobs.add_column(column, overflow="fold")
    for one in overview.jobs:
        jobs.add_row(*_job_row(one, overview.began))
    console.print(jobs)
    left = sum(overview.counts.values()) - len(overview.jobs)
    if left > 0:
        console.print(f"{count_of(left, 'more job')}; --all shows them.")
    for at, text in overview.notes:
        console.print(f"{duration(at)}: {text}", markup=False, style="red")


def _machine_row(one: MachineStatus, now: float) -> tuple[str, ...]:
    from rich.markup import escape

    why = why_closed(one, now)
    state = f"[red]{escape(why)}[/red]" if why else "[green]up[/green]"
    machine = one.machine
    return escape(machine.name), escape(machine.type), f"{one.used}/{machine.capacity}", state


def _job_row(one: JobStatus, began: float) -> tuple[str, ...]:
    from rich.markup import escape

    from hetsched.executor.overview import clock_time

    def at(seconds: float | None) -> str:
        return "-" if seconds is None else clock_time(began + seconds).removeprefix("at about ")

    colour = COLOURS.get(one.status, "red")
    ends = at(one.ended)
    if one.status == "running" and one.started is not None and one.expected is not None:
        ends = f"~{at(one.started + one.expected)}"
    status = one.status + (f" ({one.asked})" if one.asked and one.status == "running" else "")
    status += "" if one.progress is None else f" {one.progress:.0%}"
    name = escape(one.job.name) + (f" (priority {one.job.priority})" if one.job.priority else "")
    waits = one.status == "waiting"
    return (
        name,
        f"[{colour}]{status}[/{colour}]",
        "-" if waits or one.machine is None else escape(one.machine),
        "-" if waits else at(one.started),
        "-" if waits else ends,
        escape(one.reason),
    )
