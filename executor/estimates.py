"""Estimates of durations that improve as jobs finish.

A queue says how long a job should take; how long jobs did take says by what factor that is wrong.
On a logarithmic scale the factors form a tree of normal distributions:

    error of a run = error common to the queue + the model's + the model's on this machine + noise

so that a run teaches most about the same model on the same machine type, less about the model
elsewhere, and a little about everything. Means of such a tree given the runs (best linear unbiased
prediction: Robinson, "That BLUP is a good thing", Statistical Science 6, 1991) are exact in one
pass from the leaves to the root and back, without a matrix. Against single wild runs (a machine
that was busy otherwise, a job that gave up early) observations far from the median of their kind
count as if they were nearer (Huber, 1964).
"""

from __future__ import annotations

import csv
import io
import math
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched.executor.protocol import Machine, Outcome
    from hetsched.executor.queue import Job, Mode

KEEP = 50  # runs of a model on a machine type: older ones say little about today
CLIP = 2.5  # standard deviations from the median beyond which a run counts no further
NOISE_WEIGHT = 4.0  # the assumed noise counts like so many degrees of freedom


@dataclass(frozen=True)
class Beliefs:
    """How wrong estimates are expected to be: standard deviations of the logarithm.

    0.7 is about a factor of 2. Estimates that people give are often wrong by factors (Mu'alem and
    Feitelson, IEEE TPDS 12, 2001), so a single run outweighs them by default.

    Args:
        queue: of the error that all estimates of a queue share.
        model: of a model's own error, on all machines.
        machine: of what a model's error on one machine type adds.
        run: of runs of one model on one machine type around their centre.
    """

    queue: float = 0.5
    model: float = 0.8
    machine: float = 0.3
    run: float = 0.2

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"beliefs: {one.name} is {value}; give a number above 0.")


@dataclass(frozen=True)
class CompletedRun:
    """A run that was done: `seconds` where `expected` seconds had been said, both above 0.

    Args:
        model: what jobs of the same speed share, or the job's name.
        machine: machine type.
        gpus: units of the machine that it took.
    """

    model: str
    machine: str
    gpus: int
    expected: float
    seconds: float

    def __post_init__(self) -> None:
        for name in ("expected", "seconds"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"completed run of {self.model!r}: {name} is {value}; drop it.")


Place = tuple[str, int]  # machine type, units


@dataclass
class _Model:
    """The runs of a model, and what they say of its error: mean and variance of the evidence."""

    errors: dict[Place, list[float]]  # log(seconds / expected)
    places: dict[Place, tuple[float, float]]  # the same for each place
    mean: float = 0.0
    variance: float = math.inf


