"""What people see of a queue while ``dispatch.py run`` works: lines, a live view, a web page."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.cli import UserError, user_input
from hetsched.executor.commands.common import Printer

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hetsched.executor.adapter import Observer
    from hetsched.executor.live_view import LiveView

LOCAL = "127.0.0.1"


def add_web_options(parser: argparse.ArgumentParser) -> None:
    """``--web`` and ``--web-host``."""
    parser.add_argument(
        "--web",
        metavar="PORT",
        type=int,
        help="show the queue as a web page at http://127.0.0.1:PORT/ (0: any free port)",
    )
    parser.add_argument(
        "--web-host",
        metavar="HOST",
        help="address or name to listen at instead; whoever reaches it can read every log",
    )


def check_web_options(options: argparse.Namespace) -> None:
    """Refuse what cannot be.

    Raises:
        UserError: a host without a port, or nothing to show.
    """
    if options.web is None and options.web_host is not None:
        raise UserError("--web-host says where, but --web PORT is missing; give both")
    if options.web is not None:
        check_port("--web", options.web)
    if options.web is not None and (options.dry_run or options.executor == "simulated"):
        raise UserError("--web: a simulated run keeps nothing to show; leave it out")


def check_port(option: str, port: int) -> None:
    """Refuse a port that no computer has, before anything is touched.

    Raises:
        UserError: naming the option.
    """
    if not 0 <= port <= 65535:
        raise UserError(f"{option} is {port}; give a number from 0 (any that is free) to 65535")


@contextlib.contextmanager
def web_page(folder: Path, options: argparse.Namespace, console: Console) -> Iterator[None]:
    """The page of the queue, if it was asked for.

    Raises:
        UserError: the port cannot be had.
    """
    if options.web is None:
        yield
        return
    from hetsched.executor.web import WebServer

    with user_input("--web"):
        server = WebServer(folder, options.web, options.web_host or LOCAL)
    with contextlib.closing(server):
        console.print(f"Web page of the queue: {server.url}", markup=False)
        yield


@contextlib.contextmanager
def watching(
    folder: Path, quiet: bool, console: Console, stops: Callable[[], int]
) -> Iterator[Observer]:
    """What is told of every start and end, and shows it: on a terminal with the view below."""
    if quiet or not console.is_terminal or console.is_dumb_terminal:
        yield Printer(console, quiet)
        return
    from rich.console import Console

    from hetsched.executor.live_view import EVERY, LiveView
    from hetsched.executor.snapshot import Watch

    watch = Watch(folder, every=EVERY / 2, jobs=50, bars=0)
    # One of its own: soft_wrap would break the lines of tables.
    with LiveView(Console(file=console.file, highlight=False), watch, stops) as view:
        yield _Above(view, console)


class _Above(Printer):
    """The lines of a Printer, above the view."""

    def __init__(self, view: LiveView, console: Console) -> None:
        super().__init__(console)
        self._view = view

    def noted(self, text: str, at: float) -> None:
        """See `Observer.noted`."""
        self._view.say(f"{at:9.1f} s  WARNING    {text}", "bold red")

    def _say(self, at: float, word: str, what: str) -> None:
        self._view.say(f"{at:9.1f} s  {word:<9}  {what}")
