"""Run and direct queues of real jobs: ``dispatch.py QUEUE.yaml``, ``dispatch.py status``, ...


docs/dispatch.md describes the queue, the machines and what is promised about processes. Each
command is a module of `hetsched.executor.commands`, imported only when it is called: `submit` has
no time to wait for what `run` needs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from hetsched.cli import UserError, run

COMMANDS = {
    "run": "run a queue, or go on with one: the default, for dispatch.py QUEUE.yaml",
    "submit": "add jobs to a queue that runs or will run",
    "status": "show the jobs and machines of a queue",
    "logs": "show what a job wrote",
    "cancel": "take jobs out of a queue, ending those that run",
    "priority": "change the importance of jobs",
    "preempt": "ask running jobs to save themselves and go on later, perhaps elsewhere",
    "drain": "give a machine no more work, and move the jobs it has",
    "undrain": "give a drained machine work again",
    "machines": "show the machines found on this computer",
    "profile": "measure how long jobs take on each machine",
    "serve": "show a queue as a web page",
}
USAGE = "usage: dispatch.py [COMMAND] ...    dispatch.py COMMAND --help says more"


def main() -> None:
    """The command; leaves with status 0, 1, 2 or 128 + the signal that stopped it."""
    run(lambda: sys.exit(dispatch(sys.argv[1:])))


def dispatch(arguments: Sequence[str]) -> int:
    """Call the command that the first argument names (``run`` if none); returns the exit status.

    Raises:
        UserError: the command is not there.
    """
    if arguments and arguments[0] in ("-h", "--help"):
        print(USAGE)
        print("\n".join(["", *(f"  {name:<9} {what}" for name, what in COMMANDS.items())]))
        return 0
    name, rest = "run", list(arguments)
    if arguments and arguments[0] in COMMANDS:
        name, rest = arguments[0], rest[1:]
    module = f"hetsched.executor.commands.{name}"
    try:
        command = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise UserError(f"{name}: this version does not have that command yet") from None
    status: int = command.main(rest)
    return status


if __name__ == "__main__":
    main()
