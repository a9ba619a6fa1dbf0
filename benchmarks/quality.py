"""Quality against time: the ladder of what a policy can do, and every rival, on the same sets.

    python benchmarks/quality.py --data ../shared/data
    python benchmarks/quality.py --sets hitzges --contenders '^learned' --count 60
    python benchmarks/quality.py --policy 'warm start only=runs/a/warm.safetensors' \\
        --policy 'three trainings=runs/a/best.safetensors' \\
        --policy 'three trainings=runs/b/best.safetensors'

Measures what has no result yet, one instance after the other; keeps costs and seconds of every
instance as ``benchmarks/results/quality/SET/CONTENDER.json``; writes the tables to
``benchmarks/results/quality.md`` and draws ``docs/images/quality.png``.  Stopped at any time, it
goes on where it was.

Everybody decides one instance at a time, on the same number of threads, and all of the time counts:
the simulator's, a policy's before a search or a solver, the building of models.  Contenders with a
time limit all get the same ones.  A contender whose instances take long does fewer of them: when
``--budget`` is used up, but three at least; tables give the number.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.benchmarks.quality_results import Result, Task, Trained, carry_out, trained
from hetsched.benchmarks.quality_sets import BENCHES, Bench, default_data, load
from hetsched.cli import UserError, pattern, prepare_process, run, user_input

if TYPE_CHECKING:
    from hetsched.benchmarks.quality_tables import Panel

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "quality"
PICTURE = ROOT / "docs" / "images" / "quality.png"


def shipped(scenario: str) -> Trained | None:
    """The policy that ships for a scenario, as ``learned``; None where none does."""
    path = ROOT / "checkpoints" / f"{scenario}.safetensors"
    return trained("learned", path, shipped=True) if path.is_file() else None


def given(policies: Sequence[str]) -> list[Trained]:
    """The checkpoints of ``--policy NAME=PATH``.

    Raises:
        UserError: another form, a name that cannot be used, or two of a name, scenario and seed.
        CheckpointError: a file that cannot be read.
    """
    from hetsched.agents.contenders import is_taken

    found: list[Trained] = []
    for word in policies:
        name, equals, path = word.partition("=")
        if not equals or not name.strip() or not path:
            raise UserError(f"--policy {word!r} must read NAME=PATH")
        if name == "learned" or is_taken(name) or set(name) & set("@+/~"):
            raise UserError(
                f"--policy {word!r}: choose a name without @+/~ that no rule or solver has"
            )
        one = trained(name, Path(path))
        for other in found:
            same = (other.name, other.scenario, other.seed) == (name, one.scenario, one.seed)
            if same:
                raise UserError(
                    f"--policy {word!r}: {other.path} has the same name, scenario and training "
                    "seed; choose another name"
                )
        found.append(one)
    return found


def tasks(
    bench: Bench, size: int, others: Sequence[Trained], options: argparse.Namespace
) -> list[Task]:
    """Everybody on a set of so many instances, done or not."""
    ours = shipped(bench.scenario)
    chosen: list[tuple[str, Trained | None]] = [
        (name, ours if name.startswith("learned") else None)
        for name in bench.contenders(ours is not None)
    ]
    for one in others:
        if one.scenario == bench.scenario:
            chosen += [(name, one) for name in bench.of_policy(one.name)]
    return [
        Task(
            bench=bench.name,
            contender=name,
            policy=policy,
            data=options.data,
            results=options.results,
            count=min(size, options.count),
            budget=options.budget,
            threads=options.threads,
        )
        for name, policy in chosen
        if re.search(options.contenders, name)
    ]


def measure_all(pending: Sequence[Task], workers: int) -> None:
    """Carry the tasks out, several at a time, and say how far it is."""
    began = time.monotonic()
    most = sum(min(one.count * one.limit, one.budget + one.limit) for one in pending if one.limit)
    print(
        f"{len(pending)} measurements; those with a time limit take at most "
        f"{most / workers / 60:.0f} minutes on {workers} processes",
        file=sys.stderr,
    )
    for number, (task, result) in enumerate(_carried_out(pending, workers), 1):
        seconds = sum(result.seconds) / result.count
        print(
            f"[{number}/{len(pending)}, {(time.monotonic() - began) / 60:.1f} min] {task.bench}: "
            f"{task.contender}, {result.count} instances of {seconds:.3g} s",
            file=sys.stderr,
            flush=True,
        )


def _carried_out(pending: Sequence[Task], workers: int) -> Iterator[tuple[Task, Result]]:
    if workers == 1 or len(pending) < 2:
        yield from ((task, carry_out(task)) for task in pending)
        return
    # Fresh processes: torch's and numba's threads do not survive a fork.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        running = {pool.submit(carry_out, task): task for task in pending}
        try:
            for one in as_completed(running):
                yield running[one], one.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--data", type=Path, default=default_data(), help="folder of the benchmark sets")
    add(
        "--sets",
        type=pattern,
        default="",
        metavar="REGEX",
        help="sets whose name it finds (default: all)",
    )
    add("--contenders", type=pattern, default="", metavar="REGEX", help="likewise")
    add("--policy", action="append", default=[], metavar="NAME=PATH",
        help="a checkpoint to measure beside the one that ships, on the sets of its scenario; "
        "checkpoints of one NAME are training seeds of the same thing")  # fmt: skip
    add("--count", type=int, default=30, metavar="N",
        help="the first N instances of every set (default %(default)s)")  # fmt: skip
    add("--budget", type=float, default=40.0, metavar="SECONDS",
        help="of a contender on a set (default %(default)s)")  # fmt: skip
    add("--threads", type=int, default=1, help="of everybody (default %(default)s)")
    add("--workers", type=int, default=2, help="measurements at a time (default %(default)s)")
    add("--again", action="store_true", help="measure what has a result, too")
    add("--draw-only", action="store_true", help="measure nothing")
    add("--results", type=Path, default=RESULTS, help="where results are kept")
    add("--picture", type=Path, default=PICTURE, help="where to draw")
    options = parser.parse_args(arguments)
    for name in ("count", "budget", "threads", "workers"):
        if not getattr(options, name) > 0:
            parser.error(f"--{name} must be above 0, got {getattr(options, name)}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, draw."""
    options = parse(arguments)
    run(lambda: compare(options))


