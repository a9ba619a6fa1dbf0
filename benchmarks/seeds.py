"""What another training seed changes, and what each stage of a training brings, on whole sets.

    python benchmarks/seeds.py --data ../shared/data runs/hitzges-1 runs/hitzges-2
    python benchmarks/seeds.py --data ../shared/data runs/hitzges-1 checkpoints/hitzges.safetensors

Each argument is the folder of a finished run, whose ``warm_start.safetensors`` and
``best.safetensors`` are measured, or a checkpoint.  All must be of one scenario.  On each of its
sets (``quality_sets.py``) every checkpoint decides greedily, the best one of a run by samples as
well.  The table gives the mean over trainings of the mean ratio to the set's reference, with the
standard deviation between trainings, which is the spread that a reader who trains again will see.
Costs of every instance are kept in ``benchmarks/results/seeds/SCENARIO.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hetsched.benchmarks.quality_results import Trained, trained
from hetsched.benchmarks.quality_sets import BENCHES, Bench, base_of, default_data, load
from hetsched.cli import UserError, prepare_process, run, user_input

if TYPE_CHECKING:
    from hetsched.envs.files import InstanceSet

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "seeds"
WARM, WHOLE = "warm start", "whole recipe"  # stages


@dataclass(frozen=True)
class Spread:
    """One checkpoint on one set.

    Attributes:
        set, stage, contender: names.
        seed, checkpoint: of the training, and a fingerprint of the weights.
        reference: what ratios divide by.
        ratio: mean of cost / reference.
        cost: by instance.
    """

    set: str
    stage: str
    contender: str
    seed: int
    checkpoint: str
    reference: str
    ratio: float
    cost: tuple[float, ...]


def stages(paths: Sequence[Path]) -> list[Trained]:
    """The checkpoints behind the arguments, named by their stage.

    Raises:
        UserError: a folder without a checkpoint, or checkpoints of several scenarios, or one
            training twice.
        CheckpointError: a file that cannot be read.
    """
    found = []
    for path in paths:
        if not path.is_dir():
            found.append(trained(WHOLE, path))
            continue
        if not (path / "last.safetensors").is_file():
            raise UserError(f"{path} is no finished run; go on with it by --resume first")
        if (path / "warm_start.safetensors").is_file():
            found.append(trained(WARM, path / "warm_start.safetensors"))
        found.append(trained(WHOLE, path / "best.safetensors"))
    scenarios = sorted({one.scenario for one in found})
    if len(scenarios) > 1:
        raise UserError(
            f"these are of {' and '.join(scenarios)}; compare trainings of one scenario"
        )
    if len({(one.name, one.seed) for one in found}) < len(found):
        raise UserError("two of these have the same training seed; leave one out")
    return found


def measure_set(
    bench: Bench, some: InstanceSet, policies: Sequence[Trained], samples: int
) -> list[Spread]:
    """Every checkpoint on every instance of a set."""
    from hetsched.agents.checkpoint import load_policy
    from hetsched.agents.contenders import make_contender
    from hetsched.agents.evaluation import Setting, measure
    from hetsched.agents.table import mean_ratio
    from hetsched.envs.scenarios import get_scenario

    scenario = get_scenario(bench.scenario)
    setting = Setting(scenario.objective, scenario.deciding)
    reference = base_of(some)
    base = np.asarray(some.references[reference], float)
    rows = []
    for one in policies:
        policy = {"learned": load_policy(one.path)}
        names = ["learned", *([f"learned@{samples}"] if samples > 1 and one.name == WHOLE else [])]
        for name in names:
            costs = measure(make_contender(name, policy), some.instances, setting).costs
            ratio, _ = mean_ratio(costs, base)
            kept = tuple(float(f"{cost:.9g}") for cost in costs)
            seed = int(one.seed or 0)
            rows.append(
                Spread(bench.name, one.name, name, seed, one.fingerprint, reference, ratio, kept)
            )
            print(f"{bench.name}: {one.name}, seed {seed}, {name}: {ratio:.4f}",
                  file=sys.stderr, flush=True)  # fmt: skip
    return rows


def table(rows: Sequence[Spread]) -> str:
    """Mean and standard deviation over trainings, by set, stage and contender."""
    form = "{:16} {:13} {:12} {:>8} {:>8} {:>4}  {}"
    lines = [form.format("set", "stage", "contender", "ratio", "± seeds", "n", "seed: ratio")]
    groups: dict[tuple[str, str, str], list[Spread]] = {}
    for row in rows:
        groups.setdefault((row.set, row.stage, row.contender), []).append(row)
    for (name, stage, contender), some in groups.items():
        ratios = np.array([row.ratio for row in some])
        spread = f"{ratios.std(ddof=1):.4f}" if len(some) > 1 else "-"
        each = ", ".join(f"{row.seed}: {row.ratio:.4f}" for row in some)
        count = len(some[0].cost)
        lines.append(
            form.format(name, stage, contender, f"{ratios.mean():.4f}", spread, count, each)
        )
    return "\n".join(lines)


def compare(options: argparse.Namespace) -> None:
    """Carry out the command."""
    prepare_process(1)
    with user_input():
        policies = stages(options.runs)
    scenario = policies[0].scenario
    benches = [one for one in BENCHES if one.scenario == scenario and one.available(options.data)]
    if not benches:
        raise UserError(f"there is no set of {scenario} below {options.data}; see --data")
    path = options.results / f"{scenario}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with user_input(f"--data {options.data}"):
        sets = [load(bench, options.data) for bench in benches]
    rows: list[Spread] = []
    for bench, some in zip(benches, sets, strict=True):
        samples = 0 if options.no_samples or not bench.samples else bench.samples[-1]
        rows += measure_set(bench, some, policies, samples)
    text = ",\n".join(json.dumps(asdict(row)) for row in rows)
    path.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    print(table(rows))
    print(f"Wrote {path}.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="RUN", help="a run's folder, or a checkpoint")
    add("--data", type=Path, default=default_data(), help="folder of the benchmark sets")
    add("--no-samples", action="store_true", help="greedy decisions only")
    add("--results", type=Path, default=RESULTS, help="where results are kept")
    options = parser.parse_args(arguments)
    run(lambda: compare(options))


if __name__ == "__main__":
    main()
