"""``dispatch.py preempt``: make running jobs leave their machines and go on elsewhere."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing

from hetsched.cli import UserError, user_input
from hetsched.executor.commands.common import add_state_option, count_of, open_client, send
from hetsched.executor.ledger import Request


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit status.

    Raises:
        UserError: there is no such queue or job, or the job does not run.
    """
    parser = argparse.ArgumentParser(
        prog="dispatch.py preempt",
        description="Ask running jobs to save their state and exit with status 75 (SIGTERM, "
        "SIGKILL after the grace). They go on later, on another machine where there is one for "
        "them, without using up a retry.",
    )
    add_state_option(parser)
    parser.add_argument("jobs", metavar="JOB", nargs="+")
    options = parser.parse_args(arguments)
    with closing(open_client(options.state)) as client, user_input():
        for name, status in client.status_of(options.jobs).items():
            if status != "running":
                raise UserError(f"job {name!r} does not run ({status}); nothing to preempt")
        requests = [Request("preempt", name) for name in options.jobs]
        send(client, requests, f"{count_of(len(requests), 'job')} will be asked to leave")
    return 0
