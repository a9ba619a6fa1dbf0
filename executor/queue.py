"""A queue of real jobs: what to run, where it can run, and how long that should take.

Names, not indices, tie everything together: the set of jobs changes while a queue runs.
`hetsched.executor.queue_file` reads one from YAML.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from hetsched.executor.protocol import Attempt, Machine

if TYPE_CHECKING:
    from hetsched.envs.instance import Instance

MACHINE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
DEFAULT_OBJECTIVE = "mean(flow_time)"
# Beyond these, sums over a queue overflow: thirty thousand years, and any rank there is use for.
MOST_SECONDS = MOST_WEIGHT = 1e12
MOST_PRIORITY = 10**9


class QueueError(ValueError):
    """A queue that cannot be run, in one sentence that names the job and the key."""


@dataclass(frozen=True)
class Mode:
    """One way to run a job: on a machine (by name), for so many seconds, on so many units."""

    machine: str
    seconds: float
    demand: int = 1


@dataclass(frozen=True)
class Job:
    """One job of a queue.

    Args:
        name: unique in the queue.
        modes: where it can run; at least one.
        command: an argument list, or a string for the shell.
        weight: its importance (>= 0).
        due: seconds from the start of the queue by which it should be done.
        release: seconds from the start of the queue before which it may not start (>= 0).
        timeout: seconds that one attempt may take (> 0).
        after: names of the jobs that must be done first.
        retries: how often it is run again after a failure of its own (>= 0).
        moves: how often it is run again after a failure of its machine (>= 0).
        priority: a job waits for those of higher priority wherever these can run.
        memory: bytes of the computer's memory that it may hold (> 0).
        gpu_memory: bytes that each of its GPUs must have.
        env: variables for its processes.
        workdir: directory to run in.
        model: what jobs that are equally fast everywhere share; empty: the job is one of a kind.
        steps: all of its work, in the steps of which it reports its progress; 0: not known.

    Raises:
        QueueError: naming the job and the key.
    """

    name: str
    modes: tuple[Mode, ...]
    command: tuple[str, ...] | str = ()
    weight: float = 1.0
    due: float = math.inf
    release: float = 0.0
    timeout: float = math.inf
    after: tuple[str, ...] = ()
    retries: int = 0
    moves: int = 2
    priority: int = 0
    memory: float = math.inf
    gpu_memory: float = 0.0
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    model: str = ""
    steps: float = 0.0

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable() or len(self.name) > 80:
            raise QueueError(
                f"job {self.name!r}: name must be 1 to 80 printable characters; rename it."
            )
        if not self.modes:
            self._refuse("durations", "are missing; give at least one machine's seconds")
        for mode in self.modes:
            if not 0 < mode.seconds <= MOST_SECONDS:
                self._refuse(
                    "durations",
                    f"on {mode.machine!r} is {mode.seconds}; give seconds above 0, at most 1e12",
                )
            if mode.demand < 1:
                self._refuse("demand", f"is {mode.demand}; it must be at least 1")
        if not 0 <= self.weight <= MOST_WEIGHT:
            self._refuse("weight", f"is {self.weight}; it must be a number from 0 to 1e12")
        if not -MOST_SECONDS <= self.due <= math.inf:
            self._refuse(
                "due", f"is {self.due}; give seconds from the start of the queue, or leave it out"
            )
        if not 0 <= self.release <= MOST_SECONDS:
            self._refuse(
                "release", f"is {self.release}; it must be a number of seconds from 0 to 1e12"
            )
        if abs(self.priority) > MOST_PRIORITY:
            self._refuse("priority", f"is {self.priority}; it must be within a thousand million")
        if not self.timeout > 0:
            self._refuse("timeout", f"is {self.timeout}; it must be above 0 seconds")
        for key, times in (("retries", self.retries), ("moves", self.moves)):
            if times < 0:
                self._refuse(key, f"is {times}; it must be 0 or more")
        if not self.memory > 0:
            self._refuse("memory", f"is {self.memory:g}; it must be above 0 bytes")
        if not (self.gpu_memory >= 0 and math.isfinite(self.gpu_memory)):
            self._refuse("gpu_memory", f"is {self.gpu_memory:g}; it must be a number of bytes")
        if not (self.steps >= 0 and math.isfinite(self.steps)):
            self._refuse("steps", f"is {self.steps:g}; it must be a number from 0")
        for variable in MACHINE_VARIABLES:
            if variable in self.env:
                self._refuse("env", f"sets {variable}, which belongs to the machine; remove it")
        object.__setattr__(self, "env", MappingProxyType(dict(self.env)))

    def _refuse(self, key: str, what: str) -> None:
        raise QueueError(f"job {self.name!r}: {key} {what}.")

    def attempt(self, mode: int, number: int) -> Attempt:
        """The attempt that runs this job in one of its modes."""
        chosen = self.modes[mode]
        return Attempt(
            job=self.name,
            machine=chosen.machine,
            number=number,
            mode=mode,
            demand=chosen.demand,
            command=self.command,
            env=self.env,
            workdir=self.workdir,
            timeout=self.timeout,
            memory=self.memory,
            expected=chosen.seconds,
        )


@dataclass(frozen=True)
class Queue:
    """Jobs, the machines to run them on, and what is to be minimised.

    Args:
        jobs, machines: each with unique names; at least one of both.
        objective: as `Objective.parse` reads it.
        grace: seconds between SIGTERM and SIGKILL when a job is stopped.

    Raises:
        QueueError: naming the job or machine and the key.
    """

    jobs: tuple[Job, ...]
    machines: tuple[Machine, ...]
    objective: str = DEFAULT_OBJECTIVE
    grace: float = 10.0

    def __post_init__(self) -> None:
        if not self.jobs:
            raise QueueError("queue: jobs is empty; list at least one job.")
        if not self.machines:
            raise QueueError("queue: machines is empty; list at least one machine.")
        if not (self.grace >= 0 and math.isfinite(self.grace)):
            raise QueueError(
                f"queue: grace is {self.grace}; it must be a number of seconds from 0."
            )
        check_names("job", (job.name for job in self.jobs))
        check_names("machine", (machine.name for machine in self.machines))
        check_jobs(self.jobs, self.machines)

    @classmethod
    def from_instance(cls, instance: Instance, objective: str = DEFAULT_OBJECTIVE) -> Queue:
        """The queue whose estimates are an instance's (commands are empty: simulated only).

        Raises:
            QueueError: the instance has set-ups, lags, machine due times or machines that are
                busy at first, which a queue cannot say.
        """
        for key, present in (
            ("setup_times", instance.setup_times is not None),
            ("precedence_lags", bool((instance.precedence_lags != 0).any())),
            ("machine_available", bool((instance.machine_available != 0).any())),
            ("machine_due_times", bool((instance.machine_due_times < math.inf).any())),
        ):
            if present:
                raise QueueError(f"instance: {key} cannot be expressed in a queue; remove it.")
        machines = tuple(
            Machine(name, type=name, capacity=int(capacity))
            for name, capacity in zip(instance.machine_names, instance.capacity, strict=True)
        )
        modes: list[list[Mode]] = [[] for _ in range(instance.num_jobs)]
        for job, machine, seconds, demand in zip(
            instance.mode_jobs,
            instance.mode_machines,
            instance.processing_times,
            instance.demand,
            strict=True,
        ):
            modes[job].append(Mode(machines[machine].name, float(seconds), int(demand)))
        after: list[list[str]] = [[] for _ in range(instance.num_jobs)]
        for before, job in instance.precedence.T:
            after[job].append(instance.job_names[before])
        jobs = tuple(
            Job(
                name=instance.job_names[job],
                modes=tuple(modes[job]),
                weight=float(instance.weights[job]),
                due=float(instance.due_times[job]),
                release=float(instance.release_times[job]),
                after=tuple(after[job]),
            )
            for job in range(instance.num_jobs)
        )
        return cls(jobs, machines, objective)


def check_jobs(
    jobs: Sequence[Job], machines: Sequence[Machine], known: Collection[str] = ()
) -> None:
    """Refuse jobs that can never run on these machines, together with jobs already `known`.

    Raises:
        QueueError: naming the job and the key.
    """
    capacity = {machine.name: machine.capacity for machine in machines}
    names = {job.name for job in jobs}
    for job in jobs:
        for mode in job.modes:
            if mode.machine not in capacity:
                raise QueueError(
                    f"job {job.name!r}: durations names {mode.machine!r}, which is no machine "
                    f"or machine type here; use one of {', '.join(sorted(capacity))}."
                )
            if mode.demand > capacity[mode.machine]:
                raise QueueError(
                    f"job {job.name!r}: demand {mode.demand} is above the "
                    f"{capacity[mode.machine]} slots of {mode.machine!r}; lower it or drop "
                    "that machine from its durations."
                )
        for name in job.after:
            if name not in names and name not in known:
                raise QueueError(
                    f"job {job.name!r}: after names {name!r}, which is no job of this queue; "
                    "correct the name."
                )
    cycle = find_cycle({job.name: job.after for job in jobs})
    if cycle:
        raise QueueError(
            f"job {cycle[0]!r}: after makes a circle ({' after '.join(cycle)}); "
            "remove one of these."
        )


def check_names(who: str, names: Iterable[str]) -> None:
    """Refuse a name that is given twice.

    Raises:
        QueueError: naming it, behind what it is the name of.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise QueueError(f"{who} {name!r}: name is used twice; give each its own.")
        seen.add(name)


def find_cycle(after: Mapping[str, Sequence[str]]) -> list[str]:
    """One circle of "after" relations as names, first and last the same; empty if there is none."""
    state: dict[str, int] = {}  # 1: on the path, 2: free of circles
    for root in after:
        if root in state:
            continue
        path = [root]
        state[root] = 1
        branches = [iter(after[root])]
        while path:
            following = next(branches[-1], None)
            if following is None:
                state[path.pop()] = 2
                branches.pop()
            elif state.get(following) == 1:
                return [*path[path.index(following) :], following]
            elif following not in state:
                state[following] = 1
                path.append(following)
                branches.append(iter(after.get(following, ())))
    return []
