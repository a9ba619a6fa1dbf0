"""Checks of arrays whose errors name the field, the index and the mend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def count(name: str, value: Any) -> int:
    """A whole number of at least 1.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} is {value!r}; give a whole number of at least 1")
    return int(value)


def numbers(name: str, value: Any) -> NDArray[Any]:
    """The value as an array of numbers of any shape.

    Raises:
        ValueError: something else than numbers.
    """
    try:
        array = np.asarray(value)
    except ValueError:  # ragged nested lists
        array = np.asarray(None)
    if array.dtype.kind not in "iufb":
        raise ValueError(f"{name} holds something else than numbers; give an array of numbers")
    return array


def floats(name: str, value: Any, shape: tuple[int, ...], axes: str) -> FloatArray:
    """A private float64 copy of the given shape; ``axes`` says what the shape means.

    Raises:
        ValueError: not numbers, or another shape.
    """
    array = numbers(name, value)
    _check_shape(name, array, shape, axes)
    return np.array(array, dtype=np.float64)


def integers(name: str, value: Any, shape: tuple[int, ...], axes: str) -> IntArray:
    """A private int64 copy of the given shape; ``axes`` says what the shape means.

    Raises:
        ValueError: not whole numbers, or another shape.
    """
    array = numbers(name, value)
    _check_shape(name, array, shape, axes)
    if array.dtype.kind == "f":
        whole = np.isfinite(array) & (array == np.round(array)) & (np.abs(array) < 2.0**53)
        refuse(name, array, ~whole, "give a whole number")
    return np.array(array, dtype=np.int64)


def refuse(name: str, array: NDArray[Any], wrong: BoolArray, mend: str) -> None:
    """Refuse an array some of whose entries are wrong.

    Raises:
        ValueError: naming the first wrong entry, its value and the mend.
    """
    if wrong.any():
        index = np.argwhere(wrong)[0].tolist()
        where = ", ".join(str(one) for one in index)
        raise ValueError(f"{name}[{where}] is {array[tuple(index)]:g}; {mend}")


def check_times(name: str, array: FloatArray, finite: bool, mend: str) -> None:
    """Refuse NaN, negative and, where ``finite``, infinite entries.

    Raises:
        ValueError: naming the first wrong entry.
    """
    wrong = ~(array >= 0)  # also where NaN
    if finite:
        wrong = wrong | np.isinf(array)
    refuse(name, array, wrong, mend)


def check_indices(name: str, array: IntArray, limit: int, of: str) -> None:
    """Refuse indices outside ``0..limit - 1``; ``of`` is what they count.

    Raises:
        ValueError: naming the first wrong entry.
    """
    wrong = (array < 0) | (array >= limit)
    refuse(name, array, wrong, f"give the index of a {of}, 0 to {limit - 1}")


def names(field: str, value: Any, number: int, of: str) -> tuple[str, ...]:
    """Names as a tuple, by default ``"job 0"``, ``"job 1"``...

    Raises:
        ValueError: not a sequence of so many strings.
    """
    if value is None:
        return tuple(f"{of} {index}" for index in range(number))
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise ValueError(f"{field} is {value!r}; give a sequence of {number} strings")
    result = tuple(str(one) if isinstance(one, str) else one for one in value)
    for index, one in enumerate(result):
        if not isinstance(one, str):
            raise ValueError(f"{field}[{index}] is {one!r}; give a string")
        if "\0" in one:  # numpy would drop it from the end of a string without a word
            raise ValueError(f"{field}[{index}] is {one!r}; give a string without null characters")
    if len(result) != number:
        raise ValueError(f"{field} has {len(result)} entries; give {number}, one per {of}")
    return result


def permutation(name: str, value: Any, number: int) -> IntArray:
    """A permutation of ``range(number)``, by default the identity.

    Raises:
        ValueError: it is none.
    """
    if value is None:
        return np.arange(number)
    array = integers(name, value, (number,), "one index each")
    if not np.array_equal(np.sort(array), np.arange(number)):
        raise ValueError(f"{name} is no permutation; give each index 0 to {number - 1} once")
    return array


def find_cycle(precedence: IntArray, num_jobs: int) -> list[int]:
    """Jobs of one directed cycle, the first repeated at the end; empty if there is none.

    Args:
        precedence: (2, arcs) int64, job before job.
    """
    successors: list[list[int]] = [[] for _ in range(num_jobs)]
    pending = np.bincount(precedence[1], minlength=num_jobs).tolist()
    for before, after in precedence.T.tolist():
        successors[before].append(after)
    order = [job for job in range(num_jobs) if pending[job] == 0]
    for job in order:  # grows while it is walked: a topological order (Kahn 1962)
        for after in successors[job]:
            pending[after] -= 1
            if pending[after] == 0:
                order.append(after)
    if len(order) == num_jobs:
        return []
    # Every job left over has a predecessor left over: walking back must repeat a job.
    left = {job for job in range(num_jobs) if pending[job] > 0}
    predecessor = {
        after: before for before, after in precedence.T.tolist() if before in left and after in left
    }
    job, seen = min(left), list[int]()
    while job not in seen:
        seen.append(job)
        job = predecessor[job]
    return [job, *reversed(seen[seen.index(job) + 1 :]), job]


def _check_shape(name: str, array: NDArray[Any], shape: tuple[int, ...], axes: str) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; give {shape}, which is {axes}")
