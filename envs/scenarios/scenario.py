"""Scenario: a named family of random instances, its objective and its way of deciding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from hetsched.envs.instance import Instance

if TYPE_CHECKING:
    from hetsched.envs.objective import Objective

Sampler = Callable[[np.random.Generator, int, int], Instance]


@dataclass(frozen=True)
class Scenario:
    """A family of instances drawn at random.

    Attributes:
        name: what ``get_scenario`` knows it by, options included.
        description: one line for listings.
        objective: what a schedule costs.
        deciding: ``"plan"`` (all is known) or ``"dispatch"`` (a clock runs).
        sampler: (generator, number of jobs, number of machines) -> Instance.
        default_jobs, default_machines: the size where none is asked for.
        rules: the dispatching rules worth comparing with here, strongest kinds first.
        sizes: (jobs, machines) pairs for training on mixed sizes.
    """

    name: str
    description: str
    objective: Objective
    deciding: Literal["plan", "dispatch"]
    sampler: Sampler = field(repr=False)
    default_jobs: int
    default_machines: int
    rules: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if self.deciding not in ("plan", "dispatch"):
            raise ValueError(f"deciding must be 'plan' or 'dispatch', got {self.deciding!r}")
        sizes = ((self.default_jobs, self.default_machines), *self.sizes)
        for index, (jobs, machines) in enumerate(sizes):
            if jobs < 1 or machines < 1:
                which = f"sizes[{index - 1}]" if index else "the default size"
                raise ValueError(f"{which} is {jobs} jobs x {machines} machines, want at least 1")

    def generate(
        self,
        rng: np.random.Generator,
        num_jobs: int | None = None,
        num_machines: int | None = None,
    ) -> Instance:
        """Draw one instance; ``None`` stands for the scenario's default size.

        Raises:
            ValueError: a size below one.
        """
        jobs = self.default_jobs if num_jobs is None else int(num_jobs)
        machines = self.default_machines if num_machines is None else int(num_machines)
        for name, size in (("num_jobs", jobs), ("num_machines", machines)):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        return self.sampler(rng, jobs, machines)


def sample_instances(
    scenario: Scenario,
    count: int,
    seed: int,
    num_jobs: int | None = None,
    num_machines: int | None = None,
) -> list[Instance]:
    """``count`` instances; instance i depends on the seed and i only, not on ``count``.

    Raises:
        ValueError: a negative count or seed, or a size below one.
    """
    for name, value in (("count", count), ("seed", seed)):
        if value < 0:
            raise ValueError(f"{name} must not be negative, got {value}")
    return [
        scenario.generate(np.random.default_rng((seed, index)), num_jobs, num_machines)
        for index in range(count)
    ]
