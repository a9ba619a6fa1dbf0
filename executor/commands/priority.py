"""``dispatch.py priority``: change the importance of jobs that wait."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing

from hetsched.cli import UserError, user_input
from hetsched.executor.commands.common import add_state_option, count_of, open_client, send
from hetsched.executor.ledger import Request
from hetsched.executor.queue import MOST_PRIORITY, MOST_WEIGHT


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit status.

    Raises:
        UserError: there is no such queue or job, or the job does not wait.
    """
    parser = argparse.ArgumentParser(
        prog="dispatch.py priority",
        description="Change the importance of jobs that wait. While a job of a higher priority "
        "waits that can run on a machine, no job of a lower one starts there; the weight is what "
        "the objective, and so the policy, makes of the job.",
    )
    add_state_option(parser)
    parser.add_argument("priority", type=int, help="a whole number; 0 is usual, -1 lets others go")
    parser.add_argument("jobs", metavar="JOB", nargs="+")
    parser.add_argument("--weight", type=float, help="a new weight too, from 0")
    options = parser.parse_args(arguments)
    if abs(options.priority) > MOST_PRIORITY:
        raise UserError(f"priority is {options.priority}; it must be within a thousand million")
    if options.weight is not None and not 0 <= options.weight <= MOST_WEIGHT:
        raise UserError(f"--weight is {options.weight}; it must be a number from 0 to 1e12")
    with closing(open_client(options.state)) as client, user_input():
        for name, status in client.status_of(options.jobs).items():
            if status != "waiting":
                raise UserError(f"job {name!r} does not wait ({status}); preempt it first")
        requests = []
        for name in options.jobs:
            requests.append(Request("priority", name, str(options.priority)))
            if options.weight is not None:
                requests.append(Request("weight", name, repr(options.weight)))
        what = f"{count_of(len(options.jobs), 'job')} will have priority {options.priority}"
        send(client, requests, what)
    return 0
