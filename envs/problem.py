"""Problem: a padded batch of instances as tensors, the static half of the simulator's state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hetsched.envs.statics import Statics

if TYPE_CHECKING:
    from hetsched.envs.instance import Instance


@dataclass(frozen=True, eq=False)
class Problem:
    """B instances padded to common sizes, every job with up to K mode slots.

    Where no instance has two modes of one job on one machine, slot k *is* machine k
    (``dense`` is true) and gathers over machines become broadcasts.  Otherwise, or after pruning,
    the slots of a job list its modes and ``mode_machines`` says where each one runs.

    Attributes:
        instances: the instances, in batch order; schedules refer to their modes.
        processing_times: (B, J, K) float64, expected durations; infinity where a slot is empty.
        actual_times: (B, J, K) float64, true durations, equal to the expected ones unless an
            instance says otherwise.
        mode_machines: (B, J, K) int64, machine of a slot.
        mode_index: (B, J, K) int64, index of the slot's mode in its instance, -1 where empty.
        mode_mask: (B, J, K) bool, slot holds a mode.
        demand: (B, J, K) int64, units of the machine a mode occupies.
        release_times, due_times, weights: (B, J) float64.
        job_mask: (B, J) bool, job exists.
        machine_available, machine_due_times, machine_weights: (B, M) float64.
        capacity: (B, M) int64; machine_mask: (B, M) bool.
        setup_times: (B, J + 1, J, M) float64 or None; row J is the idle start.
        arcs: (B, A, 2) int64, job before job; arc_lags: (B, A) float64; arc_mask: (B, A) bool.
        heads: (B, J) float64, a lower bound of each job's start from releases and predecessors.
        tails: (B, J) float64, longest path of fastest durations after the job.
        time_scale: (B,) float64, mean over jobs of the fastest expected duration.
        dense: slot k is machine k.
        noisy: some instance has ``actual_times``, which its decisions must not see.
    """

    instances: tuple[Instance, ...]
    processing_times: Tensor
    actual_times: Tensor
    mode_machines: Tensor
    mode_index: Tensor
    mode_mask: Tensor
    demand: Tensor
    release_times: Tensor
    due_times: Tensor
    weights: Tensor
    job_mask: Tensor
    machine_available: Tensor
    machine_due_times: Tensor
    machine_weights: Tensor
    capacity: Tensor
    machine_mask: Tensor
    setup_times: Tensor | None
    arcs: Tensor
    arc_lags: Tensor
    arc_mask: Tensor
    heads: Tensor
    tails: Tensor
    time_scale: Tensor
    dense: bool
    noisy: bool

    @property
    def batch_size(self) -> int:
        return self.processing_times.shape[0]

    @property
    def num_jobs(self) -> int:
        return self.processing_times.shape[1]

    @property
    def num_modes(self) -> int:
        return self.processing_times.shape[2]

    @property
    def num_machines(self) -> int:
        return self.capacity.shape[1]

    @property
    def num_actions(self) -> int:
        """One per mode slot, and WAIT as the last."""
        return self.num_jobs * self.num_modes + 1

    @property
    def device(self) -> torch.device:
        return self.processing_times.device

    @cached_property
    def statics(self) -> Statics:
        """What features need of the problem alone, computed when first asked for."""
        with torch.inference_mode(False):  # it may serve training later
            return Statics.of(self)

    @staticmethod
    def from_instances(
        instances: Sequence[Instance],
        keep_fastest: int | None = None,
        device: str | torch.device = "cpu",
    ) -> Problem:
        """Pad instances to one batch.

        Args:
            instances: at least one; sizes may differ.
            keep_fastest: keep only each job's so many fastest modes (for many machines).
            device: where the tensors live.

        Raises:
            ValueError: no instance, or ``keep_fastest`` below 1.
        """
        if not instances:
            raise ValueError("a batch needs at least one instance; give a non-empty list")
        if keep_fastest is not None and keep_fastest < 1:
            raise ValueError(f"keep_fastest must be at least 1, got {keep_fastest}")
        values: dict[str, Any] = {
            name: torch.from_numpy(value).to(device) if isinstance(value, np.ndarray) else value
            for name, value in _pad(tuple(instances), keep_fastest).items()
        }
        return Problem(tuple(instances), **values)

    def repeat(self, times: int) -> Problem:
        """Each instance ``times`` times side by side: row ``i * times + r`` is instance i."""
        return self.select(torch.arange(self.batch_size).repeat_interleave(times))

    def select(self, rows: Tensor) -> Problem:
        """The given rows (n,) int64, in that order."""
        values: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            values[field.name] = value[rows] if isinstance(value, Tensor) else value
        values["instances"] = tuple(self.instances[row] for row in rows.tolist())
        return Problem(**values)


def _pad(instances: tuple[Instance, ...], keep_fastest: int | None) -> dict[str, Any]:
    """Arrays of a Problem, by field name."""
    batch = len(instances)
    jobs = max(one.num_jobs for one in instances)
    machines = max(one.num_machines for one in instances)
    kept = [_kept_modes(one, keep_fastest) for one in instances]
    dense = all(
        _one_mode_per_machine(one, modes) for one, modes in zip(instances, kept, strict=True)
    )
    pruned = keep_fastest is not None and keep_fastest < machines
    dense = dense and not pruned
    slots = machines
    if not dense:
        slots = max(
            int(np.bincount(one.mode_jobs[modes]).max())
            for one, modes in zip(instances, kept, strict=True)
        )
    arcs = max(one.precedence.shape[1] for one in instances)
    has_setups = any(one.setup_times is not None for one in instances)

    shape = (batch, jobs, slots)
    out: dict[str, np.ndarray] = {
        "processing_times": np.full(shape, np.inf),
        "actual_times": np.full(shape, np.inf),
        "mode_machines": np.zeros(shape, np.int64),
        "mode_index": np.full(shape, -1, np.int64),
        "demand": np.ones(shape, np.int64),
        "release_times": np.zeros((batch, jobs)),
        "due_times": np.full((batch, jobs), np.inf),
        "weights": np.zeros((batch, jobs)),
        "job_mask": np.zeros((batch, jobs), bool),
        "machine_available": np.zeros((batch, machines)),
        "machine_due_times": np.full((batch, machines), np.inf),
        "machine_weights": np.zeros((batch, machines)),
        "capacity": np.ones((batch, machines), np.int64),
        "machine_mask": np.zeros((batch, machines), bool),
        "arcs": np.zeros((batch, arcs, 2), np.int64),
        "arc_lags": np.zeros((batch, arcs)),
        "arc_mask": np.zeros((batch, arcs), bool),
        "heads": np.zeros((batch, jobs)),
        "tails": np.zeros((batch, jobs)),
    }
    setups = np.zeros((batch, jobs + 1, jobs, machines)) if has_setups else None
    if dense:
        out["mode_machines"][:] = np.arange(machines)
    noisy = False
    for b, (one, modes) in enumerate(zip(instances, kept, strict=True)):
        n, m = one.num_jobs, one.num_machines
        job, machine = one.mode_jobs[modes], one.mode_machines[modes]
        if dense:
            slot = machine
        else:  # position among the job's own modes; modes are sorted by job
            first = np.searchsorted(job, np.arange(n))
            slot = np.arange(len(modes)) - first[job]
        out["processing_times"][b, job, slot] = one.processing_times[modes]
        actual = one.processing_times if one.actual_times is None else one.actual_times
        noisy = noisy or actual is not one.processing_times
        out["actual_times"][b, job, slot] = actual[modes]
        out["mode_machines"][b, job, slot] = machine
        out["mode_index"][b, job, slot] = modes
        out["demand"][b, job, slot] = one.demand[modes]
        for name in ("release_times", "due_times", "weights"):
            out[name][b, :n] = getattr(one, name)
        out["job_mask"][b, :n] = True
        for name in (
            "machine_available",
            "machine_due_times",
            "machine_weights",
            "capacity",
        ):
            out[name][b, :m] = getattr(one, name)
        out["machine_mask"][b, :m] = True
        count = one.precedence.shape[1]
        if count:
            out["arcs"][b, :count] = one.precedence.T
            out["arc_lags"][b, :count] = one.precedence_lags
            out["arc_mask"][b, :count] = True
            heads, tails = _heads_and_tails(one)
            out["heads"][b, :n], out["tails"][b, :n] = heads, tails
        else:
            out["heads"][b, :n] = one.release_times
        if setups is not None and one.setup_times is not None:
            setups[b, :n, :n, :m] = one.setup_times[:n]
            setups[b, jobs, :n, :m] = one.setup_times[n]
    fastest = out["processing_times"].min(axis=2)  # (B, J)
    total = np.where(out["job_mask"], fastest, 0.0).sum(axis=1)
    return {
        **out,
        "setup_times": setups,
        "mode_mask": out["mode_index"] >= 0,
        "time_scale": total / out["job_mask"].sum(axis=1),
        "dense": dense,
        "noisy": noisy,
    }


def _kept_modes(instance: Instance, keep_fastest: int | None) -> np.ndarray:
    """Indices of the modes that stay after pruning, sorted by job."""
    modes = np.arange(len(instance.mode_jobs))
    if keep_fastest is None:
        return modes
    order = np.lexsort((instance.processing_times, instance.mode_jobs))
    jobs = instance.mode_jobs[order]
    rank = np.arange(len(order)) - np.searchsorted(jobs, jobs)
    return np.sort(order[rank < keep_fastest])


def _one_mode_per_machine(instance: Instance, modes: np.ndarray) -> bool:
    pair = instance.mode_jobs[modes] * instance.num_machines + instance.mode_machines[modes]
    return len(np.unique(pair)) == len(pair)


def _heads_and_tails(instance: Instance) -> tuple[np.ndarray, np.ndarray]:
    """Earliest start by releases and predecessors, and longest path to a sink after the job.

    Heads bound the true schedule, so they use true durations; tails describe what is expected.
    """
    n = instance.num_jobs
    actual = instance.processing_times if instance.actual_times is None else instance.actual_times
    true_fastest, fastest = np.full(n, np.inf), np.full(n, np.inf)
    np.minimum.at(true_fastest, instance.mode_jobs, actual)
    np.minimum.at(fastest, instance.mode_jobs, instance.processing_times)
    successors: list[list[int]] = [[] for _ in range(n)]
    pending = np.zeros(n, np.int64)
    for before, after in instance.precedence.T.tolist():
        successors[before].append(after)
        pending[after] += 1
    heads, tails = instance.release_times.copy(), np.zeros(n)
    order = [job for job in range(n) if pending[job] == 0]
    for job in order:  # grows while it is walked: a topological order
        for after in successors[job]:
            heads[after] = max(heads[after], heads[job] + true_fastest[job])
            pending[after] -= 1
            if pending[after] == 0:
                order.append(after)
    for job in reversed(order):
        for after in successors[job]:
            tails[job] = max(tails[job], fastest[after] + tails[after])
    return heads, tails
