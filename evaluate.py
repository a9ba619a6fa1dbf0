"""Compare policies, rules and CP-SAT on the same instances.

    python evaluate.py --scenario hitzges --policy runs/hitzges/best.safetensors --against all

Everything is measured alike: each schedule is checked, its cost computed anew, and the time spent
deciding counted.  ``docs/evaluate.md`` explains the table and the files.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.cli import UserError, check_device, prepare_process, run, user_input

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetsched.agents.evaluation import Contender, Measurement
    from hetsched.agents.policy import Policy
    from hetsched.agents.table import Table
    from hetsched.envs.instance import Instance
    from hetsched.envs.objective import Objective
    from hetsched.envs.scenarios import Scenario

COUNT = 100
SEED = 1_000_000  # far from the seeds people train with, so that no instance is seen in both


def build_parser() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        prog="evaluate.py",
        description="Compare policies, rules and CP-SAT on the same instances.",
        epilog="The table, the names of contenders and the files: docs/evaluate.md",
        allow_abbrev=False,
    )
    add = parser.add_argument_group("instances").add_argument
    add(
        "--scenario",
        required=True,
        metavar="NAME",
        help="family of instances; gives objective, way of deciding and rules",
    )
    add(
        "--file",
        type=Path,
        metavar="PATH",
        help="a set (.npz), an instance (.fjs, .json, .npz) or a folder of them instead of random "
        "instances",
    )
    add(
        "--count",
        type=int,
        metavar="N",
        help=f"instances (default {COUNT}; with --file all, or its first N)",
    )
    add(
        "--seed",
        type=int,
        default=SEED,
        metavar="S",
        help="of instances and of samples (default %(default)s)",
    )
    add("--jobs", type=int, metavar="N", help="jobs per instance (default: the scenario's)")
    add("--machines", type=int, metavar="M", help="machines per instance (default: the scenario's)")
    add(
        "--objective",
        metavar="SUM",
        help="instead of the scenario's, such as 'makespan + 2*weighted_tardiness'",
    )
    add = parser.add_argument_group("contenders").add_argument
    add(
        "--policy",
        nargs="+",
        action="extend",
        default=[],
        metavar="CKPT",
        help="checkpoints, or names of shipped policies",
    )
    add(
        "--samples",
        type=int,
        metavar="K",
        help="also the best of K schedules of each policy: greedy and K-1 sampled",
    )
    add(
        "--temperature",
        type=float,
        metavar="T",
        help="of the samples; lower stays closer to greedy (default: the checkpoint's)",
    )
    add(
        "--search-seconds",
        type=float,
        metavar="X",
        help="also search, so long per instance, from each policy's schedule and the rules'",
    )
    add(
        "--against",
        default="all",
        metavar="NAMES",
        help="rules and portfolios between commas, such as ect,atc:k=2,atc-grid; "
        "all: the scenario's rules; none (default %(default)s)",
    )
    add("--cp-sat", type=float, metavar="SECONDS", help="also CP-SAT, so long per instance")
    add = parser.add_argument_group("results").add_argument
    add(
        "--reference",
        metavar="NAME",
        help="what ratios divide by: a reference of the set, a contender, or best-of-rules "
        "(default: the set's optimum or annealing, else the rule of least mean cost)",
    )
    add("--json", type=Path, metavar="OUT", help="write costs and seconds of every instance")
    add(
        "--gantt",
        metavar="PREFIX",
        help="draw the first instance's schedule to PREFIX.png and PREFIX.html",
    )
    add = parser.add_argument_group("computing").add_argument
    add(
        "--batch",
        type=int,
        metavar="N",
        help="instances decided at once (default: by size; 1: times single decisions)",
    )
    add("--device", default="auto", metavar="D", help="auto, cpu or cuda (default %(default)s)")
    add("--threads", "--num-threads", type=int, metavar="N", help="CPU threads (default: all)")
    return parser


def evaluate(args: argparse.Namespace) -> tuple[Table, list[Measurement]]:
    """Measure, print the table and write what was asked for.

    Raises:
        UserError: an option or a file that makes no sense.
    """
    _refuse_early(args)
    from hetsched.envs.objective import Objective
    from hetsched.envs.scenarios import get_scenario

    with user_input():
        scenario = get_scenario(args.scenario)
    objective = scenario.objective
    if args.objective is not None:
        with user_input("--objective"):
            objective = Objective.parse(args.objective)
    instances, references = load_instances(args, scenario)

    prepare_process(args.threads)
    contenders = make_contenders(args, scenario, objective)
    import torch

    from hetsched.agents.evaluation import Setting, default_batch, measure
    from hetsched.agents.results import as_json, describe_sizes, draw_first
    from hetsched.agents.table import build_table, check_reference

    with user_input("--reference"):
        check_reference(contenders, references, args.reference)
    device, threads = _device(args.device), torch.get_num_threads()
    setting = Setting(objective, scenario.deciding, device, args.seed, threads)
    batch = args.batch or default_batch(instances)
    measurements = [
        measure(one, instances, setting, batch, progress=_progress(one.name, len(instances)))
        for one in contenders
    ]
    table = build_table(measurements, references, args.reference)
    sizes = describe_sizes(instances)
    print(f"{scenario.name} ({scenario.deciding}): {sizes}, cost = {objective}\n")
    print(table.text())
    how = f"{min(batch, len(instances))} instances at once on {device}, --threads {threads}"
    print(f"ms: per decision (scoring and selecting), {how}.")
    if args.json is not None:
        result = as_json(scenario.name, objective, measurements, references, table)
        args.json.write_text(json.dumps(result, allow_nan=False) + "\n", encoding="utf-8")
    if args.gantt is not None:
        drawn = draw_first(args.gantt, measurements, instances[0], table)
        if drawn is None:
            print("note: nobody has a schedule of the first instance to draw.", file=sys.stderr)
        else:
            print(f"Drew the schedule of {drawn} to {args.gantt}.png and {args.gantt}.html.")
    return table, measurements


def _refuse_early(args: argparse.Namespace) -> None:
    """What is wrong whatever the files say, before anything slow begins."""
    for name in ("count", "jobs", "machines", "samples", "batch"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise UserError(f"--{name} is {value}; give 1 or more")
    if not 0 <= args.seed < 2**63:
        raise UserError(f"--seed is {args.seed}; give 0 or more, below 2**63")
    if args.samples is not None and not args.policy:
        raise UserError("--samples needs a policy to sample from; add --policy")
    if args.temperature is not None and args.samples is None:
        raise UserError("--temperature is that of samples; add --samples K")
    if args.file is not None and (args.jobs or args.machines):
        raise UserError("--jobs and --machines make no sense with --file, whose sizes are fixed")
    for name, path in (("json", args.json), ("gantt", args.gantt)):
        if path is not None and not Path(path).parent.is_dir():
            raise UserError(f"--{name}: there is no folder {str(Path(path).parent)!r}; create it")
    if args.json is not None and args.json.is_dir():
        raise UserError(f"--json: {str(args.json)!r} is a folder; name a file")


def load_instances(
    args: argparse.Namespace, scenario: Scenario
) -> tuple[Sequence[Instance], dict[str, NDArray[Any]]]:
    """The instances, and the (instances,) costs that a set brings along.

    Raises:
        UserError: a damaged set, or instances that cannot be decided as the scenario does.
    """
    from hetsched.envs.benchmark_files import load_benchmark
    from hetsched.envs.scenarios import sample_instances

    instances: Sequence[Instance]
    references: dict[str, NDArray[Any]] = {}
    if args.file is None:
        with user_input():
            instances = sample_instances(
                scenario, args.count or COUNT, args.seed, args.jobs, args.machines
            )
    else:
        with user_input("--file"):
            loaded = load_benchmark(args.file)
        if args.count is not None and args.count > len(loaded):
            raise UserError(f"--count is {args.count}, but {args.file} holds {len(loaded)}")
        count = args.count or len(loaded)
        instances = loaded.instances[:count]
        references = {name: costs[:count] for name, costs in loaded.references.items()}
    if scenario.deciding == "plan" and any(one.actual_times is not None for one in instances):
        raise UserError(
            f"scenario {scenario.name!r} plans with known durations, but the instances have "
            "actual_times; take a scenario that dispatches"
        )
    return instances, references


def make_contenders(
    args: argparse.Namespace, scenario: Scenario, objective: Objective
) -> list[Contender]:
    """Policies, their samples, searches, what they are compared against, and CP-SAT.

    Raises:
        UserError: a checkpoint or name that cannot be used, or nothing to measure.
    """
    from hetsched.agents.beam import Beam
    from hetsched.agents.contenders import OnePolicy, make_contender, searches, split_names
    from hetsched.agents.rules import RULES
    from hetsched.agents.sampling import BestOfSamples

    with user_input("--policy"):
        policies = load_policies(args, objective) if args.policy else {}
    contenders: list[Contender] = [OnePolicy(one) for one in policies.values()]
    if args.samples is not None:
        with user_input("--temperature"):
            contenders += [
                BestOfSamples(one, args.samples, args.temperature) for one in policies.values()
            ]
    if args.search_seconds is not None:
        against = [one for one in split_names(args.against) if "@" not in one]
        named = [one for one in against if one.partition(":")[0] in RULES]
        with user_input("--search-seconds"):
            contenders += searches(policies, args.search_seconds, (*scenario.rules, *named))
    with user_input("--against"):
        for name in split_names(args.against):
            names = scenario.rules if name == "all" else () if name == "none" else (name,)
            contenders += [make_contender(one, policies, scenario.rules) for one in names]
    if args.cp_sat is not None:
        with user_input("--cp-sat"):
            contenders.append(make_contender(f"cp-sat@{args.cp_sat:g}"))
    unique: dict[str, Contender] = {}
    for one in contenders:
        if unique.setdefault(one.name, one).kind != one.kind:
            raise UserError(f"two contenders are called {one.name!r}; rename the checkpoint")
        if isinstance(one, Beam) and scenario.deciding != "plan":
            plain = f"{one.policy.name}@{one.width}"
            raise UserError(f"{one.name!r} can only plan; in {scenario.name} ask for {plain!r}")
    if not unique:
        raise UserError("there is nothing to measure; give --policy, --against or --cp-sat")
    return list(unique.values())


def load_policies(args: argparse.Namespace, objective: Objective) -> dict[str, Policy]:
    """Learned policies by the names that the table gives them.

    Raises:
        CheckpointError: a checkpoint that is not there or cannot be used.
    """
    from hetsched.agents.checkpoint import load_checkpoint, resolve_policy
    from hetsched.agents.contenders import is_taken, policy_names

    policies: dict[str, Policy] = {}
    paths = [resolve_policy(given) for given in args.policy]
    for name, path in zip(policy_names(paths), paths, strict=True):
        if is_taken(name):
            raise UserError(f"--policy: {name!r} is the name of another contender; rename {path}")
        checkpoint = load_checkpoint(path)
        checkpoint.network.to(_device(args.device))
        policies[name] = checkpoint.policy(name)
        trained = checkpoint.metadata.get("objective", str(objective))
        if trained != str(objective):
            print(f"note: {name} was trained for {trained}.", file=sys.stderr)
    return policies


def _device(name: str) -> str:
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    check_device(name)
    return name


def _progress(name: str, total: int) -> Callable[[int], None] | None:
    """A line on the terminal that says what is being measured; nothing in a file or a pipe."""
    if not sys.stderr.isatty():
        return None

    def tell(done: int) -> None:
        end = "\r" if done < total else "\r\033[K"  # erase the line when done
        print(f"\r{name}: {done}/{total}", end=end, file=sys.stderr, flush=True)

    return tell


def main(argv: Sequence[str] | None = None) -> None:
    """The command; exit status 2 after a mistake of the user."""
    args = build_parser().parse_args(argv)
    run(lambda: evaluate(args))


if __name__ == "__main__":
    main()
