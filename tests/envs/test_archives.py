"""Archives: whatever bytes come from elsewhere, nothing runs and one sentence says why not."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.envs.files import (
    InstanceSet,
    load_instance,
    load_set,
    save_instance,
    save_set,
)
from hetsched.envs.instance import Instance

SUFFIXES = pytest.mark.parametrize("suffix", [".npz", ".json"])


class Trap:
    """An object whose pickle creates a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def small(**others: Any) -> Instance:
    return Instance.from_matrix(np.array([[1.0, 2.0], [np.inf, 3.0]]), **others)


def refused(load: Any, path: Path) -> str:
    """The one sentence of a refusal."""
    with pytest.raises(ValueError, match=r".") as refusal:
        load(path)
    sentence = str(refusal.value)
    assert "\n" not in sentence
    assert path.name in sentence
    return sentence


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff\xfe", b"null", b"[" * 99_999])
@SUFFIXES
def test_foreign_bytes_are_refused(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"one{suffix}"
    path.write_bytes(content)
    refused(load_instance, path)


@pytest.mark.parametrize("load", [load_instance, load_set])
def test_a_pickle_is_refused_and_never_run(tmp_path: Path, load: Any) -> None:
    trap = tmp_path / "sprung"
    path = tmp_path / "one.npz"
    objects = np.array([Trap(trap)], dtype=object)
    np.savez(path, processing_times=np.ones((1, 1, 1)), weights=objects)
    assert "weights in " in (sentence := refused(load, path))
    assert "holds Python objects, which may run code when read" in sentence
    path.write_bytes(pickle.dumps(Trap(trap)))
    assert "is no .npz archive or is damaged" in refused(load, path)
    np.save(tmp_path / "one.npy", objects)
    (tmp_path / "one.npy").rename(path)
    assert "is no .npz archive or is damaged" in refused(load, path)
    assert not trap.exists()


@pytest.mark.parametrize("load", [load_instance, load_set])
def test_an_archive_cut_short_or_damaged_is_refused(tmp_path: Path, load: Any) -> None:
    path = tmp_path / "one.npz"
    if load is load_set:
        save_set(path, InstanceSet((small(), small())))
    else:
        save_instance(path, small())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(load, path)
    rng = np.random.default_rng(0)
    for _ in range(50):  # every loss is noticed by the archive's checksums or by the checks
        broken = bytearray(whole)
        for at in rng.integers(0, len(whole), 20):
            broken[at] ^= 0xFF
        path.write_bytes(bytes(broken))
        try:
            load(path)
        except ValueError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("load", [load_instance, load_set])
def test_a_plain_array_or_a_stray_file_is_refused(tmp_path: Path, load: Any) -> None:
    path = tmp_path / "one.npz"
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    assert "is no .npz archive" in refused(load, path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert "readme.txt in " in refused(load, path)


@pytest.mark.parametrize("load", [load_instance, load_set])
def test_a_missing_file_a_folder_and_another_suffix_are_refused(tmp_path: Path, load: Any) -> None:
    assert "is no file; give the path of an existing one" in refused(load, tmp_path / "no.npz")
    (tmp_path / "folder.npz").mkdir()
    assert "is no file" in refused(load, tmp_path / "folder.npz")
    assert "suffix" in refused(load, tmp_path / "one.pkl")
    with pytest.raises(ValueError, match=r"one.txt has no suffix that is known here; use .npz or"):
        save_instance(tmp_path / "one.txt", small())
