"""Objective: the weighted sum of cost terms that a schedule is judged by."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

TERMS = (
    "makespan",
    "weighted_tardiness",
    "machine_tardiness",
    "weighted_completion",
    "flow_time",
    "setup_time",
)

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_SUMMAND = re.compile(rf"\s*(?:({_NUMBER})\s*\*\s*)?([A-Za-z_]\w*)\s*(\+|$)")
_MEAN = re.compile(r"\s*mean\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True)
class Objective:
    """A weighted sum of cost terms, to be minimised.

    With C_j the completion of job j, and the finish of a machine its last completion or the end
    of its initial occupation, whichever is later:

    Attributes:
        makespan: weight of the largest finish of a machine, C_max.
        weighted_tardiness: weight of the sum of w_j max(0, C_j - d_j).
        machine_tardiness: weight of the sum over machines k of omega_k max(0, finish_k - delta_k).
        weighted_completion: weight of the sum of w_j C_j.
        flow_time: weight of the sum of C_j - r_j.
        setup_time: weight of the sum of the set-up times that are paid.
        per_job: divide the cost by the number of jobs; flow_time=1 is then the mean flow time.

    Raises:
        ValueError: a weight that is negative, NaN or infinite, or no positive weight at all.
    """

    makespan: float = 0.0
    weighted_tardiness: float = 0.0
    machine_tardiness: float = 0.0
    weighted_completion: float = 0.0
    flow_time: float = 0.0
    setup_time: float = 0.0
    per_job: bool = False

    def __post_init__(self) -> None:
        for name in TERMS:
            weight = getattr(self, name)
            if isinstance(weight, bool) or not isinstance(weight, int | float):
                raise ValueError(f"the weight of {name} is {weight!r}; give a number")
            if not (math.isfinite(weight) and weight >= 0):
                raise ValueError(
                    f"the weight of {name} is {weight}; give a finite number of at least 0"
                )
            object.__setattr__(self, name, float(weight))  # the dataclass is frozen
        if not isinstance(self.per_job, bool):
            raise ValueError(f"per_job is {self.per_job!r}; give true or false")
        if not self.active_terms():
            raise ValueError(
                f"the objective has no term; give a positive weight to one of {', '.join(TERMS)}"
            )

    def active_terms(self) -> tuple[str, ...]:
        """Names of the terms that count, in the order of `TERMS`."""
        return tuple(name for name in TERMS if getattr(self, name) > 0)

    @property
    def weighs_jobs(self) -> bool:
        """Whether the weights of jobs play a part."""
        return self.weighted_tardiness > 0 or self.weighted_completion > 0

    def value(self, terms: Mapping[str, Any], num_jobs: Any) -> Any:
        """The cost, from the values of its terms.

        Args:
            terms: value of every active term: numbers, arrays or tensors that broadcast.
            num_jobs: number of jobs, used only where ``per_job`` is set.

        Raises:
            ValueError: an active term is missing.
        """
        cost: Any = 0.0
        for name in self.active_terms():
            if name not in terms:
                raise ValueError(f"the term {name} is missing; give its value")
            cost = cost + getattr(self, name) * terms[name]
        return cost / num_jobs if self.per_job else cost

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Read ``"makespan + 2*weighted_tardiness"`` or ``"mean(flow_time)"``.

        ``mean(...)`` around the whole sum sets ``per_job``.

        Raises:
            ValueError: an unknown or repeated term, or another form.
        """
        mean = _MEAN.fullmatch(text)
        inner = mean.group(1) if mean else text
        weights: dict[str, float] = {}
        position, more = 0, True
        while more:
            found = _SUMMAND.match(inner, position)
            if found is None:
                raise ValueError(
                    f"the objective {text!r} cannot be read; write a sum such as "
                    "'makespan + 2*weighted_tardiness' or 'mean(flow_time)'"
                )
            weight, name, then = found.groups()
            if name not in TERMS:
                raise ValueError(
                    f"the objective {text!r} names the unknown term {name!r}; "
                    f"use {', '.join(TERMS)}"
                )
            if name in weights:
                raise ValueError(
                    f"the objective {text!r} names {name} twice; add up the two weights"
                )
            weights[name] = 1.0 if weight is None else float(weight)
            position, more = found.end(), then == "+"
        return cls(**weights, per_job=mean is not None)

    def __str__(self) -> str:
        """The form that `parse` reads."""
        summands = []
        for name in self.active_terms():
            weight = getattr(self, name)
            short = repr(int(weight)) if weight.is_integer() and weight < 1e15 else repr(weight)
            summands.append(name if weight == 1.0 else f"{short}*{name}")
        total = " + ".join(summands)
        return f"mean({total})" if self.per_job else total

    def to_dict(self) -> dict[str, Any]:
        """Field names to values, all plain, for JSON."""
        return {**{name: getattr(self, name) for name in TERMS}, "per_job": self.per_job}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Objective:
        """The inverse of `to_dict`; fields left out are zero.

        Raises:
            ValueError: an unknown field, or a value that `Objective` refuses.
        """
        known = (*TERMS, "per_job")
        for name in values:
            if name not in known:
                raise ValueError(
                    f"the objective has an unknown field {name!r}; use {', '.join(known)}"
                )
        return cls(**values)
