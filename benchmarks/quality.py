"""Quality against time: the ladder of what a policy can do, and every rival, on the same sets.

    python benchmarks/quality.py --data ../shared/data
    python benchmarks/quality.py --data ../shared/data --sets hitzges --count 30

Measures what has no result yet, keeps costs and seconds of every instance as
``benchmarks/results/quality/SET/CONTENDER.json``, prints a table per set and draws
``docs/images/quality.png``.  Interrupted, it goes on where it was.  Contenders with a time limit
all get the same one, on the same threads, one instance at a time; times of the others are those
of batches.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetsched.agents.policy import Policy
    from hetsched.envs.files import InstanceSet

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "quality"
PICTURE = ROOT / "docs" / "images" / "quality.png"
REFERENCES = ("optimum", "annealing")  # what costs are divided by, best first
SEED = 4_000_037


@dataclass(frozen=True)
class Bench:
    """One set and who is measured on it.

    Attributes:
        name: of the results' folder.
        scenario: gives the objective and the rules a search starts from.
        path: of the set, below the data folder.
        rule: the scenario's strongest rule, which stands in where no policy ships.
        rivals: contenders that have nothing to do with a policy.
        seconds: time limits of searches and solvers.
    """

    name: str
    scenario: str
    path: str
    rule: str
    rivals: tuple[str, ...]
    seconds: tuple[str, ...] = ("0.1", "1", "10")

    def contenders(self, learned: bool) -> tuple[str, ...]:
        """Names, as ``hetsched.agents.contenders`` reads them, the quickest first."""
        root = "learned" if learned else self.rule
        ladder = [root, f"{root}@16", f"{root}@64"]
        timed = [
            f"{who}@{limit}"
            for limit in self.seconds
            for who in (f"{root}+search", "annealing", "cp-sat", f"{root}+cp-sat")
        ]
        return tuple(dict.fromkeys((*ladder, *self.rivals, *timed)))


ATC = ("atc", "atc-grid", "atc@16", "atc@64", "wspt", "min-min")
ATCS = ("atcs-r", "atcs-r-grid", "atcs-r@16", "atcs-r@64", "min-min")
LISTS = ("lpt", "sufferage", "min-min", "min-min@16", "min-min@64")
BENCHES = (
    *(
        Bench(f"hitzges-{size}", "hitzges", f"hitzges/{size}.npz", "atc", ATC)
        for size in ("8x4", "20x4", "50x6", "100x10")
    ),
    *(
        Bench(f"upmsp-{size}", "upmsp", f"upmsp/{size}.npz", "atcs-r", ATCS)
        for size in ("20x5", "50x10", "100x15")
    ),
    *(
        Bench(f"rcmax-{size}", "rcmax", f"rcmax/{size}.npz", "lpt", LISTS)
        for size in ("20x4", "50x10", "100x10", "100x20", "200x20", "500x50")
    ),
)


def load(bench: Bench, data: Path, count: int | None) -> InstanceSet:
    """The first instances of a set, with their references."""
    from hetsched.envs.files import InstanceSet, load_set

    whole = load_set(data / bench.path)
    kept = {name: costs[:count] for name, costs in whole.references.items()}
    return InstanceSet(whole.instances[:count], kept, bench.name)


def shipped(scenario: str) -> dict[str, Policy]:
    """The policy that ships for a scenario, as ``learned``; nothing where none does."""
    if not (ROOT / "checkpoints" / f"{scenario}.safetensors").is_file():
        return {}
    from hetsched.agents.checkpoint import load_policy

    return {"learned": load_policy(scenario)}


def run(bench: Bench, some: InstanceSet, wanted: str, threads: int, again: bool) -> None:
    """Measure what has no result for so many instances yet, and write it."""
    from hetsched.agents.contenders import make_contender
    from hetsched.agents.evaluation import Setting, measure
    from hetsched.envs.scenarios import get_scenario

    scenario, policies = get_scenario(bench.scenario), shipped(bench.scenario)
    setting = Setting(scenario.objective, scenario.deciding, seed=SEED, threads=threads)
    for name in bench.contenders("learned" in policies):
        path = result_file(bench, name)
        if not re.search(wanted, name) or (
            not again and path.is_file() and read(path)["count"] >= len(some.instances)
        ):
            continue
        print(f"{bench.name}: {name} on {len(some.instances)} instances", file=sys.stderr)
        contender = make_contender(name, policies, scenario.rules)
        result = measure(contender, some.instances, setting)
        values: dict[str, Any] = {
            "set": bench.name,
            "contender": name,
            "count": len(some.instances),
            "threads": threads,
            "machine": platform.processor() or platform.machine(),
            "cost": [float(f"{one:.9g}") if np.isfinite(one) else None for one in result.costs],
            "seconds": [float(f"{one:.3g}") for one in result.seconds],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values) + "\n", encoding="utf-8")


def result_file(bench: Bench, contender: str) -> Path:
    """Where the result of a contender is kept."""
    return RESULTS / bench.name / f"{re.sub('[^A-Za-z0-9.@+-]', '_', contender)}.json"


def read(path: Path) -> dict[str, Any]:
    """One result."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Point:
    """A contender on a set: mean cost ratio, its standard error, and mean seconds an instance."""

    name: str
    ratio: float
    error: float
    seconds: float
    count: int


