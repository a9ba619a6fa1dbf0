"""Larger than anything seen in training: cost against every rule, and how the time grows.

    python benchmarks/growth.py
    python benchmarks/growth.py --scenarios hitzges --sizes 30x6,100x10 --counts 4,2 --limit 60

A policy that was trained on at most 30 jobs or so plans or dispatches up to 1000 jobs on 100
machines, beside the rules of its scenario.  Per schedule: cost, decisions, edges (modes that were
kept) and CPU seconds on one thread, the simulator's included.  ``learned:keep=K`` sees only the K
fastest modes of every job, and ``together=S`` decides about a share S of the jobs at one look
(``hetsched.agents.contenders``).  Three laws are fitted to the time of a whole schedule: a power of
the decisions, a power of the edges, and

    time of a decision = fixed + per_edge * (mean number of edges that are open)

Results are kept in ``benchmarks/results/growth.json`` after every schedule, so a run that was
stopped goes on; ``docs/images/growth.png`` is drawn.  A schedule that takes longer than ``--limit``
is given up, and no further one of that contender and size is begun.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.cli import UserError, prepare_process, run, user_input

if TYPE_CHECKING:
    from hetsched.agents.policy import Policy
    from hetsched.envs.instance import Instance
    from hetsched.envs.scenarios import Scenario

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "growth.json"
PICTURE = ROOT / "docs" / "images" / "growth.png"
SEED = 5_000_011
SCENARIOS = ("hitzges", "gpu-cluster")
SIZES = ("30x6", "100x10", "300x30", "1000x100")
COUNTS = (20, 8, 4, 2)
LEARNED = "learned"
VARIANTS = "learned,learned:keep=4,learned:keep=8,learned:keep=8,together=0.05"


@dataclass
class Grown:
    """What a contender did at one size, growing schedule by schedule.

    Attributes:
        scenario, size, contender: whose.
        checkpoint: fingerprint of the policy, empty for a rule.
        limit: seconds after which a schedule was given up, None where none was.
        cost, cpu_seconds, decisions, edges, open_edges: by instance; the last is the mean over
            decisions of the modes of jobs that were to be seen.
    """

    scenario: str
    size: str
    contender: str
    checkpoint: str = ""
    limit: float | None = None
    cost: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    decisions: list[int] = field(default_factory=list)
    edges: list[int] = field(default_factory=list)
    open_edges: list[float] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.scenario, self.size, self.contender


def read(path: Path) -> dict[tuple[str, str, str], Grown]:
    """What is kept, by scenario, size and contender."""
    if not path.is_file():
        return {}
    rows = (Grown(**row) for row in json.loads(path.read_text(encoding="utf-8"))["schedules"])
    return {row.key: row for row in rows}


def write(path: Path, kept: dict[tuple[str, str, str], Grown], laws: Sequence[Any] = ()) -> None:
    """One row a line, so that differences can be read."""
    rows = ",\n".join(json.dumps(asdict(row)) for row in kept.values())
    lines = ",\n".join(json.dumps(asdict(law)) for law in laws)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    text = f'{{"seed": {SEED},\n"laws": [\n{lines}\n],\n"schedules": [\n{rows}\n]}}\n'
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def decide(
    policy: Policy, instance: Instance, scenario: Scenario, limit: float
) -> tuple[float, float, int, int, float] | None:
    """Cost, CPU seconds, decisions, edges and mean open edges; None where it took too long."""
    from hetsched.agents.learned import problem_for
    from hetsched.agents.policy import decisions as decisions_of
    from hetsched.agents.policy import greedy
    from hetsched.envs.simulator import State

    began = time.process_time()
    problem = problem_for(policy, [instance], "cpu")
    state = State.initial(problem, scenario.objective, scenario.deciding)
    uncounted, seen = 0.0, 0.0
    while not bool(state.done.all()):
        if time.process_time() - began > limit:
            return None
        for actions, still in decisions_of(policy, state, greedy):
            pause = time.process_time()
            seen += float((problem.mode_mask & state.visible()[..., None]).sum())
            uncounted += time.process_time() - pause
            state.step(actions, still)
    seconds = time.process_time() - began - uncounted
    schedule = state.schedules()[0]
    schedule.check(instance)
    decisions, edges = int(state.steps[0]), int(problem.mode_mask.sum())
    return schedule.cost(instance, scenario.objective), seconds, decisions, edges, seen / decisions


def measure(row: Grown, policy: Policy, scenario: Scenario, count: int, limit: float) -> bool:
    """Add the next schedule to a row; False where there is nothing more to do."""
    from hetsched.envs.scenarios import sample_instances

    done = len(row.cost)
    if done >= count or (row.limit is not None and row.limit >= limit):
        return False
    jobs, machines = size_of(row.size)
    instance = sample_instances(scenario, done + 1, SEED, jobs, machines)[done]
    found = decide(policy, instance, scenario, limit)
    if found is None:
        row.limit = limit
        return True
    row.limit = None
    cost, seconds, decisions, edges, seen = found
    row.cost.append(float(f"{cost:.9g}"))
    row.cpu_seconds.append(float(f"{seconds:.4g}"))
    row.decisions.append(decisions)
    row.edges.append(edges)
    row.open_edges.append(float(f"{seen:.4g}"))
    return True


def size_of(text: str) -> tuple[int, int]:
    """Jobs and machines of ``100x10``.

    Raises:
        ValueError: another form.
    """
    if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", text):
        raise ValueError(f"size {text!r} must read JOBSxMACHINES, such as 100x10")
    jobs, machines = text.split("x")
    return int(jobs), int(machines)


def grow(options: argparse.Namespace) -> None:
    """Carry out the command."""
    with user_input():
        wanted = [one for one in options.sizes.split(",") if size_of(one)]
        counts = [int(one) for one in options.counts.split(",")]
    if len(counts) != len(wanted) or min(counts) < 1:
        raise UserError("--counts must give one whole number above 0 for each of --sizes")
    prepare_process(1)
    kept = read(options.results)
    if not options.draw_only:
        for scenario in options.scenarios.split(","):
            measure_scenario(scenario, dict(zip(wanted, counts, strict=True)), kept, options)
    if not kept:
        raise UserError(f"there are no results in {options.results}; leave out --draw-only")
    from hetsched.benchmarks.growth_report import draw, laws, table

    found = laws(kept)
    write(options.results, kept, found)
    for scenario in dict.fromkeys(name for name, _, _ in kept):
        print(table(scenario, kept, found))
    draw(kept, found, options.picture)
    print(f"Wrote {options.results} and drew {options.picture}.")


def measure_scenario(
    name: str,
    counts: dict[str, int],
    kept: dict[tuple[str, str, str], Grown],
    options: argparse.Namespace,
) -> None:
    """Every contender at every size, small ones first; ``kept`` is added to and written."""
    from hetsched.agents.checkpoint import load_policy, resolve_policy
    from hetsched.agents.contenders import one_policy, split_names
    from hetsched.agents.learned import LearnedPolicy
    from hetsched.envs.scenarios import get_scenario

    path = resolve_policy(options.policy or name)
    learned = {LEARNED: load_policy(path)}
    with user_input():
        scenario = get_scenario(name)
        names = dict.fromkeys((*scenario.rules, *split_names(options.variants)))
        policies = {one: one_policy(one, learned) for one in names}
    fingerprint = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    for size, count in counts.items():
        for contender, policy in policies.items():
            if isinstance(policy, LearnedPolicy):
                if policy.keep is not None and policy.keep >= size_of(size)[1]:
                    continue  # that is all modes
                if policy.together and scenario.deciding != "plan":
                    continue  # it decides one by one all the same
            ours = contender.startswith(LEARNED)
            empty = Grown(name, size, contender, fingerprint if ours else "")
            row = kept.get(empty.key, empty)
            if row.checkpoint != empty.checkpoint:
                row = empty
            small = Grown(name, "10x3", contender)
            measure(small, policy, scenario, 1, options.limit)  # pays for lazy initialisation
            while measure(row, policy, scenario, count, options.limit):
                kept[row.key] = row
                write(options.results, kept)
            spent = "given up" if row.limit else f"{sum(row.cpu_seconds):.1f} CPU s"
            print(f"{name} {size}: {contender}, {len(row.cost)} schedules, {spent}",
                  file=sys.stderr, flush=True)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--scenarios", default=",".join(SCENARIOS), help="default: %(default)s")
    add("--sizes", default=",".join(SIZES), help="jobs x machines (default: %(default)s)")
    add("--counts", default=",".join(map(str, COUNTS)), help="instances of each size")
    add("--variants", default=VARIANTS, help="of the policy (default: %(default)s)")
    add("--policy", metavar="CKPT", help="instead of the one that ships for each scenario")
    add("--limit", type=float, default=300.0, metavar="SECONDS", help="of CPU time a schedule")
    add("--results", type=Path, default=RESULTS, help="where results are kept")
    add("--picture", type=Path, default=PICTURE, help="where to draw")
    add("--draw-only", action="store_true", help="measure nothing")
    options = parser.parse_args(arguments)
    run(lambda: grow(options))


if __name__ == "__main__":
    main()
