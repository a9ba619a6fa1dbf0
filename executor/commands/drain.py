"""``dispatch.py drain``: give a machine no more work, and move the jobs that it has."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing

from hetsched.cli import UserError
from hetsched.executor.commands.common import add_state_option, open_client, send
from hetsched.executor.ledger import Request


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit status.

    Raises:
        UserError: there is no such queue or machine.
    """
    parser = argparse.ArgumentParser(
        prog="dispatch.py drain",
        description="Give a machine no more work until undrain. The jobs that it has are asked to "
        "save their state and leave, and go on elsewhere.",
    )
    add_state_option(parser)
    parser.add_argument("machine")
    parser.add_argument("--reason", default="by hand", help="shown to people")
    return request(parser.parse_args(arguments), "drain")


def request(options: argparse.Namespace, kind: str) -> int:
    """Leave the request for `options.machine`, if there is one of that name."""
    with closing(open_client(options.state)) as client:
        names = [machine.name for machine in client.machines]
        if options.machine not in names:
            raise UserError(f"there is no machine {options.machine!r}; use {', '.join(names)}")
        wanted = Request(kind, options.machine, getattr(options, "reason", "") or "by hand")
        send(client, [wanted], f"Machine {options.machine} will be {kind}ed")
    return 0
