"""The dag test set: 36 instances by seed and generator, and the best costs known for them.

    python benchmarks/dag_set.py --write FOLDER          # for evaluate.py --file FOLDER
    python benchmarks/dag_set.py --improve --annealing-moves 5000000 --cp-sat 300 --workers 8

The set is the factorial of SIZES, DENSITIES and TAUS with R = 0.6 and three seeds a cell;
instance r of cell c is drawn by ``numpy.random.default_rng((SEED, c, r))``.  Nothing but the best
known costs is stored (``benchmarks/data/dag_best_known.csv``): cost, proven lower bound, and what
found the cost.  ``--improve`` searches again and keeps what is better.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hetsched.agents.annealing_graph import anneal_graph
from hetsched.agents.exact import solve_exact
from hetsched.envs.files import save_instance
from hetsched.envs.scenarios import get_scenario
from hetsched.envs.scenarios.dag import sample_factors

if TYPE_CHECKING:
    from hetsched.envs.instance import Instance

SIZES = ((20, 4), (50, 6), (100, 10))
DENSITIES = (0.1, 0.4)
TAUS = (0.3, 0.6)
SPREAD = 0.6  # R
REPEATS = 3
SEED = 20_250_101
BEST_KNOWN = Path(__file__).resolve().parent / "data" / "dag_best_known.csv"
HEADER = ("instance", "cost", "bound", "found_by")


@dataclass(frozen=True)
class Known:
    """Of an instance: the best cost, a proven lower bound, and what found the cost."""

    cost: float = math.inf
    bound: float = 0.0
    found_by: str = ""


def instances() -> dict[str, Instance]:
    """Name -> instance; names sort in the order of the set."""
    found = {}
    cells = itertools.product(SIZES, DENSITIES, TAUS)
    for cell, ((jobs, machines), density, tau) in enumerate(cells):
        for repeat in range(REPEATS):
            name = f"{jobs:03d}x{machines:02d}-density{density:g}-tau{tau:g}-{repeat}"
            rng = np.random.default_rng((SEED, cell, repeat))
            found[name] = sample_factors(rng, jobs, machines, density, tau, SPREAD)
    return found


def read_known(path: Path = BEST_KNOWN) -> dict[str, Known]:
    """By name of the instance; empty where nothing is stored."""
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8") as lines:
        rows = csv.DictReader(line for line in lines if not line.startswith("#"))
        return {
            row["instance"]: Known(float(row["cost"]), float(row["bound"]), row["found_by"])
            for row in rows
        }


def write_known(known: dict[str, Known], path: Path = BEST_KNOWN) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as out:
        out.write("# weighted tardiness; made by benchmarks/dag_set.py --improve\n")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(HEADER)
        for name, one in sorted(known.items()):
            writer.writerow((name, f"{one.cost:g}", f"{one.bound:g}", one.found_by))


def improved(
    instance: Instance, known: Known, moves: int, restarts: int, seconds: float, workers: int
) -> Known:
    """The better of what is known and what annealing, then CP-SAT from there, find."""
    objective = get_scenario("dag").objective
    runs = [anneal_graph(instance, objective, moves, seed) for seed in range(restarts)]
    best = min(runs, key=lambda one: one.cost(instance, objective))
    best.check(instance)
    cost, found_by, bound = best.cost(instance, objective), f"annealing {restarts} x {moves}", 0.0
    if seconds:
        exact = solve_exact(instance, objective, seconds, workers, hint=best)
        bound = exact.bound
        if exact.cost < cost - 1e-9 and exact.schedule is not None:
            exact.schedule.check(instance)
            cost, found_by = exact.cost, f"CP-SAT {seconds:g} s, {workers} workers, from {found_by}"
    if known.cost <= cost + 1e-9:
        cost, found_by = known.cost, known.found_by
    return Known(cost, max(bound, known.bound), found_by)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write the set there")
    parser.add_argument("--improve", action="store_true", help="search for better costs")
    parser.add_argument("--annealing-moves", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--restarts", type=int, default=2, metavar="N")
    parser.add_argument("--cp-sat", type=float, default=0.0, metavar="SECONDS", help="0: without")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="of CP-SAT")
    options = parser.parse_args(arguments)
    if not options.write and not options.improve:
        parser.error("there is nothing to do; give --write FOLDER or --improve")
    if options.annealing_moves < 0 or options.restarts < 1 or options.cp_sat < 0:
        parser.error("moves and seconds must be 0 or more, restarts 1 or more")
    known = read_known()
    for name, instance in instances().items() if options.improve else ():
        before = known.get(name, Known())
        known[name] = improved(
            *(instance, before, options.annealing_moves, options.restarts),
            *(options.cp_sat, options.workers),
        )
        print(f"{name}: {before.cost:g} -> {known[name].cost:g} (bound {known[name].bound:g})")
        write_known(known)  # a long search may be stopped at any time
    if options.write:
        write_set(options.write, known)
    return 0


def write_set(folder: Path, known: dict[str, Known]) -> None:
    """One ``.json`` an instance, and ``reference_best_known.csv`` in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    ours = instances()
    for name, instance in ours.items():
        save_instance(folder / f"{name}.json", instance)
    if set(known) >= set(ours):
        rows = [f"{known[name].cost:g}" for name in sorted(ours)]
        text = "\n".join(["# weighted tardiness, best known", *rows]) + "\n"
        (folder / "reference_best_known.csv").write_text(text, encoding="utf-8")
    else:
        print("best known costs are missing; run --improve first", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
