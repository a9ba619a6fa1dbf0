"""Values of a YAML file, each checked where it is read.

Every mistake is one `QueueError` sentence: `who` names the job, machine or file it is in, `key`
the key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetsched.executor.queue import QueueError

BYTES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def read_yaml(path: Path) -> Any:
    """The content of a YAML file; equal keys and bad syntax are refused with their line."""
    from hetsched.executor.yaml_reader import read  # PyYAML, which `submit --name` does without

    return read(path)


def as_mapping(value: Any, who: str) -> Mapping[str, Any]:
    """The value, if it is a mapping."""
    if not isinstance(value, Mapping):
        raise QueueError(f"{who}: must be a mapping of keys to values, not {kind_of(value)}.")
    return value


def only_known_keys(data: Mapping[str, Any], known: set[str], who: str) -> None:
    """Refuse a key outside the known ones."""
    for key in data:
        if key not in known:
            raise QueueError(f"{who}: unknown key {key!r}; use {', '.join(sorted(known))}.")


def kind_of(value: Any) -> str:
    """What a value is, for a sentence."""
    return "nothing" if value is None else type(value).__name__


def as_text(value: Any, who: str, key: str) -> str:
    """The value as text, if it is a plain word or number without a NUL inside."""
    if isinstance(value, bool | Mapping | list | None):
        raise QueueError(f"{who}: {key} is {value!r}; give text, in quotes if it is no plain word.")
    text = str(value)
    if "\0" in text:
        raise QueueError(
            f"{who}: {key} holds a NUL character, which no process can get; remove it."
        )
    return text


def _as_float(value: int | float, who: str, key: str) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        raise QueueError(f"{who}: {key} is too large a number; give a smaller one.") from None


def as_seconds(value: Any, who: str, key: str) -> float:
    """A number of seconds, or text such as 90s, 15m, 2h, 1.5d."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _as_float(value, who, key)
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*(s|m|min|h|d|)\s*", str(value))
    if match is None or not isinstance(value, str):
        raise QueueError(f"{who}: {key} is {value!r}; give seconds, or text like 90s, 15m, 2h.")
    return float(match[1]) * UNITS[match[2]]


def as_bytes(value: Any, who: str, key: str) -> float:
    """A number of bytes, or text such as 500M, 8G, 8GB, 8GiB (each 1024 of the one before)."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _as_float(value, who, key)
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]?)(?:i?b)?\s*", str(value).lower())
    if match is None or not isinstance(value, str):
        raise QueueError(f"{who}: {key} is {value!r}; give bytes, or text like 500M, 8G.")
    return float(match[1]) * BYTES[match[2]]


def as_number(value: Any, who: str, key: str) -> float:
    """The value, if it is a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QueueError(f"{who}: {key} is {value!r}; give a number.")
    return _as_float(value, who, key)


def as_whole(value: Any, who: str, key: str) -> int:
    """The value, if it is a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise QueueError(f"{who}: {key} is {value!r}; give a whole number.")
    return value
