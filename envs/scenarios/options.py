"""Reading the values of scenario options, with errors that say what is expected."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from hetsched.envs.instance import Instance


def number(name: str, text: str, above: float | None) -> float:
    """A finite number above a bound (None: at least 0).

    Raises:
        ValueError: anything else.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    floor = 0.0 if above is None else above
    if not math.isfinite(value) or value < floor or (above is not None and value == above):
        want = "of at least 0" if above is None else f"above {above:g}"
        raise ValueError(f"option {name!r} must be a number {want}, got {text!r}")
    return value


def number_range(name: str, text: str, above: float) -> tuple[float, float]:
    """Bounds from ``LOW-HIGH``, or one number for both.

    Raises:
        ValueError: anything else, or a high bound below the low one.
    """
    low_text, dash, high_text = text.partition("-")
    low = number(name, low_text, above)
    high = number(name, high_text, above) if dash else low
    if high < low:
        raise ValueError(f"option {name!r} must read LOW-HIGH with LOW <= HIGH, got {text!r}")
    return low, high


def factorial_sampler(
    levels: Mapping[str, tuple[float, ...]],
    fixed: Mapping[str, float],
    sample: Callable[..., Instance],
) -> Callable[[np.random.Generator, int, int], Instance]:
    """A sampler that draws one level of each factor per instance, but for those that are fixed.

    Args:
        sample: called with the generator, jobs, machines and the factors by name.
    """
    choices = {**levels, **{name: (value,) for name, value in fixed.items()}}

    def sampler(rng: np.random.Generator, num_jobs: int, num_machines: int) -> Instance:
        chosen = {name: float(rng.choice(values)) for name, values in choices.items()}
        return sample(rng, num_jobs, num_machines, **chosen)

    return sampler
