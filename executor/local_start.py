"""Starts an attempt of the local executor: its environment, its shell, and its output's file."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.executor import progress

if TYPE_CHECKING:
    from hetsched.executor.exits import Exits
    from hetsched.executor.protocol import Attempt, Machine


def spawn(
    attempt: Attempt, machine: Machine, units: tuple[int, ...], log: Path, exits: Exits | None
) -> subprocess.Popen[bytes]:
    """The process of an attempt, which leads a session and so a group of its own.

    Args:
        attempt: of a job on the machine, of which it holds the units.
        log: where its output goes.
        exits: keeps its exit code and marks its processes; None: nothing does.

    Raises:
        OSError, ValueError: it cannot be started; nothing is left of it.
    """
    env = {**os.environ, **attempt.env}
    # PCI order: an index then means the device that nvidia-smi shows under it.
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    env["CUDA_VISIBLE_DEVICES"] = machine.visible_devices(units)
    env["HETSCHED_JOB"] = attempt.job
    env["HETSCHED_ATTEMPT"] = str(attempt.number)
    env["HETSCHED_MACHINE"] = attempt.machine
    if progress.VARIABLE not in attempt.env:  # profiling has a file of its own
        report = log.with_suffix(f".{progress.SUFFIX}")
        report.unlink(missing_ok=True)
        env[progress.VARIABLE] = os.fspath(report)
    command: tuple[str, ...] | str = attempt.command
    if exits is not None:
        command = ("/bin/sh", "-c", command) if isinstance(command, str) else command
        _refuse_absent(command, attempt.workdir, env)
        command = exits.wrap(command, attempt.job, attempt.number)
        exits.forget(attempt.job, attempt.number)
        env |= exits.environment(units)
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            shell=isinstance(command, str),
            cwd=attempt.workdir,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _refuse_absent(command: tuple[str, ...], workdir: str | None, env: dict[str, str]) -> None:
    """The error that starting the program would give without a shell between, for people.

    Raises:
        OSError: saying whether the folder or the program is missing, or may not be executed.
    """
    if workdir is not None and not os.path.isdir(workdir):
        raise NotADirectoryError(f"its workdir {workdir!r} is no folder that is there")
    program = command[0]
    if "/" in program:  # relative to the folder in which it will run
        found = shutil.which(os.path.join(workdir or "", program))
    else:
        found = shutil.which(program, path=env.get("PATH"))
    if found is None and "/" in program and os.path.exists(os.path.join(workdir or "", program)):
        raise PermissionError(f"its program {program!r} is no file that may be executed")
    if found is None:
        raise FileNotFoundError(f"its program {program!r} is not there")
