"""What each part of training is worth: small runs that differ from a base in one thing.

    python benchmarks/ablations.py                          # everything, two runs at a time
    python benchmarks/ablations.py --variants 'base|PPO' --seeds 3
    python benchmarks/ablations.py --draw-only

All variants take as many decisions as the base (``--decisions``), on instances of the same small
sizes, and are validated on the same instances.  Every variant and training seed is a run folder
below ``runs/ablations``; one that was stopped goes on where it was, one that is finished is read.
The curves, validation ratio to the best rule against decisions and against CPU seconds, are kept in
``benchmarks/results/ablations.json``; the table gives mean and spread over training seeds of the
best validation, and ``docs/images/ablations.png`` is drawn.

``--inference`` instead measures ways of computing a decision with the shipped policy: float32,
bfloat16 and ``torch.compile``; see ``ablations_inference.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.benchmarks.ablations_variants import SIZES, Variant, variants
from hetsched.cli import UserError, pattern, prepare_process, run

if TYPE_CHECKING:
    from hetsched.benchmarks.ablations_report import Curve

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "runs" / "ablations"
RESULTS = ROOT / "benchmarks" / "results" / "ablations.json"
PICTURE = ROOT / "docs" / "images" / "ablations.png"


def train_one(variant: Variant, seed: int, decisions: int, folder: Path) -> None:
    """One run, in this process; it goes on where it was stopped."""
    prepare_process(1)
    from hetsched.agents.training import Trainer, closing
    from hetsched.agents.validation import Validation
    from hetsched.benchmarks.ablations_networks import CpuSeconds, use_network

    config = variant.config(seed, decisions)
    initial, progress = use_network(variant.network, config), CpuSeconds(folder / "cpu_seconds.csv")
    resume = (folder / "config.json").exists()
    trainer = Trainer(config, folder, initial=initial, resume=resume, progress=progress)
    progress.watch(trainer)
    if trainer.sizes != SIZES:  # all are validated on the same instances
        latest = trainer.validation.latest
        trainer.validation = Validation(trainer.scenario, SIZES, config)
        trainer.validation.latest = latest
    with closing(trainer):
        trainer.run()
    (folder / "finished").touch()


def train_all(chosen: Sequence[tuple[Variant, int]], options: argparse.Namespace) -> None:
    """Every run as a process of its own, so many at a time.

    Raises:
        UserError: a run failed; its last words are in its folder.
    """
    waiting = [one for one in chosen if not (_folder(*one, options) / "finished").exists()]
    print(f"{len(chosen)} runs, {len(waiting)} of them to do", file=sys.stderr)
    running: dict[subprocess.Popen[bytes], tuple[Variant, int]] = {}
    failed: list[str] = []
    began, done, total = time.monotonic(), 0, len(waiting)
    # Ends with its runs, however it is asked to; they go on from where they saved.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        while waiting or running:
            while waiting and len(running) < options.workers:
                one = waiting.pop(0)
                running[_start(*one, options)] = one
            time.sleep(0.2)
            for process in [each for each in running if each.poll() is not None]:
                variant, seed = running.pop(process)
                done += 1
                minutes = (time.monotonic() - began) / 60
                word = "done" if process.returncode == 0 else f"FAILED ({process.returncode})"
                name = f"{variant.name}, seed {seed}"
                print(f"[{done}/{total}, {minutes:.1f} min] {name}: {word}", file=sys.stderr)
                if process.returncode:
                    failed.append(name)
    finally:
        for process in running:
            process.terminate()
    if failed:
        raise UserError(f"{'; '.join(failed)} failed, see log.txt in {options.runs}")


def _folder(variant: Variant, seed: int, options: argparse.Namespace) -> Path:
    name = re.sub("[^a-z0-9]+", "-", variant.name.lower()).strip("-")
    return Path(options.runs) / f"{name}-seed{seed}"


def _start(variant: Variant, seed: int, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    folder = _folder(variant, seed, options)
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, "--run", variant.name, "--seed", str(seed)]
    command += ["--decisions", str(options.decisions), "--runs", str(options.runs)]
    with (folder / "log.txt").open("ab") as log:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def collect(chosen: Sequence[tuple[Variant, int]], options: argparse.Namespace) -> list[Curve]:
    """The curves of finished runs; of what is kept, those that were not run here stay."""
    from hetsched.benchmarks.ablations_report import Curve, read_curve

    kept: dict[tuple[str, int, int], Curve] = {}
    if options.results.is_file():
        try:
            rows = json.loads(options.results.read_text(encoding="utf-8"))["curves"]
            kept = {(one["variant"], one["seed"], one["budget"]): Curve(**one) for one in rows}
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{options.results} cannot be read; give another --results") from None
    for variant, seed in chosen:
        folder = _folder(variant, seed, options)
        if (folder / "finished").exists():
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            if config != variant.config(seed, options.decisions).to_dict():
                raise UserError(
                    f"{folder} holds a run of other options; delete it or give another --runs"
                )
            curve = read_curve(folder, variant.name, seed, options.decisions)
            kept[(variant.name, seed, options.decisions)] = curve
    return list(kept.values())


def compare(options: argparse.Namespace) -> None:
    """Carry out the command."""
    known = {one.name: one for one in variants()}
    if options.run is not None:
        variant = known[options.run]
        train_one(variant, options.seed, options.decisions, _folder(variant, options.seed, options))
        return
    if options.inference:
        from hetsched.benchmarks.ablations_inference import measure_inference

        measure_inference(ROOT, options.results.with_name("ablations_inference.json"))
        return
    # A seed of every variant first, then the next: stopped early, all have equally many.
    chosen = [
        (one, seed)
        for seed in range(options.seeds)
        for one in known.values()
        if re.search(options.variants, one.name)
    ]
    if not chosen:
        raise UserError(f"no variant is called {options.variants!r}; known: {', '.join(known)}")
    if not options.draw_only:
        train_all(chosen, options)
    report(collect(chosen, options), options)


def report(curves: Sequence[Curve], options: argparse.Namespace) -> None:
    """Keep, print and draw."""
    from hetsched.benchmarks.ablations_report import as_json, draw, table

    if not curves:
        raise UserError(f"there are no finished runs in {options.runs}; leave out --draw-only")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(as_json(curves), encoding="utf-8")
    same = [one for one in curves if one.budget == options.decisions]
    print(table(same, {one.name: one.says for one in variants()}))
    draw(same, options.picture)
    print(f"Wrote {options.results} and drew {options.picture}.")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add: Any = parser.add_argument
    add(
        "--variants",
        type=pattern,
        default="",
        metavar="REGEX",
        help="whose name it finds (default: all)",
    )
    add("--seeds", type=int, default=3, metavar="N", help="trainings of each (default 3)")
    add(
        "--decisions", type=int, default=120_000, metavar="N", help="of a run (default %(default)s)"
    )
    add("--workers", type=int, default=2, help="runs at a time (default %(default)s)")
    add("--runs", type=Path, default=RUNS, help="where the run folders are")
    add("--results", type=Path, default=RESULTS, help="where the curves are kept")
    add("--picture", type=Path, default=PICTURE, help="where to draw")
    add("--draw-only", action="store_true", help="train nothing")
    add("--list", action="store_true", help="name the variants")
    add("--inference", action="store_true", help="ways of computing a decision, instead")
    add("--run", help=argparse.SUPPRESS)
    add("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name in ("seeds", "decisions", "workers"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(options, name)}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, print, draw."""
    options = parse(arguments)
    if options.list:
        for one in variants():
            print(f"{one.name:24} {one.says}")
        return
    run(lambda: compare(options))


if __name__ == "__main__":
    main()
