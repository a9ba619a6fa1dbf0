"""Reads YAML files safely, and strictly: plain YAML lets the later of two equal keys win."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from hetsched.executor.queue import QueueError

# The parser in C, where PyYAML was built with it, is ten times faster.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeyLoader(_Loader):
    """Plain YAML lets the later of two equal keys win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":  # "<<": its keys may be overridden
                continue
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, Hashable):
                raise QueueError(f"line {line}: {key!r} is no key; use a word.")
            if key in seen:
                raise QueueError(f"line {line}: key {key!r} is given twice; keep one.")
            seen.add(key)
        return dict(super().construct_mapping(node, deep))


def read(path: Path) -> Any:
    """The content of a YAML file; equal keys and bad syntax are refused with their line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise QueueError(f"cannot read {path}: {why}; check the path.") from None
    try:
        return yaml.load(text, _UniqueKeyLoader)  # a safe loader
    except QueueError as error:
        raise QueueError(f"{path.name}, {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        what = getattr(error, "problem", None) or "cannot be parsed"
        raise QueueError(f"{path.name}{where}: no valid YAML ({what}); correct it.") from None
    except ValueError as error:  # what looks like a date and is none, a number of 5,000 digits
        raise QueueError(f"{path.name}: no valid YAML ({error}); quote it or correct it.") from None
