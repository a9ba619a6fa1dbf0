"""Flexible job shops: the ``.fjs`` text format, and the instance that stands for one.

The format (Brandimarte 1993, as the benchmark sets use it): the first line holds the number of
jobs, the number of machines and, if they like, the mean number of machines per operation.  Then
one line a job: its number of operations, and for each of them the number of machines it can run
on, followed by that many pairs of a machine, counted from 1, and a duration.

Here every *operation* is a job of the `Instance`, named ``"job 0 operation 2"``; operations of one
job are tied by precedence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hetsched.envs.instance import Instance

if TYPE_CHECKING:
    from hetsched.envs.checks import IntArray

# One operation: (machine, duration) of each of its modes, machines counted from 0.
Operation = Sequence[tuple[int, float]]


def flexible_job_shop(jobs: Sequence[Sequence[Operation]], num_machines: int) -> Instance:
    """The instance in which operation o of job i comes after operation o - 1.

    Raises:
        ValueError: no job, a job without operations, or modes that `Instance` refuses.
    """
    sizes = [len(job) for job in jobs]
    if not sizes:
        raise ValueError("there is no job; give at least one")
    for index, size in enumerate(sizes):
        if size == 0:
            raise ValueError(f"job {index} has no operation; give at least one, or leave it out")
    operations = [operation for job in jobs for operation in job]
    modes = [
        (index, machine, duration)
        for index, operation in enumerate(operations)
        for machine, duration in operation
    ]
    return Instance(
        num_jobs=len(operations),
        num_machines=num_machines,
        mode_jobs=np.array([mode[0] for mode in modes], np.int64),
        mode_machines=np.array([mode[1] for mode in modes], np.int64),
        processing_times=np.array([mode[2] for mode in modes], np.float64),
        precedence=chains(sizes),
        job_names=tuple(
            f"job {job} operation {operation}"
            for job, size in enumerate(sizes)
            for operation in range(size)
        ),
    )


def chains(sizes: Sequence[int]) -> IntArray:
    """(2, arcs) int64: each of ``sizes`` consecutive jobs, one after the other."""
    last = np.cumsum(sizes) - 1
    before = np.setdiff1d(np.arange(int(last[-1])), last)
    return np.stack([before, before + 1])


def load_fjs(path: str | Path) -> Instance:
    """Read an ``.fjs`` file.

    Raises:
        ValueError: no such file, or one that does not follow the format; the message says where.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} is no file; give the path of an existing one")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text; give a flexible job shop in .fjs format") from None
    rows = [(number, line.split()) for number, line in enumerate(lines, 1) if line.strip()]
    try:
        if not rows or len(rows[0][1]) not in (2, 3):
            raise ValueError("its first line must hold the numbers of jobs and of machines")
        header, *rest = rows
        count, machines = _whole(header[1][0], header[0]), _whole(header[1][1], header[0])
        if len(rest) != count:
            raise ValueError(f"it names {count} jobs in its first line, but has {len(rest)} more")
        jobs = [list(_operations(words, number, machines)) for number, words in rest]
        return flexible_job_shop(jobs, machines)
    except ValueError as error:
        raise ValueError(f"{path} is no flexible job shop: {error}") from None


def _operations(
    words: Sequence[str], line: int, machines: int
) -> Iterator[list[tuple[int, float]]]:
    """The operations of one line."""
    place = 0

    def take() -> str:
        nonlocal place
        if place >= len(words):
            raise ValueError(f"line {line} ends in the middle of an operation; complete it")
        place += 1
        return words[place - 1]

    for _ in range(_whole(take(), line)):
        operation = []
        for _ in range(_whole(take(), line)):
            machine = _whole(take(), line)
            if not 1 <= machine <= machines:
                raise ValueError(f"line {line} names machine {machine}; use 1..{machines}")
            operation.append((machine - 1, _number(take(), line)))
        yield operation
    if place < len(words):
        raise ValueError(f"line {line} goes on after its last operation; correct its first number")


def _whole(word: str, line: int) -> int:
    if not word.isascii() or not word.isdigit():
        raise ValueError(f"line {line} has {word!r} where a whole number of at least 0 belongs")
    return int(word)


def _number(word: str, line: int) -> float:
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"line {line} has {word!r} where a duration belongs") from None


def save_fjs(path: str | Path, instance: Instance) -> None:
    """Write an instance that is a flexible job shop; names are not kept.

    Raises:
        ValueError: the instance has anything that the format cannot hold, such as release times or
            precedence that is not in chains.
        OSError: the file cannot be written.
    """
    _refuse_what_does_not_fit(instance)
    modes: list[list[str]] = [[] for _ in range(instance.num_jobs)]
    for job, machine, duration in zip(
        instance.mode_jobs.tolist(),
        instance.mode_machines.tolist(),
        instance.processing_times.tolist(),
        strict=True,
    ):
        short = int(duration) if duration.is_integer() else duration
        modes[job].append(f"{machine + 1} {short}")
    lines = [
        f"{len(chain)} " + " ".join(f"{len(modes[job])} {' '.join(modes[job])}" for job in chain)
        for chain in _chains_of(instance)
    ]
    mean = instance.num_modes / instance.num_jobs
    head = f"{len(lines)} {instance.num_machines} {mean:g}"
    Path(path).write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")


def _chains_of(instance: Instance) -> list[list[int]]:
    """The jobs of each chain in order, chains by their first job."""
    follows = dict(instance.precedence.T.tolist())
    first = sorted(set(range(instance.num_jobs)) - set(follows.values()))
    found = []
    for job in first:
        chain = [job]
        while chain[-1] in follows:
            chain.append(follows[chain[-1]])
        found.append(chain)
    return found


def _refuse_what_does_not_fit(instance: Instance) -> None:
    before, after = instance.precedence
    unfit = {
        "precedence that is not in chains": len(set(before.tolist())) < len(before)
        or len(set(after.tolist())) < len(after),
        "lags": instance.precedence_lags.any(),
        "release times": instance.release_times.any(),
        "due times": np.isfinite(instance.due_times).any(),
        "weights": (instance.weights != 1).any(),
        "machines occupied at the start": instance.machine_available.any(),
        "machine due times": np.isfinite(instance.machine_due_times).any(),
        "machines with several units": (instance.capacity != 1).any(),
        "set-ups": instance.setup_times is not None,
        "actual times": instance.actual_times is not None,
    }
    for what, holds in unfit.items():
        if holds:
            raise ValueError(
                f"the instance has {what}, which .fjs cannot hold; use save_instance instead"
            )
