"""The dag test set: 36 instances by seed and generator, and the best costs known for them.

    python benchmarks/dag_set.py --write FOLDER          # for evaluate.py --file FOLDER
    python benchmarks/dag_set.py --bounds 20             # CP-SAT from what is known
    python benchmarks/dag_set.py --improve --annealing-moves 5000000 --bounds 300 --workers 8

The set is the factorial of SIZES, DENSITIES and TAUS with R = 0.6 and three seeds a cell;
instance r of cell c is drawn by ``numpy.random.default_rng((SEED, c, r))``.  Nothing but what is
best known is stored below ``benchmarks/data``: cost, proven lower bound and what found the cost
(``dag_best_known.csv``), and the schedules themselves, so that anybody can check the costs
(``dag_best_schedules.json``).  ``--improve`` anneals anew, ``--bounds`` lets CP-SAT start from the
best schedule; what is better is kept.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import json
import math
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.agents.annealing_graph import anneal_graph
from hetsched.agents.exact import solve_exact
from hetsched.envs.files import save_instance
from hetsched.envs.problem import Problem
from hetsched.envs.scenarios import get_scenario
from hetsched.envs.scenarios.dag import sample_factors
from hetsched.envs.schedule import Schedule
from hetsched.envs.simulator import State

if TYPE_CHECKING:
    from hetsched.envs.instance import Instance

SIZES = ((20, 4), (50, 6), (100, 10))
DENSITIES = (0.1, 0.4)
TAUS = (0.3, 0.6)
SPREAD = 0.6  # R
REPEATS = 3
SEED = 20_250_101
DATA = Path(__file__).resolve().parent / "data"
COSTS, SCHEDULES = "dag_best_known.csv", "dag_best_schedules.json"
HEADER = ("instance", "cost", "bound", "how")


@dataclass(frozen=True)
class Known:
    """Of an instance: the best cost, a proven lower bound, what found the cost, and its schedule.

    The schedule is None where only the cost is known.
    """

    cost: float = math.inf
    bound: float = 0.0
    how: str = ""
    schedule: Schedule | None = field(default=None, compare=False, repr=False)


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


def read_known(folder: Path = DATA) -> dict[str, Known]:
    """By name of the instance; empty where nothing is stored."""
    if not (folder / COSTS).is_file():
        return {}
    schedules: dict[str, Any] = {}
    if (folder / SCHEDULES).is_file():
        schedules = json.loads((folder / SCHEDULES).read_text(encoding="utf-8"))
    ours, found = instances(), {}
    with (folder / COSTS).open(encoding="utf-8") as lines:
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            name = row["instance"]
            schedule = _schedule(ours[name], schedules[name]) if name in schedules else None
            found[name] = Known(float(row["cost"]), float(row["bound"]), row["how"], schedule)
    return found


def write_known(known: dict[str, Known], folder: Path = DATA) -> None:
    """Both files, each of them whole or not at all."""
    folder.mkdir(exist_ok=True)
    out = io.StringIO()
    out.write("# weighted tardiness; made by benchmarks/dag_set.py\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    for name, one in sorted(known.items()):
        writer.writerow((name, f"{one.cost:g}", f"{one.bound:g}", one.how))
    _replace(folder / COSTS, out.getvalue())
    ours = instances()
    rows = [
        f"{json.dumps(name)}: {json.dumps(_described(one.schedule, ours[name]))}"
        for name, one in sorted(known.items())
        if one.schedule is not None
    ]
    _replace(folder / SCHEDULES, "{\n" + ",\n".join(rows) + "\n}\n")


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _described(schedule: Schedule, instance: Instance) -> dict[str, list[int]]:
    """The machine and the start of every job; all times of the set are whole."""
    starts = np.rint(schedule.starts).astype(int)
    return {"machines": schedule.machines(instance).tolist(), "starts": starts.tolist()}


def _schedule(instance: Instance, described: dict[str, list[int]]) -> Schedule:
    # Every job can run on every machine, so modes are numbered by job, then by machine.
    jobs = np.arange(instance.num_jobs)
    modes = jobs * instance.num_machines + np.array(described["machines"])
    starts = np.array(described["starts"], float)
    return Schedule(modes, starts, starts + instance.processing_times[modes])


def better(known: Known, found: Schedule, how: str, instance: Instance) -> Known:
    """What is known, or the schedule found where it is cheaper, or as cheap and the first."""
    cost = found.cost(instance, get_scenario("dag").objective)
    margin = 1e-9 if known.schedule is None else -1e-9
    if cost >= known.cost + margin:
        return known
    found.check(instance)
    how = known.how if cost > known.cost - 1e-9 else how
    return Known(cost, known.bound, how, found)


def annealed(instance: Instance, known: Known, moves: int, restarts: int) -> Known:
    """What is known, or better."""
    objective = get_scenario("dag").objective
    for seed in range(restarts):
        found = anneal_graph(instance, objective, moves, seed)
        known = better(known, found, f"annealing {restarts} x {moves}", instance)
    return known


def bounded(instance: Instance, known: Known, seconds: float, workers: int) -> Known:
    """What is known, with a lower bound where it is higher and CP-SAT's schedule where better.

    The bound is CP-SAT's, or that of every job at the earliest end it would have were it alone.
    """
    objective = get_scenario("dag").objective
    alone = State.initial(Problem.from_instances([instance]), objective, "plan").bound
    exact = solve_exact(instance, objective, seconds, workers, hint=known.schedule)
    if exact.schedule is not None:
        how = f"CP-SAT {seconds:g} s, {workers} workers"
        how = f"{how}, from {known.how}" if known.schedule is not None else how
        known = better(known, exact.schedule, how, instance)
    # Costs are sums of weights times whole times, so a bound can be rounded up.
    bound = max(known.bound, float(alone[0]), math.ceil(exact.bound - 1e-6))
    return replace(known, bound=min(bound, known.cost))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write the set there")
    parser.add_argument("--improve", action="store_true", help="anneal for better costs")
    parser.add_argument("--annealing-moves", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--restarts", type=int, default=2, metavar="N")
    parser.add_argument(
        "--bounds", type=float, default=0.0, metavar="SECONDS", help="of CP-SAT an instance"
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="of CP-SAT")
    options = parser.parse_args(arguments)
    if not (options.write or options.improve or options.bounds):
        parser.error("there is nothing to do; give --write FOLDER, --improve or --bounds SECONDS")
    if options.annealing_moves < 0 or options.restarts < 1 or options.bounds < 0:
        parser.error("moves and seconds must be 0 or more, restarts 1 or more")
    if options.workers < 1:
        parser.error(f"--workers is {options.workers}; give 1 or more")
    known = read_known()
    for name, instance in instances().items() if options.improve or options.bounds else ():
        before = now = known.get(name, Known())
        if options.improve:
            now = annealed(instance, now, options.annealing_moves, options.restarts)
        if options.bounds:
            now = bounded(instance, now, options.bounds, options.workers)
        known[name] = now
        print(
            f"{name}: cost {before.cost:g} -> {now.cost:g}, bound {before.bound:g} -> "
            f"{now.bound:g}",
            flush=True,
        )
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
