"""Ways of computing a decision: float32, bfloat16, ``torch.compile``; time and change of cost."""

from __future__ import annotations

import contextlib
import json
import platform
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hetsched.envs.instance import Instance
    from hetsched.envs.scenarios import Scenario
    from hetsched.envs.simulator import State
    from hetsched.gnn.network import SchedulingNetwork

SEED = 6_000_011
SIZES = ((20, 4, 1), (20, 4, 32), (100, 10, 1))  # jobs, machines, instances at once


@dataclass(frozen=True)
class Way:
    """What was measured of a way of computing at one size.

    Attributes:
        way, size, batch: what.
        ms: CPU milliseconds of a decision step of the whole batch, the network alone.
        cost: mean over the instances; over_float32: over that of float32.
        first_seconds: of CPU that the first schedule took, compilation included.
        error: why there is nothing to measure, else empty.
    """

    way: str
    size: str
    batch: int
    ms: float | None = None
    cost: float | None = None
    over_float32: float | None = None
    first_seconds: float | None = None
    error: str = ""


@dataclass
class TimedPolicy:
    """Scores by one way of computing; adds up the CPU time of the network."""

    call: Callable[..., Tensor]
    context: Callable[[], AbstractContextManager[object]]
    name: str = "learned"
    seconds: float = 0.0
    calls: int = 0

    def scores(self, state: State) -> Tensor:
        from hetsched.envs.features import observe

        graph = observe(state)
        began = time.process_time()
        with torch.inference_mode(), self.context():
            found = self.call(graph).float()
        self.seconds += time.process_time() - began
        self.calls += 1
        return found


def ways(network: SchedulingNetwork) -> dict[str, TimedPolicy]:
    """What is compared; the first is the reference."""

    def half() -> AbstractContextManager[object]:
        return torch.autocast("cpu", dtype=torch.bfloat16)

    compiled = torch.compile(network.scores, dynamic=True)
    return {
        "float32": TimedPolicy(network.scores, contextlib.nullcontext),
        "bfloat16": TimedPolicy(network.scores, half),
        "compiled": TimedPolicy(compiled, contextlib.nullcontext),
    }


def measure_inference(root: Path, results: Path, scenario_name: str = "hitzges") -> list[Way]:
    """Measure, keep and print."""
    from hetsched.agents.checkpoint import load_checkpoint
    from hetsched.cli import prepare_process
    from hetsched.envs.scenarios import get_scenario, sample_instances

    prepare_process(1)
    scenario = get_scenario(scenario_name)
    network = load_checkpoint(root / "checkpoints" / f"{scenario_name}.safetensors").network
    found: list[Way] = []
    for jobs, machines, batch in SIZES:
        instances = sample_instances(scenario, max(batch, 4), SEED, jobs, machines)
        base: float | None = None
        for name, policy in ways(network).items():
            one = _measure(name, policy, scenario, instances, f"{jobs}x{machines}", batch)
            if one.cost is not None:
                base = base or one.cost
                one = replace(one, over_float32=float(f"{one.cost / base:.6g}"))
            shown = one.error or (
                f"{one.ms} CPU ms, cost {one.over_float32} of float32's, first schedule after "
                f"{one.first_seconds} CPU s"
            )
            print(f"{one.size}, {batch} at once, {name}: {shown}", flush=True)
            found.append(one)
    rows = ",\n".join(json.dumps(asdict(one)) for one in found)
    head = json.dumps({"torch": torch.__version__, "bfloat16": _instructions()})[:-1]
    machine = platform.processor() or platform.machine()
    results.write_text(f'{head}, "machine": "{machine}",\n"ways": [\n{rows}\n]}}\n')
    return found


def _measure(
    name: str,
    policy: TimedPolicy,
    scenario: Scenario,
    instances: list[Instance],
    size: str,
    batch: int,
) -> Way:
    began = time.process_time()
    try:
        _costs(policy, scenario, instances[:batch])
    except Exception as error:  # whatever a compiler may raise is the answer here
        reason = str(error).strip().splitlines() or [type(error).__name__]
        return Way(name, size, batch, error=f"{type(error).__name__}: {reason[0]}"[:200])
    first = time.process_time() - began
    policy.seconds, policy.calls, costs = 0.0, 0, 0.0
    for start in range(0, len(instances), batch):
        costs += _costs(policy, scenario, instances[start : start + batch])
    mean = costs / len(instances)
    ms = 1e3 * policy.seconds / policy.calls
    return Way(name, size, batch, float(f"{ms:.4g}"), mean, None, round(first, 2))


def _costs(policy: TimedPolicy, scenario: Scenario, instances: list[Instance]) -> float:
    from hetsched.agents.policy import rollout
    from hetsched.envs.problem import Problem
    from hetsched.envs.simulator import State

    problem = Problem.from_instances(instances)
    state = State.initial(problem, scenario.objective, scenario.deciding)
    return float(rollout(policy, state).cost().sum())


def _instructions() -> str:
    """Which instructions for bfloat16 this CPU has."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return "unknown"
    return ", ".join(one for one in ("avx512_bf16", "amx_bf16") if one in flags) or "none"
