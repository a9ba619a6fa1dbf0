"""The measured tables behind the gpu-cluster scenarios, read once, at first use.

``data/speeds.csv``: speed of a model on a GPU (``gpus`` of them at once), its unit and source.
``data/philly.csv``: quantiles of job durations and of gaps between arrivals in the Philly trace
(Jeon et al., USENIX ATC 2019; msr-fiddle/philly-traces, CC BY 4.0).
``benchmarks/tables.py`` rebuilds both from the sources.
"""

from __future__ import annotations

import csv
import functools
import io
from importlib import resources
from typing import Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def rows(name: str) -> list[dict[str, str]]:
    """The rows of one of our tables in ``data/``."""
    text = resources.files("hetsched.envs.scenarios").joinpath("data", name).read_text("utf-8")
    return list(csv.DictReader(io.StringIO(text)))


@functools.cache
def speeds(source: str, gpus: int) -> dict[str, dict[str, float]]:
    """Model -> GPU -> speed of ``gpus`` GPUs together, from one source.

    Speeds of one model share a unit, those of different models need not.  A GPU is absent where
    the model does not fit or was not measured.

    Raises:
        ValueError: a source that the table does not have for that many GPUs.
    """
    table: dict[str, dict[str, float]] = {}
    for row in rows("speeds.csv"):
        if row["source"].split(":")[0] == source and int(row["gpus"]) == gpus:
            table.setdefault(row["model"], {})[row["gpu"]] = float(row["speed"])
    if not table:
        raise ValueError(f"speeds.csv has no figures from {source!r} for {gpus} GPUs")
    return table


@functools.cache
def quantiles(quantity: Literal["duration_s", "gap"], gpus: int) -> tuple[Array, Array]:
    """(probabilities, values) of a quantity in the trace, both increasing, shape (quantiles,)."""
    pairs = [
        (float(row["probability"]), float(row["value"]))
        for row in rows("philly.csv")
        if row["quantity"] == quantity and int(row["gpus"]) == gpus
    ]
    if not pairs:
        raise ValueError(f"philly.csv has no {quantity} of {gpus}-GPU jobs")
    probability, value = np.array(pairs).T
    return probability, value


@functools.cache
def _within(
    quantity: Literal["duration_s", "gap"], gpus: int, bounds: tuple[float, float]
) -> tuple[float, float]:
    """Probabilities at which the distribution enters and leaves ``bounds``."""
    probability, value = quantiles(quantity, gpus)
    low, high = np.interp(bounds, value, probability).tolist()
    if value[0] >= bounds[0]:
        low = 0.0  # not above an atom at the very bottom
    return low, high


def draw(
    rng: np.random.Generator,
    quantity: Literal["duration_s", "gap"],
    count: int,
    bounds: tuple[float, float],
    gpus: int = 1,
) -> Array:
    """(count,) draws from the trace's distribution given that it lies within ``bounds``."""
    low, high = _within(quantity, gpus, bounds)
    probability, value = quantiles(quantity, gpus)
    return np.interp(low + (high - low) * rng.random(count), probability, value)


@functools.cache
def mean(
    quantity: Literal["duration_s", "gap"], bounds: tuple[float, float], gpus: int = 1
) -> float:
    """Mean of the distribution that ``draw`` draws from."""
    low, high = _within(quantity, gpus, bounds)
    middle = (np.arange(10_000) + 0.5) / 10_000
    return float(np.interp(low + (high - low) * middle, *quantiles(quantity, gpus)).mean())
