"""``dispatch.py profile``: measure how fast the jobs of a queue run on each type of machine."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.cli import UserError, user_input

if TYPE_CHECKING:
    from hetsched.executor.profiling import Measurement, Settings, Subject
    from hetsched.executor.profiling_clocks import ClockWatch

DEFAULT_LOGS = Path("runs", "profile")
SOME_NOT_MEASURED = 1


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="dispatch.py profile",
        description="Measure how fast the jobs of a queue run on each type of machine, by short "
        "real runs, one at a time; docs/profile.md says how jobs report progress.",
        epilog="Exit status: 0 all measured, 1 some not, 2 a mistake in the call, 130 Ctrl-C.",
    )
    parser.add_argument("queue", metavar="QUEUE.yaml", nargs="?", help="needs no durations")
    parser.add_argument(
        "--out",
        metavar="SPEEDS.csv",
        type=Path,
        help="the table to write into; rows that are not measured now stay (default: the queue's "
        "speeds, else speeds.csv beside the queue)",
    )
    parser.add_argument("--machines", metavar="SPEC", help="instead of the queue's, as for run")
    parser.add_argument("--jobs", metavar="NAME,...", help="only these jobs or models")
    parser.add_argument("--on", metavar="TYPE,...", help="only these machine types")
    parser.add_argument(
        "--gpus", metavar="N,...", default="", help="numbers of GPUs, where a job says none"
    )
    parser.add_argument("--repeats", type=int, default=3, help="runs that count (%(default)s)")
    parser.add_argument(
        "--warmup",
        metavar="SECONDS",
        type=float,
        default=5.0,
        help="after the first report of progress; they do not count (%(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=20.0,
        help="measured in every run that reports progress; it is stopped then (%(default)s)",
    )
    parser.add_argument(
        "--warmup-runs",
        metavar="N",
        type=int,
        default=1,
        help="first runs that do not count, of a job that reports no progress (%(default)s)",
    )
    parser.add_argument(
        "--limit", metavar="SECONDS", type=float, default=600.0, help="a run's end (%(default)s)"
    )
    parser.add_argument(
        "--progress-pattern",
        metavar="REGEX",
        help="finds the steps done so far in a line of output, as in 'step (\\d+)'",
    )
    parser.add_argument("--logs", metavar="DIR", type=Path, help="folder for the runs' output")
    parser.add_argument("--json", metavar="OUT", help="every run's figures (-: to stdout)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be measured")
    parser.add_argument(
        "--learn",
        metavar="ESTIMATES.csv",
        type=Path,
        help="run nothing: correct the table by the completed runs in this file, and remove them "
        "from it",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str], nvml: Any = None) -> int:
    """Measure and write; returns 0, or 1 if something could not be measured.

    Args:
        arguments: without the command's name.
        nvml: used instead of ``pynvml``.

    Raises:
        UserError: a mistake in the options or the files; nothing has run then.
    """
    options = parse(arguments)
    if options.learn is not None:
        return _learn(options)
    if options.queue is None:
        raise UserError("QUEUE.yaml is missing; name the queue whose jobs are to be measured")
    subjects, settings = _subjects(options), _settings(options)
    out = _output(options)
    from rich.console import Console

    from hetsched.executor.profiling_report import print_report
    from hetsched.executor.profiling_table import read_table
    from hetsched.executor.signals import StopSignals

    with user_input():
        read_table(out)  # a mistake in it should not show after an hour of work
    err = Console(stderr=True, highlight=False, soft_wrap=True)
    if options.dry_run:
        for subject in subjects:
            print(subject.label)
        return 0
    logs = options.logs or DEFAULT_LOGS / f"{datetime.datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    err.print(f"Output of the runs: {logs}", markup=False)
    measured: list[Measurement] = []
    with StopSignals() as signals, _clocks(nvml) as watch:
        from hetsched.executor.profiling import measure

        for at, subject in enumerate(subjects):
            err.print(f"[{at + 1}/{len(subjects)}] {subject.label}", markup=False)
            one = measure(subject, settings, logs, watch, lambda: signals.count, signals.descriptor)
            if one is None:
                break
            measured.append(one)
            _merge(out, [one])  # at once: hours of work are not lost with the last
        last = signals.last
    # Into a file or a pipe: no line broken, whatever the terminal's width.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    print_report(err if options.json == "-" else console, measured, out)
    _write_json(options.json, measured)
    if last is not None:
        return 128 + last
    return SOME_NOT_MEASURED if any(one.problem for one in measured) else 0


def _subjects(options: argparse.Namespace) -> list[Subject]:
    from hetsched.executor.machine_specs import parse_machines
    from hetsched.executor.profiling_queue import read_subjects

    def words(text: str | None) -> list[str]:
        return [word.strip() for word in (text or "").split(",") if word.strip()]

    gpus = words(options.gpus)
    if not all(word.isdecimal() and int(word) for word in gpus):
        raise UserError(f"--gpus is {options.gpus!r}; give numbers from 1, like 1,2,4")
    with user_input():
        return read_subjects(
            options.queue,
            None if options.machines is None else parse_machines(options.machines),
            words(options.jobs),
            words(options.on),
            [int(word) for word in gpus],
        )


def _settings(options: argparse.Namespace) -> Settings:
    from hetsched.executor.profiling import Settings

    pattern = None
    if options.progress_pattern is not None:
        try:
            pattern = re.compile(options.progress_pattern)
        except re.error as error:
            raise UserError(
                f"--progress-pattern: {options.progress_pattern!r} is no regular expression "
                f"({error}); correct it"
            ) from None
    with user_input():
        return Settings(
            options.repeats,
            options.warmup,
            options.seconds,
            options.limit,
            options.warmup_runs,
            pattern,
        )


def _output(options: argparse.Namespace) -> Path:
    """Where the table goes; it must be writable before anything runs."""
    out: Path | None = options.out
    if out is None:
        from hetsched.executor.yaml_fields import read_yaml

        with user_input():
            speeds = read_yaml(Path(options.queue)).get("speeds", "speeds.csv")
        out = Path(options.queue).parent / str(speeds)
    for option, path in (("--out", out), ("--json", options.json)):
        folder = None if path in (None, "-") else Path(path).absolute().parent
        if folder is not None and not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise UserError(
                f"{option}: {str(path)!r} cannot be written; give a path in a writable folder."
            )
    return out


@contextlib.contextmanager
def _clocks(nvml: Any) -> Iterator[ClockWatch]:
    from hetsched.executor.discovery_nvml import NoNvml, open_nvml
    from hetsched.executor.profiling_clocks import ClockWatch

    with contextlib.ExitStack() as stack:
        try:
            opened = stack.enter_context(open_nvml(nvml))
        except NoNvml:
            opened = None
        yield ClockWatch(opened)


def _merge(out: Path, measured: Sequence[Measurement]) -> None:
    from hetsched.executor.profiling_table import merged, read_table, write_table

    rows = [one.row() for one in measured if not one.problem]
    if rows:
        write_table(out, merged(read_table(out), rows))


def _learn(options: argparse.Namespace) -> int:
    from hetsched.executor.estimates import Estimates, read_runs
    from hetsched.executor.profiling_table import corrected, read_table, write_table

    if options.out is None:
        raise UserError("--learn needs --out SPEEDS.csv, the table that it corrects")
    with user_input():
        rows = read_table(options.out)
        estimates = Estimates((), read_runs(options.learn))
    changed = corrected(rows, estimates)
    write_table(options.out, changed)
    estimates.save(options.learn)
    count = sum(one != two for one, two in zip(rows, changed, strict=True))
    print(f"{options.out}: {count} of {len(rows)} rows corrected")
    return 0


def _write_json(path: str | None, measured: Sequence[Measurement]) -> None:
    from hetsched.executor.profiling_report import as_dict

    if path is None:
        return
    text = json.dumps(as_dict(measured), indent=2) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8")
