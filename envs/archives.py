"""Archives: reading and writing ``.npz`` and JSON from anywhere, with errors of one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1


def with_suffix(path: str | Path, *allowed: str) -> Path:
    """The path, if it ends as allowed.

    Raises:
        ValueError: another suffix.
    """
    path = Path(path)
    if path.suffix not in allowed:
        raise ValueError(f"{path} has no suffix that is known here; use {' or '.join(allowed)}")
    return path


def check_header(path: Path, values: Mapping[str, Any], expected: str) -> None:
    """Refuse a file of another ``format`` or ``version``.

    Raises:
        ValueError: saying which.
    """
    found = str(values.get("format", "of no known format"))
    if found != expected:
        raise ValueError(f"{path} is {found}, not {expected}; give a file of that format")
    version = str(values.get("version"))
    if version != str(VERSION):
        raise ValueError(
            f"{path} has version {version}, this hetsched reads {VERSION}; "
            "use the hetsched that wrote it"
        )


def write_npz(path: Path, kind: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays (or plain values) under a header.

    Raises:
        OSError: the file cannot be written.
    """
    plain = {name: np.asarray(value) for name, value in arrays.items()}
    header = {"format": np.array(kind), "version": np.array(VERSION)}
    np.savez_compressed(path, **header, **plain)  # type: ignore[arg-type]


def read_npz(path: Path) -> dict[str, Any]:
    """The arrays of an archive by name, without ever running a pickle.

    Raises:
        ValueError: no such file, no archive, a damaged one, or one that holds Python objects.
    """
    _check_exists(path)
    values = {}
    try:
        archive = np.load(path, allow_pickle=False)
    except Exception:  # damaged bytes may fail anywhere in zipfile or numpy
        archive = None
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise ValueError(f"{path} is no .npz archive or is damaged; give what numpy wrote")
    with archive:
        for name in archive.files:
            try:
                values[name] = archive[name]
            except Exception as error:  # likewise
                why = "is damaged; make it anew"
                if "allow_pickle" in str(error):
                    why = "holds Python objects, which may run code when read; save plain arrays"
                raise ValueError(f"{name} in {path} {why}") from None
            if not isinstance(values[name], np.ndarray):  # a stray file in the archive
                raise ValueError(f"{name} in {path} is no array; remove it")
    return values


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; null inside a list becomes infinity.

    Raises:
        ValueError: no such file, or another content.
    """
    _check_exists(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):  # also not UTF-8
        raise ValueError(f"{path} is not JSON; give what save_instance wrote") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds no JSON object; give what save_instance wrote")
    return {name: _from_json(value) for name, value in values.items()}


def _check_exists(path: Path) -> None:
    if not path.is_file():
        raise ValueError(f"{path} is no file; give the path of an existing one")


def to_json(value: Any) -> Any:
    """Nested lists; infinity, which JSON lacks, becomes null."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        return np.where(np.isfinite(value), value.astype(object), np.array(None)).tolist()
    return value.tolist()


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [np.inf if one is None else _from_json(one) for one in value]
    return value
