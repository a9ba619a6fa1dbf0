"""benchmarks/quality.py on a tiny set: files, resuming, the picture."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "quality.py"


@pytest.fixture
def quality(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark with its results in a folder of the test's."""
    spec = importlib.util.spec_from_file_location("quality_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    return module


def test_results_are_kept_and_only_missing_ones_are_measured(
    quality: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rcmax").mkdir()
    times = np.array([[[3, 9], [9, 3]], [[2, 4], [5, 2]]])
    np.savez(
        tmp_path / "rcmax" / "20x4.npz",
        processing_times=times,
        reference_optimum=np.array([3, 2.0]),
    )
    picture = tmp_path / "picture.png"
    options = ["--data", str(tmp_path), "--picture", str(picture), "--contenders", ""]
    options[-1] = "^lpt$|^min-min$|^annealing@0.1$"
    quality.main([*options, "--count", "1"])
    folder = tmp_path / "results" / "rcmax-20x4"
    assert {one.stem for one in folder.iterdir()} == {"lpt", "min-min", "annealing@0.1"}
    assert json.loads((folder / "lpt.json").read_text())["cost"] == [3.0]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "1.0000" in capsys.readouterr().out

    (folder / "lpt.json").write_text(json.dumps({"count": 2, "cost": [6, 4], "seconds": [1, 1]}))
    quality.main(options)
    assert json.loads((folder / "min-min.json").read_text())["count"] == 2
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()[2:]
             if line}  # fmt: skip
    assert lines["lpt"][0] == "2.0000"  # kept, not measured again


def test_no_set_of_that_name_is_a_mistake(quality: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        quality.main(["--data", str(tmp_path), "--sets", "none-such"])
    assert caught.value.code == 2
