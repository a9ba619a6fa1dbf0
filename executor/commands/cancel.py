"""``dispatch.py cancel``: take jobs out of a queue."""

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
        UserError: there is no such queue or job, or the job is over.
    """
    parser = argparse.ArgumentParser(
        prog="dispatch.py cancel",
        description="Take jobs out of a queue. One that runs is ended: SIGTERM to its process "
        "group, SIGKILL after the grace. What comes after it will not run.",
    )
    add_state_option(parser)
    parser.add_argument("jobs", metavar="JOB", nargs="+")
    options = parser.parse_args(arguments)
    with closing(open_client(options.state)) as client, user_input():
        for name, status in client.status_of(options.jobs).items():
            if status not in ("waiting", "running"):
                raise UserError(f"job {name!r} is over ({status}); nothing to cancel")
        requests = [Request("cancel", name) for name in options.jobs]
        send(client, requests, f"{count_of(len(requests), 'job')} will be cancelled")
    return 0
