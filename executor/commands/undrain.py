"""``dispatch.py undrain``: give a machine work again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from hetsched.executor.commands.common import add_state_option
from hetsched.executor.commands.drain import request


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit status.

    Raises:
        UserError: there is no such queue or machine.
    """
    parser = argparse.ArgumentParser(
        prog="dispatch.py undrain", description="Give a drained machine work again."
    )
    add_state_option(parser)
    parser.add_argument("machine")
    return request(parser.parse_args(arguments), "undrain")