def points(bench: Bench, some: InstanceSet, learned: bool) -> tuple[list[Point], dict[str, float]]:
    """What was measured, and the mean ratios of the set's own references."""
    base_name = next(name for name in REFERENCES if name in some.references)
    base = some.references[base_name].astype(float)
    found = []
    for name in bench.contenders(learned):
        path = result_file(bench, name)
        if not path.is_file():
            continue
        result = read(path)
        count = min(result["count"], len(base))
        costs = np.array([np.nan if one is None else one for one in result["cost"]][:count])
        ratios = costs / base[:count]
        error = float(ratios.std(ddof=1) / np.sqrt(count)) if count > 1 else np.nan
        seconds = float(np.mean(result["seconds"][:count]))
        found.append(Point(name, float(ratios.mean()), error, seconds, count))
    others = {
        name: float((costs / base).mean())
        for name, costs in some.references.items()
        if costs.dtype.kind != "b" and name != base_name
    }
    return found, others


def print_table(bench: Bench, found: Sequence[Point], others: dict[str, float]) -> None:
    """Mean ratio to the reference, best first; a dash where somebody found no schedule."""
    print(f"\n{bench.name}\n{'contender':24} {'ratio':>8} {'±':>7} {'s':>9} {'n':>4}")
    for one in sorted(found, key=lambda point: (np.isnan(point.ratio), point.ratio)):
        ratio = "-" if np.isnan(one.ratio) else f"{one.ratio:.4f}"
        print(f"{one.name:24} {ratio:>8} {one.error:7.4f} {one.seconds:9.4f} {one.count:4}")
    for name, value in others.items():
        print(f"{name + ' (file)':24} {value:8.4f}")


FAMILIES = (  # first match: pattern of the name, label, colour, whether the points are a line
    (r"\+search", "policy + search", "#1b7837", True),
    (r"^annealing", "annealing", "#e08214", True),
    (r"\+cp-sat", "policy + CP-SAT", "#5aae61", True),
    (r"^cp-sat", "CP-SAT", "#2166ac", True),
    (r"^learned", "policy: greedy, samples", "#762a83", True),
    (r"-grid", "rules over a grid", "#b2182b", False),
    (r"@", "randomised rules", "#f4a582", True),
    (r"", "rules", "#999999", False),
)


def draw(panels: Sequence[tuple[Bench, list[Point], dict[str, float]]], path: Path) -> None:
    """One panel per set: how far above the best known, against seconds per instance."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.2 * columns, 3.6 * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    handles: dict[str, Any] = {}
    for axis, (bench, found, others) in zip(axes.flat, panels, strict=False):
        groups: dict[tuple[str, str, bool], list[Point]] = {}
        for one in found:
            family = next(rest[1:] for rest in FAMILIES if re.search(rest[0], one.name))
            groups.setdefault(family, []).append(one)
        for (label, colour, joined), some in groups.items():
            some.sort(key=lambda point: point.seconds)
            x = [one.seconds for one in some]
            y = [100 * (one.ratio - 1) for one in some]
            style = "o-" if joined else "o"
            (handles[label],) = axis.plot(x, y, style, color=colour, markersize=4)
        for name in ("published_network", "published_network_exact_tail"):
            if name in others:
                height = 100 * (others[name] - 1)
                handles["published network (untimed)"] = axis.axhline(
                    height, color="black", linestyle=":", linewidth=1
                )
        axis.set(title=bench.name, xscale="log")
        axis.set_yscale("symlog", linthresh=1.0)
        axis.axhline(0, color="black", linewidth=0.5)
        axis.yaxis.set_major_formatter("{x:g}")
        axis.grid(alpha=0.3)
    figure.supxlabel("seconds per instance")
    figure.supylabel("% above the reference of the set")
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper center", ncols=2 * columns, fontsize=8
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder of the benchmark sets")
    add("--sets", default="", metavar="REGEX", help="sets whose name it finds (default: all)")
    add("--contenders", default="", metavar="REGEX", help="likewise")
    add("--count", type=int, metavar="N", help="the first N instances of every set (default: all)")
    add("--threads", type=int, default=1, help="of everybody (default %(default)s)")
    add("--again", action="store_true", help="measure what has a result, too")
    add("--draw-only", action="store_true", help="measure nothing")
    add("--picture", type=Path, default=PICTURE, help="where to draw (default: in docs/images)")
    options = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(options.threads)
    panels = []
    for bench in BENCHES:
        if not re.search(options.sets, bench.name) or not (options.data / bench.path).is_file():
            continue
        some = load(bench, options.data, options.count)
        if not options.draw_only:
            run(bench, some, options.contenders, options.threads, options.again)
        found, others = points(bench, some, bool(shipped(bench.scenario)))
        if found:
            print_table(bench, found, others)
            panels.append((bench, found, others))
    if not panels:
        parser.error(f"no set below {options.data} is called {options.sets!r}, or none has results")
    draw(panels, options.picture)
    print(f"\nDrew {options.picture}.")


if __name__ == "__main__":
    main()
