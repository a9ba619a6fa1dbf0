"""``dispatch.py serve``: show a queue as a web page, whether it runs or not."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path

from hetsched.cli import user_input
from hetsched.executor.commands.common import open_client
from hetsched.executor.commands.watching import check_port
from hetsched.executor.web import DEFAULT_HOST, WebServer

DEFAULT_PORT = 8765


def main(arguments: Sequence[str]) -> int:
    """The command; ends with Ctrl-C only.

    Raises:
        UserError: there is no such queue, or the port cannot be had.
    """
    parser = argparse.ArgumentParser(
        prog="dispatch.py serve",
        description="Show a queue as a web page, as JSON under /api/queue, and for Prometheus at "
        "/metrics. It only reads, so it may run beside a scheduler, or without one.",
    )
    parser.add_argument(
        "state",
        metavar="STATE_DIR",
        type=Path,
        nargs="?",
        help="folder of the queue (default: the one in runs/dispatch that was used last)",
    )
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="(default: %(default)s)")
    parser.add_argument(
        "--host",
        default=DEFAULT_HOST,
        help="address or name to listen at; others than this computer can read every log then "
        "(default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    check_port("--port", options.port)
    with contextlib.closing(open_client(options.state, read_only=True)) as client:
        folder = client.folder
    with user_input():
        server = WebServer(folder, options.port, options.host)
    with contextlib.closing(server):
        print(f"{folder} is shown at {server.url} (Ctrl-C ends this).", flush=True)
        server.join()
    return 0
