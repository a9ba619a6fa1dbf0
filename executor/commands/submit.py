"""``dispatch.py submit``: add jobs to a queue, from a file or by options. Imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.cli import UserError, user_input
from hetsched.executor.commands.common import add_state_option, count_of, open_client

if TYPE_CHECKING:
    from hetsched.executor.protocol import Machine
    from hetsched.executor.queue import Job

# Options that are a key of a queue's job, given as text; those in NUMBERS are read as numbers.
KEYS = (
    "model", "steps", "gpus", "demand", "weight", "priority", "due", "release", "timeout",
    "retries", "moves", "memory", "gpu_memory", "workdir",
)  # fmt: skip
NUMBERS = {"steps", "gpus", "demand", "weight", "priority", "retries", "moves"}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="dispatch.py submit",
        usage="dispatch.py submit [--state DIR] JOBS.yaml\n"
        "       dispatch.py submit [--state DIR] --name NAME --on MACHINE=SECONDS -- COMMAND ...",
        description="Add jobs to a queue. It need not run at present. A job that can never run on "
        "the queue's machines is refused. Release and due times count from now.",
    )
    add_state_option(parser)
    parser.add_argument("words", metavar="JOBS.yaml | -- COMMAND", nargs="*")
    parser.add_argument("--name", help="of the job")
    parser.add_argument(
        "--on",
        metavar="MACHINE=SECONDS",
        action="append",
        default=[],
        help="expected duration on a machine or machine type, such as h200=20m; repeat it",
    )
    parser.add_argument("--after", metavar="JOB", action="append", default=[], help="repeat it")
    parser.add_argument("--env", metavar="NAME=VALUE", action="append", default=[])
    parser.add_argument("--speeds", metavar="CSV", help="table of speeds, for --model and --steps")
    for key in KEYS:
        option = "--" + key.replace("_", "-")
        parser.add_argument(option, dest=key, metavar="...", help="as in a queue's file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit status.

    Raises:
        UserError: there is no such queue, or a job can never run there.
    """
    from hetsched.executor import store

    options = parse(arguments)
    with closing(open_client(options.state)) as client, user_input():
        jobs = _jobs(options, client.machines)
        client.submit(jobs)
        print(f"Submitted {count_of(len(jobs), 'job')} to {client.folder}.")
        if not store.is_locked(client.folder):
            print(f"No scheduler runs there: dispatch.py run --state {client.folder} starts it.")
    return 0


def _jobs(options: argparse.Namespace, machines: tuple[Machine, ...]) -> tuple[Job, ...]:
    from hetsched.executor.queue_file import load_jobs, read_job

    if options.name is None:
        if len(options.words) != 1 or not options.words[0].endswith((".yaml", ".yml")):
            raise UserError("submit: give one JOBS.yaml, or --name and a command after --")
        return load_jobs(options.words[0], machines)
    entry: dict[str, Any] = {"name": options.name, "after": options.after}
    entry["command"] = options.words
    entry["durations"] = dict(_pair(one, "--on") for one in options.on)
    entry["env"] = dict(_pair(one, "--env") for one in options.env)
    for key in KEYS:
        value = getattr(options, key)
        if value is not None:
            entry[key] = _number(value, key) if key in NUMBERS else value
    if not entry["durations"]:
        del entry["durations"]
    entry.setdefault("workdir", ".")
    return (read_job(entry, machines, options.speeds, Path.cwd()),)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        what = "MACHINE=SECONDS" if option == "--on" else "NAME=VALUE"
        raise UserError(f"{option}: {text!r} has no value; write {what}")
    return name, value


def _number(text: str, key: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise UserError(f"--{key.replace('_', '-')}: {text!r} is no number") from None
