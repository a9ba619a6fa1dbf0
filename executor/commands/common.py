"""What several commands need: where a queue's state is, policies by name, lines for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.cli import UserError, user_input

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from hetsched.agents.policy import Policy
    from hetsched.executor.ledger import Request
    from hetsched.executor.protocol import Attempt, Outcome
    from hetsched.executor.store_client import Client

DEFAULT_FOLDER = Path("runs", "dispatch")


def chosen_policy(name: str, option: str = "--policy", rule: bool = False) -> Policy:
    """A checkpoint's path, a shipped policy's name, or a rule's; `rule`: only a rule's.

    Raises:
        UserError: there is none of that name.
    """
    from hetsched.agents.rules import make_rule, rule_names

    if rule or name.partition(":")[0] in rule_names():
        with user_input(option):
            return make_rule(name)
    from hetsched.agents.checkpoint import CheckpointError, load_policy  # slow: the network's code

    try:
        return load_policy(name, name=Path(name).stem)
    except CheckpointError as error:
        sentence = str(error).rstrip(".")
        if not (Path(name).exists() or name.endswith(".safetensors")):
            sentence += f"; the rules are {', '.join(rule_names())}"
        raise UserError(f"{option}: {sentence}.") from None


class Printer:
    """One line per start and end; `quiet`: only what people must know."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet

    def started(self, attempt: Attempt, at: float) -> None:
        """See `Observer.started`."""
        from hetsched.executor.report import duration

        expected = f", expected {duration(attempt.expected)}" if attempt.expected else ""
        again = f", attempt {attempt.number}" if attempt.number > 1 else ""
        self._say(at, "start", f"{attempt.job} on {attempt.machine}{expected}{again}")

    def ended(self, outcome: Outcome, again: bool) -> None:
        """See `Observer.ended`."""
        from hetsched.executor.report import duration

        reason = f": {outcome.reason}" if outcome.reason else ""
        retry = ", will run again" if again else ""
        log = f" (see {outcome.log})" if outcome.log and outcome.status != "done" else ""
        what = f"{outcome.attempt.job} on {outcome.attempt.machine} after "
        what += f"{duration(outcome.seconds)}{reason}{retry}{log}"
        self._say(outcome.ended, outcome.status, what)

    def noted(self, text: str, at: float) -> None:
        """See `Observer.noted`."""
        self._console.print(f"{at:9.1f} s  WARNING    {text}", markup=False, style="bold red")

    def _say(self, at: float, word: str, what: str) -> None:
        if not self._quiet:
            self._console.print(f"{at:9.1f} s  {word:<9}  {what}", markup=False)


def add_state_option(parser: argparse.ArgumentParser) -> None:
    """``--state``, for the commands that talk to a queue that is there."""
    parser.add_argument(
        "--state",
        metavar="DIR",
        type=Path,
        help=f"folder of the queue (default: the one in {DEFAULT_FOLDER} that was used last)",
    )


def open_client(folder: Path | None, read_only: bool = False) -> Client:
    """The queue in a folder; None: in the default folder, the one that was used last.

    Args:
        folder: of the state.
        read_only: for commands that only show, also to people who may not write there.

    Raises:
        UserError: there is none.
    """
    from hetsched.executor import store
    from hetsched.executor.store_client import Client

    if folder is None:
        states = list(DEFAULT_FOLDER.glob(f"*/{store.FILE}*"))  # the log of a running one is newer
        if not states:
            raise UserError(
                f"there is no queue in {DEFAULT_FOLDER}; name the folder of one with --state, or "
                "start one with dispatch.py QUEUE.yaml."
            )
        folder = max(states, key=lambda path: path.stat().st_mtime).parent
    with user_input("--state"):
        return Client(folder, read_only)


def send(client: Client, requests: list[Request], what: str) -> None:
    """Leave requests with a queue, and say who will carry them out."""
    from hetsched.executor import store

    client.request(requests)
    if store.is_locked(client.folder):
        print(f"{what}.")
    else:
        print(f"{what}, as soon as dispatch.py run --state {client.folder} goes on.")


def count_of(number: int, thing: str) -> str:
    """For people: 1 job, 2 jobs."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
