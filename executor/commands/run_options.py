"""The options of ``dispatch.py run``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from hetsched.cli import UserError, user_input
from hetsched.executor.commands.common import DEFAULT_FOLDER
from hetsched.executor.commands.watching import add_web_options

DEFAULT_POLICY = "gpu-cluster"
DEFAULT_FALLBACK = "ect-wait"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="dispatch.py run",
        description="Run a queue of jobs on unrelated machines, placed by a policy. A queue that "
        "was left (Ctrl-C, a crash, kill -9) goes on where it was.",
        epilog="Exit status: 0 all jobs done, 1 some not, 2 a mistake in the call, 130 Ctrl-C.",
    )
    parser.add_argument(
        "queue",
        metavar="QUEUE.yaml",
        nargs="?",
        help="jobs and machines, docs/dispatch.md; may be left out to go on with --state",
    )
    parser.add_argument(
        "--policy",
        default=DEFAULT_POLICY,
        help="checkpoint, name of a shipped policy, or of a rule such as ect-wait or atc:k=0.5 "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--fallback",
        metavar="RULE",
        help="decides where the policy fails, also when it cannot be loaded (default: "
        f"{DEFAULT_FALLBACK}, and what cannot be loaded is a mistake in the call)",
    )
    parser.add_argument(
        "--decision-timeout",
        metavar="SECONDS",
        type=float,
        default=10.0,
        help="after which the fallback decides (default: %(default)s)",
    )
    parser.add_argument("--executor", choices=("local", "ray", "simulated"), default="local")
    parser.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="of a running Ray cluster, such as auto or 10.0.0.1:6379, whose GPUs are the machines "
        "unless --machines names some; docs/ray.md (default: one is started on this computer)",
    )
    parser.add_argument(
        "--machines",
        metavar="SPEC",
        help="instead of the queue's: a YAML file, or NAME:TYPE@DEVICE*SLOTS,... where DEVICE is "
        "cpu, a GPU's UUID or its index",
    )
    parser.add_argument(
        "--state",
        metavar="DIR",
        type=Path,
        help=f"folder that remembers the queue (default: {DEFAULT_FOLDER}/NAME for NAME.yaml)",
    )
    parser.add_argument("--fresh", action="store_true", help="set that folder aside and begin anew")
    parser.add_argument(
        "--stay", action="store_true", help="wait for submitted jobs when all are over"
    )
    parser.add_argument("--json", metavar="OUT", help="write the report as JSON (-: to stdout)")
    parser.add_argument("--gantt", metavar="OUT", help="draw what ran, OUT.png or OUT.html")
    parser.add_argument(
        "--logs", metavar="DIR", type=Path, help="folder for the jobs' output (default: in --state)"
    )
    parser.add_argument(
        "--probation",
        metavar="SECONDS",
        type=float,
        default=300.0,
        help="after which a machine that was drained for its failures is tried again "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--no-learning", action="store_true", help="believe the queue's durations to the end"
    )
    parser.add_argument("--dry-run", action="store_true", help="show the plan, start nothing")
    parser.add_argument(
        "--quiet", action="store_true", help="no line per start and end, no view on a terminal"
    )
    add_web_options(parser)
    return parser.parse_args(arguments)


def check_output(option: str, path: str | None) -> None:
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
