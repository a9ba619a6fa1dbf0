"""Instance: jobs, machines, the modes that connect them, and precedence between jobs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.envs import checks
from hetsched.envs.validation import validated

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hetsched.envs.checks import BoolArray, FloatArray, IntArray

# Fields left out are filled in by __post_init__; their annotations say what they hold afterwards.
DEFAULT: Any = None

# Fields that are measured in time.
TIMES = (
    "processing_times",
    "release_times",
    "due_times",
    "machine_available",
    "machine_due_times",
    "setup_times",
    "precedence_lags",
    "actual_times",
)


@dataclass(frozen=True, eq=False, repr=False)
class Instance:
    """One scheduling problem on unrelated machines.

    A *mode* is one way to run a job: a machine, a duration there and the units of the machine it
    occupies.  Every job runs once, in one of its modes, without interruption.  Any array-like is
    accepted; the instance keeps read-only copies.  Modes are kept sorted by job (stable), so the
    indices that a `Schedule` holds are positions after sorting.  Time has no fixed unit; all
    times share one.

    Attributes:
        num_jobs: number of jobs, at least 1.
        num_machines: number of machines, at least 1.
        mode_jobs: (modes,) int64, job of a mode.
        mode_machines: (modes,) int64, machine of a mode.
        processing_times: (modes,) float64, time, positive and finite: expected duration of a mode.
        release_times: (jobs,) float64, time: the job is unavailable before.  Default 0.
        due_times: (jobs,) float64, time: completion after it is tardy.  Default infinity, none.
        weights: (jobs,) float64, cost per time: importance of a job.  Default 1.
        machine_available: (machines,) float64, time: the machine is occupied until then.
            Default 0.
        machine_due_times: (machines,) float64, time: a machine that finishes after it is tardy.
            Default infinity, none.
        machine_weights: (machines,) float64, cost per time: importance of a machine.  Default 1.
        capacity: (machines,) int64, units a machine has.  Default 1.
        demand: (modes,) int64, units a mode occupies while it runs.  Default 1.
        setup_times: (jobs + 1, jobs, machines) float64, time: ``[i, j, k]`` is spent on machine k
            between job i and job j that follows it, ``[jobs, j, k]`` before the machine's first
            job.  Only on machines of capacity 1.  Default None, no set-ups.
        precedence: (2, arcs) int64: job ``[0, a]`` completes before job ``[1, a]`` starts.
            Default none.
        precedence_lags: (arcs,) float64, time that must pass in addition when the two jobs run on
            different machines.  Default 0.
        actual_times: (modes,) float64, time, positive and finite: true durations, which a policy
            that dispatches learns only on completion.  Default None, as expected.
        job_names: one string per job.  Default ``"job 0"``, ``"job 1"``...
        machine_names: one string per machine.  Default ``"machine 0"``...

    Raises:
        ValueError: an array of another shape; an index out of range; a negative, NaN or
            (where it makes no sense) infinite number; a job without a mode; a demand above the
            machine's capacity; set-ups on a machine of capacity above 1; an arc that is repeated;
            a precedence cycle.  The message is one sentence that says which entry, and the mend.
    """

    num_jobs: int
    num_machines: int
    mode_jobs: IntArray
    mode_machines: IntArray
    processing_times: FloatArray
    release_times: FloatArray = DEFAULT
    due_times: FloatArray = DEFAULT
    weights: FloatArray = DEFAULT
    machine_available: FloatArray = DEFAULT
    machine_due_times: FloatArray = DEFAULT
    machine_weights: FloatArray = DEFAULT
    capacity: IntArray = DEFAULT
    demand: IntArray = DEFAULT
    setup_times: FloatArray | None = None
    precedence: IntArray = DEFAULT
    precedence_lags: FloatArray = DEFAULT
    actual_times: FloatArray | None = None
    job_names: tuple[str, ...] = DEFAULT
    machine_names: tuple[str, ...] = DEFAULT

    def __post_init__(self) -> None:
        for name, value in validated(self).items():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            object.__setattr__(self, name, value)  # the dataclass is frozen

    def __repr__(self) -> str:
        sizes = f"{self.num_jobs} jobs, {self.num_machines} machines, {self.num_modes} modes"
        return f"Instance({sizes})"

    @classmethod
    def from_matrix(
        cls, processing_times: ArrayLike, eligible: ArrayLike | None = None, **others: Any
    ) -> Instance:
        """An instance with at most one mode per job and machine.

        Args:
            processing_times: (jobs, machines), time; infinity or NaN where a job cannot run.
            eligible: (jobs, machines) bool; false where a job cannot run, whatever its duration.
            others: further fields of `Instance`; ``demand`` and ``actual_times`` may be given as
                (jobs, machines).

        Raises:
            ValueError: as `Instance`; `eligible` of another shape or not boolean.
        """
        matrix = checks.numbers("processing_times", processing_times).astype(np.float64)
        if matrix.ndim != 2:
            raise ValueError(
                f"processing_times has shape {matrix.shape}; give a matrix of jobs by machines"
            )
        edges: BoolArray = np.isfinite(matrix) | (matrix < 0)  # minus infinity is a mistake
        if eligible is not None:
            allowed = np.asarray(eligible)
            if allowed.dtype != np.bool_ or allowed.shape != matrix.shape:
                raise ValueError(
                    f"eligible has shape {allowed.shape} and type {allowed.dtype}; "
                    f"give booleans of shape {matrix.shape}, as processing_times has"
                )
            edges = edges & allowed
        checks.refuse("processing_times", matrix, edges & (matrix <= 0), "give a positive duration")
        jobs, machines = np.nonzero(edges)  # row by row: sorted by job
        for name in ("demand", "actual_times"):
            if others.get(name) is None:
                continue
            values = checks.numbers(name, others[name])
            if values.ndim == 2:
                axes = "as processing_times has"
                others[name] = checks.floats(name, values, matrix.shape, axes)[edges]
        return cls(
            num_jobs=matrix.shape[0],
            num_machines=matrix.shape[1],
            mode_jobs=jobs,
            mode_machines=machines,
            processing_times=matrix[edges],
            **others,
        )

    @property
    def num_modes(self) -> int:
        """Number of modes of all jobs together."""
        return len(self.mode_jobs)

    @property
    def durations(self) -> FloatArray:
        """(modes,) float64: true durations, the expected ones unless ``actual_times`` is given."""
        return self.processing_times if self.actual_times is None else self.actual_times

    def matrix(self) -> FloatArray:
        """(jobs, machines) float64: expected duration of the fastest mode, infinity without one."""
        matrix = np.full((self.num_jobs, self.num_machines), np.inf)
        np.minimum.at(matrix, (self.mode_jobs, self.mode_machines), self.processing_times)
        return matrix

    def permuted(
        self, jobs: ArrayLike | None = None, machines: ArrayLike | None = None
    ) -> Instance:
        """The same problem with jobs and machines in another order; names move along.

        Args:
            jobs: (jobs,) permutation: new job i is old job ``jobs[i]``.  Default as they are.
            machines: (machines,) permutation, likewise.

        Raises:
            ValueError: not a permutation.
        """
        job = checks.permutation("jobs", jobs, self.num_jobs)
        machine = checks.permutation("machines", machines, self.num_machines)
        new_job, new_machine = np.argsort(job), np.argsort(machine)
        setups = self.setup_times
        if setups is not None:
            setups = setups[np.append(job, self.num_jobs)][:, job][:, :, machine]
        return Instance(
            num_jobs=self.num_jobs,
            num_machines=self.num_machines,
            mode_jobs=new_job[self.mode_jobs],
            mode_machines=new_machine[self.mode_machines],
            processing_times=self.processing_times,
            release_times=self.release_times[job],
            due_times=self.due_times[job],
            weights=self.weights[job],
            machine_available=self.machine_available[machine],
            machine_due_times=self.machine_due_times[machine],
            machine_weights=self.machine_weights[machine],
            capacity=self.capacity[machine],
            demand=self.demand,
            setup_times=setups,
            precedence=new_job[self.precedence],
            precedence_lags=self.precedence_lags,
            actual_times=self.actual_times,
            job_names=tuple(self.job_names[index] for index in job),
            machine_names=tuple(self.machine_names[index] for index in machine),
        )

    def scaled(self, factor: float) -> Instance:
        """The same problem in another unit of time: all times multiplied by ``factor``.

        Raises:
            ValueError: the factor is not positive and finite.
        """
        if not (np.isfinite(factor) and factor > 0):
            raise ValueError(f"factor is {factor}; give a positive finite number")
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in TIMES:
            if values[name] is not None:
                values[name] = values[name] * factor
        return Instance(**values)

    def same_as(self, other: object) -> bool:
        """Whether every field of the other instance is equal."""
        if not isinstance(other, Instance):
            return False
        return all(
            np.array_equal(getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)
        )
