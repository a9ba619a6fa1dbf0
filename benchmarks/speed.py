"""How fast deciding is: the environment alone, with the network, and single decisions.

    python benchmarks/speed.py             # the table; figures go to benchmarks/results/speed.json
    python benchmarks/speed.py --profile   # and where the time of a single decision goes
    python benchmarks/speed.py --quick     # a few seconds, for a look; nothing is written

The network is that of the `hitzges` policy that ships.  One thread.  Every figure is the median of
several repeats after a warm-up, with the least and the largest; CPU time is given beside wall time,
because other work on the machine inflates the latter.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hetsched.cli import prepare_process

RESULT = Path(__file__).resolve().parent / "results" / "speed.json"
Figure = dict[str, Any]


def timed(action: Callable[[], int], repeats: int) -> list[tuple[float, float]]:
    """(wall, CPU) seconds per unit of work; ``action`` says how many units it did."""
    action()
    found = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        units = action()
        found.append(((time.perf_counter() - wall) / units, (time.process_time() - cpu) / units))
    return found


def rate(name: str, target: float, action: Callable[[], int], repeats: int) -> Figure:
    """Units per second, to be at least the target."""
    pairs = timed(action, repeats)
    walls, cpus = ([1 / pair[i] for pair in pairs] for i in (0, 1))
    return _figure(name, "1/s", walls, cpus, target, statistics.median(walls) >= target)


def latency(name: str, target: float, action: Callable[[], int], repeats: int) -> Figure:
    """Milliseconds per unit, to be at most the target."""
    pairs = timed(action, repeats)
    walls, cpus = ([1e3 * pair[i] for pair in pairs] for i in (0, 1))
    return _figure(name, "ms", walls, cpus, target, statistics.median(walls) <= target)


def _figure(
    name: str, unit: str, walls: list[float], cpus: list[float], target: float, met: bool
) -> Figure:
    return {
        "name": name,
        "unit": unit,
        "median": statistics.median(walls),
        "least": min(walls),
        "largest": max(walls),
        "cpu_median": statistics.median(cpus),
        "target": target,
        "met": met,
    }


def measure(quick: bool) -> list[Figure]:
    """All figures."""
    import numpy as np
    import torch

    from hetsched.agents.checkpoint import load_policy
    from hetsched.agents.policy import act, rollout
    from hetsched.agents.rules import make_rule
    from hetsched.envs.problem import Problem
    from hetsched.envs.scenarios import get_scenario, sample_instances
    from hetsched.envs.simulator import State
    from hetsched.envs.timing import Timing

    scenario = get_scenario("hitzges")
    batch, repeats = (64, 2) if quick else (512, 7)
    policy = load_policy("hitzges")
    problem = Problem.from_instances(sample_instances(scenario, batch, 0, 20, 5))

    def random_steps(deciding: Any) -> Callable[[], int]:
        def play() -> int:
            state = State.initial(problem, scenario.objective, deciding)
            while not bool(state.done.all()):
                mask = state.mask()
                state.step(torch.rand(mask.shape).masked_fill_(~mask, -1.0).argmax(1))
            return int(state.steps.sum())

        return play

    def learned_steps() -> int:
        state = rollout(policy, State.initial(problem, scenario.objective, "plan"))
        return int(state.steps.sum())

    def single(jobs: int, machines: int, keep: int | None, who: Any) -> Callable[[], int]:
        one = Problem.from_instances(
            sample_instances(scenario, 1, 0, jobs, machines), keep_fastest=keep
        )
        state = State.initial(one, scenario.objective, "plan")

        def decide() -> int:
            for _ in range(20):
                state.timing = Timing(state)  # nothing known beforehand
                act(who, state)
            return 20

        return decide

    rng = np.random.default_rng(0)

    def generate() -> int:
        for _ in range(200):
            scenario.generate(rng, 20, 5)
        return 200

    many = "20 jobs x 5 machines, batch"
    return [
        rate(f"environment, plan, {many}", 50_000, random_steps("plan"), repeats),
        rate(f"environment, dispatch, {many}", 50_000, random_steps("dispatch"), repeats),
        rate(f"with the network, {many}", 2_000, learned_steps, repeats),
        latency("one decision, 20 x 5", 2.0, single(20, 5, None, policy), repeats),
        *(
            latency(
                f"one decision, 1000 x 100, {keep} fastest machines",
                15.0,
                single(1000, 100, keep, policy),
                repeats,
            )
            for keep in (4, 6, 8)
        ),
        latency("one decision of atc, 20 x 5", 2.0, single(20, 5, None, make_rule("atc")), repeats),
        rate("drawing instances, 20 x 5", 1_000, generate, repeats),
    ]


def profile() -> None:
    """Print where a single decision at 20 x 5 spends its time."""
    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    from hetsched.agents.checkpoint import load_policy
    from hetsched.envs.features import observe
    from hetsched.envs.problem import Problem
    from hetsched.envs.scenarios import get_scenario, sample_instances
    from hetsched.envs.simulator import State

    scenario, network = get_scenario("hitzges"), load_policy("hitzges").network
    problem = Problem.from_instances(sample_instances(scenario, 1, 0, 20, 5))
    state = State.initial(problem, scenario.objective, "plan")
    parts: dict[str, list[float]] = {"features": [], "network": [], "selection": [], "step": []}
    with torch.inference_mode():
        for _ in range(50):
            fresh = state.clone()
            clock = [time.perf_counter()]
            graph = observe(fresh)
            clock.append(time.perf_counter())
            scores, _ = network(graph)
            clock.append(time.perf_counter())
            action = scores.argmax(1)
            clock.append(time.perf_counter())
            fresh.step(action)
            clock.append(time.perf_counter())
            for index, name in enumerate(parts):
                parts[name].append(1e3 * (clock[index + 1] - clock[index]))
        print("\na single decision at 20 x 5, ms (median of 50):")
        for name, values in parts.items():
            print(f"  {name:<10} {statistics.median(values):.3f}")
        with torch_profile(activities=[ProfilerActivity.CPU]) as seen:
            network(observe(state.clone()))
    print(seen.key_averages().table(sort_by="self_cpu_time_total", row_limit=12))


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small and unkept")
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    parser.add_argument("--json", type=Path, default=RESULT, help="default %(default)s")
    options = parser.parse_args()
    prepare_process(1)
    figures = measure(options.quick)
    print(
        f"{'figure':<52} {'median':>10} {'least':>10} {'largest':>10} {'by CPU':>10} {'target':>9}"
    )
    for one in figures:
        digits = 0 if one["unit"] == "1/s" else 2
        cells = (one[key] for key in ("median", "least", "largest", "cpu_median", "target"))
        numbers = " ".join(f"{cell:>10,.{digits}f}" for cell in cells)
        print(f"{one['name']:<48} {one['unit']:>3} {numbers} {'' if one['met'] else 'missed'}")
    if options.profile:
        profile()
    if not options.quick:
        about = {"python": platform.python_version(), "machine": platform.machine(), "threads": 1}
        options.json.parent.mkdir(exist_ok=True)
        options.json.write_text(json.dumps({**about, "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
