"""Run and direct queues of real jobs: ``dispatch.py QUEUE.yaml``, ``dispatch.py status``, ...


docs/dispatch.md describes the queue, the machines and what is promised about processes. Each
command is a module of `hetsched.executor.commands`, imported only when it is called: `submit` has
no time to wait for what `run` needs.
"""

from __future__ import annotations

import importlib
import os
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
    elif arguments and arguments[0].isalpha() and not os.path.exists(arguments[0]):
        raise UserError(
            f"there is no command and no file {arguments[0]!r}; the commands are "
            f"{', '.join(COMMANDS)}"
        )
    module = f"hetsched.executor.commands.{name}"
    try:
        command = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise UserError(f"{name}: this version does not have that command yet") from None
    try:
        status: int = command.main(rest)
    except Exception as error:
        if sentence := _of_the_file(error):
            raise UserError(sentence) from error
        raise
    return status


def _of_the_file(error: Exception) -> str | None:
    """What is the matter with the file of a queue's state or its disk; None: with neither."""
    sqlite3 = sys.modules.get("sqlite3")  # not loaded: nobody has opened a state
    if sqlite3 is None or not isinstance(error, sqlite3.Error):
        return None
    kind = (getattr(error, "sqlite_errorname", None) or "").split("_")[1:2]  # SQLITE_IOERR_WRITE
    ends = {
        "CORRUPT": "it is damaged; name another folder with --state, or move this one away",
        "NOTADB": "it is damaged; name another folder with --state, or move this one away",
        "FULL": "the disk is full; make room and call again, nothing that was noted is lost",
        "IOERR": "the disk gives errors; see to it and call again",
        "READONLY": "it may not be written; see to its permissions",
        "CANTOPEN": "it cannot be opened; see to its permissions",
        "BUSY": "another program has locked it for long; end that one and call again",
    }
    end = ends.get(kind[0]) if kind else None
    return None if end is None else f"the state of the queue ({error}): {end}"


if __name__ == "__main__":
    main()