def compare(options: argparse.Namespace) -> None:
    """Carry out the command."""
    prepare_process(options.threads)
    others = given(options.policy)
    wanted = [one for one in BENCHES if re.search(options.sets, one.name)]
    benches = [one for one in wanted if one.available(options.data)]
    for one in wanted:
        if one not in benches:
            print(f"{one.name} is left out: no {options.data / str(one.path)}", file=sys.stderr)
    if not benches:
        raise UserError(f"no set below {options.data} is called {options.sets!r}; see --sets")
    for bench in BENCHES:
        if any((options.results / bench.name).glob("*.json")) and not bench.available(options.data):
            raise UserError(
                f"{bench.name} has results, but there is no {options.data / str(bench.path)} to "
                "show them by; give the folder of the sets as --data, or another --results"
            )
    with user_input(f"--data {options.data}"):
        sizes = {one.name: len(load(one, options.data).instances) for one in benches}
    if not options.draw_only:
        every = [
            task for bench in benches for task in tasks(bench, sizes[bench.name], others, options)
        ]
        if options.again:
            for task in every:
                task.path.unlink(missing_ok=True)
        measure_all([task for task in every if not task.done()], options.workers)
    report(benches, options)


def report(benches: Sequence[Bench], options: argparse.Namespace) -> None:
    """Print the tables and draw; the files show all sets that have results."""
    from hetsched.benchmarks.quality_picture import draw
    from hetsched.benchmarks.quality_tables import markdown, panel, text

    panels: list[Panel] = []
    for bench in BENCHES:
        if not bench.available(options.data):
            continue
        ours = shipped(bench.scenario)
        fingerprint = None if ours is None else ours.fingerprint
        some = load(bench, options.data)
        shown = panel(bench, some, options.results, fingerprint, options.threads)
        if not shown.points:
            continue
        panels.append(shown)
        if bench in benches:
            print(f"\n{text(shown)}")
    if not panels:
        raise UserError(f"there are no results in {options.results}; leave out --draw-only")
    page = options.results.with_suffix(".md")
    page.write_text(markdown(panels), encoding="utf-8")
    draw(panels, options.picture)
    print(f"\nWrote {page} and drew {options.picture}.")


if __name__ == "__main__":
    main()