class Estimates:
    """Durations corrected by completed runs; the same runs give the same estimates.

    Args:
        machines: of the executor: names to types.
        runs: what is known already, oldest first.
        beliefs: see there.
    """

    def __init__(
        self,
        machines: Iterable[Machine],
        runs: Iterable[CompletedRun] = (),
        beliefs: Beliefs | None = None,
    ) -> None:
        self._types = {machine.name: machine.type for machine in machines}
        self._beliefs = beliefs or Beliefs()
        self._models: dict[str, _Model] = {}
        self._runs: dict[tuple[str, Place], list[CompletedRun]] = {}
        # Sums over the models of the queue's error: precision, and precision times mean.
        self._precision = 1 / self._beliefs.queue**2
        self._weighted = 0.0
        for run in runs:
            self.add(run)

    @property
    def runs(self) -> tuple[CompletedRun, ...]:
        """The runs that are remembered, those of one model and place together."""
        return tuple(run for runs in self._runs.values() for run in runs)

    def seconds(self, job: Job, mode: Mode) -> float:
        """How long the job will take in this mode."""
        machine = self._types.get(mode.machine, mode.machine)
        return mode.seconds * self.factor(job.model or job.name, machine, mode.demand)

    def factor(self, model: str, machine: str, gpus: int = 1) -> float:
        """What the queue's seconds are to be multiplied by, for a machine type."""
        common = self._weighted / self._precision
        known = self._models.get(model)
        if known is None:
            return math.exp(common)
        model_error = _blend(common, self._beliefs.model**2, known.mean, known.variance)
        here = known.places.get((machine, gpus))
        if here is None:
            return math.exp(model_error)
        return math.exp(_blend(model_error, self._beliefs.machine**2, *here))

    def observe(self, job: Job, outcome: Outcome) -> bool:
        """Learn from an attempt that ended; returns whether it told anything.

        Only first attempts that are done count: what ended otherwise did not take its full time,
        and what ran again may have gone on from what it had saved.
        """
        attempt = outcome.attempt
        if outcome.status != "done" or attempt.number > 1 or not outcome.seconds > 0:
            return False
        mode = job.modes[attempt.mode]
        machine = self._types.get(mode.machine, mode.machine)
        model = job.model or job.name
        self.add(CompletedRun(model, machine, mode.demand, mode.seconds, outcome.seconds))
        return True

    def add(self, run: CompletedRun) -> None:
        """Learn from a run."""
        place = (run.machine, run.gpus)
        runs = self._runs.setdefault((run.model, place), [])
        runs.append(run)
        del runs[:-KEEP]
        self._update(run.model, place)

    def forget(self, model: str, machine: str, gpus: int = 1) -> None:
        """Drop the runs of a model on a machine type, because its estimate is a new one."""
        if self._runs.pop((model, (machine, gpus)), None) is not None:
            self._update(model, (machine, gpus))

    def _update(self, name: str, place: Place) -> None:
        """Recompute what the runs of a model say, and its part in the queue's error."""
        model = self._models.setdefault(name, _Model({}, {}))
        self._share(model, -1)
        runs = self._runs.get((name, place))
        if runs:
            model.errors[place] = _clipped(
                [math.log(run.seconds / run.expected) for run in runs], self._beliefs.run
            )
        else:
            del model.errors[place]
        noise = self._noise(model)
        model.places = {
            at: (statistics.fmean(errors), noise / len(errors))
            for at, errors in model.errors.items()
        }
        # A place shows the model's error through its own: their variances add up.
        weights = {
            at: 1 / (self._beliefs.machine**2 + spread) for at, (_, spread) in model.places.items()
        }
        total = sum(weights.values())
        if not total:
            del self._models[name]
            return
        model.variance = 1 / total
        model.mean = sum(weights[at] * mean for at, (mean, _) in model.places.items()) / total
        self._share(model, 1)

    def _share(self, model: _Model, sign: int) -> None:
        """Count a model among the evidence of the queue's error, or no longer."""
        precision = sign / (self._beliefs.model**2 + model.variance)
        self._precision += precision
        self._weighted += precision * model.mean

    def _noise(self, model: _Model) -> float:
        """The variance of a single run: what is assumed, and what the model's runs show."""
        squares = sum(
            (error - statistics.fmean(errors)) ** 2
            for errors in model.errors.values()
            for error in errors
        )
        degrees = sum(len(errors) - 1 for errors in model.errors.values())
        return (NOISE_WEIGHT * self._beliefs.run**2 + squares) / (NOISE_WEIGHT + degrees)

    def save(self, path: str | Path) -> None:
        """Write the runs as CSV; an interruption leaves the old file.

        Raises:
            OSError: it cannot be written.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([one.name for one in fields(CompletedRun)])
        for run in self.runs:
            writer.writerow(
                [run.model, run.machine, run.gpus, f"{run.expected:.6g}", f"{run.seconds:.6g}"]
            )
        path = Path(path)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(text.getvalue(), encoding="utf-8")
        draft.replace(path)


def read_runs(path: str | Path) -> list[CompletedRun]:
    """The runs that `Estimates.save` wrote.

    Raises:
        ValueError: naming file, line and column.
    """
    from hetsched.envs.scenarios.own_files import read_rows  # slow: numpy

    return [
        CompletedRun(
            row.text("model"),
            row.text("machine"),
            row.whole("gpus", 1),
            row.number("expected", above=True),
            row.number("seconds", above=True),
        )
        for row in read_rows(Path(path), [one.name for one in fields(CompletedRun)], ())
    ]


def _blend(prior: float, variance: float, mean: float, spread: float) -> float:
    """The mean of a normal quantity, believed around `prior`, seen around `mean`."""
    if spread == math.inf:
        return prior
    weight = variance / (variance + spread)
    return prior + weight * (mean - prior)


def _clipped(errors: Sequence[float], noise: float) -> list[float]:
    """The errors, none further than CLIP deviations from the median."""
    centre = statistics.median(errors)
    # 1.4826 x the median absolute deviation is the standard deviation of a normal distribution.
    deviation = 1.4826 * statistics.median(abs(error - centre) for error in errors)
    reach = CLIP * max(deviation, noise)
    return [min(max(error, centre - reach), centre + reach) for error in errors]
