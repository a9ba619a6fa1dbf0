"""``dispatch.py logs``: show what a job wrote."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.cli import UserError, user_input
from hetsched.executor.commands.common import add_state_option, open_client

if TYPE_CHECKING:
    from hetsched.executor.store_client import Client

LOOK_SECONDS = 0.2


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit status.

    Raises:
        UserError: there is no such queue, job or attempt.
    """
    parser = argparse.ArgumentParser(
        prog="dispatch.py logs",
        description="Show what a job wrote, stdout and stderr together.",
    )
    add_state_option(parser)
    parser.add_argument("job", metavar="JOB")
    parser.add_argument("--attempt", type=int, metavar="N", help="(default: the latest)")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job is over")
    parser.add_argument("-n", "--lines", type=int, metavar="N", help="only the last N lines")
    parser.add_argument("--path", action="store_true", help="only say where the file is")
    options = parser.parse_args(arguments)
    if options.lines is not None and options.lines < 0:
        raise UserError(f"--lines is {options.lines}; give 0 or more")
    with closing(open_client(options.state, read_only=True)) as client, user_input():
        path = client.log_of(options.job, options.attempt)
        if options.path:
            print(path)
        elif not path.exists():
            raise UserError(f"job {options.job!r} has written nothing; {path} is not there")
        else:
            _show(path, options, client)
    return 0


def _show(path: Path, options: argparse.Namespace, client: Client) -> None:
    with path.open("rb") as log:
        if options.lines is not None:
            _seek_lines(log.fileno(), options.lines)
        while True:
            over = not options.follow or client.is_over(options.job)
            while part := log.read(1 << 16):
                sys.stdout.buffer.write(part)
                sys.stdout.buffer.flush()
            if over:
                return
            time.sleep(LOOK_SECONDS)


def _seek_lines(descriptor: int, lines: int) -> None:
    """Move to the beginning of the last so many lines, reading backwards."""
    at = os.fstat(descriptor).st_size
    missing = lines + 1  # the newline before the first of them
    if at and os.pread(descriptor, 1, at - 1) != b"\n":
        missing = lines
    while at > 0:
        size = min(at, 1 << 16)
        block = os.pread(descriptor, size, at - size)
        count = block.count(b"\n")
        if count >= missing:
            place = len(block)
            for _ in range(missing):
                place = block.rindex(b"\n", 0, place)
            os.lseek(descriptor, at - size + place + 1, os.SEEK_SET)
            return
        missing -= count
        at -= size
    os.lseek(descriptor, 0, os.SEEK_SET)
