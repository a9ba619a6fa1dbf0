"""``dispatch.py machines``: what it prints is what a queue can read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hetsched.cli import UserError
from hetsched.executor.commands.machines import main
from hetsched.executor.discovery import discover
from hetsched.executor.queue_file import parse_machines
from hetsched.tests.executor.fake_nvml import FakeGpu, FakeNvml

SLICE = FakeGpu("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "MIG-1", 10 * 2**30)


@pytest.fixture(autouse=True)
def no_hidden_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def nvml() -> FakeNvml:
    return FakeNvml(
        FakeGpu(uuid="GPU-a", processes=[(17, 5 * 2**30)], recovery=0),
        FakeGpu(uuid="GPU-b", uncorrected=2),
        FakeGpu("NVIDIA A100-SXM4-80GB", "GPU-c", mig=[SLICE]),
    )


@pytest.mark.parametrize("group", [False, True])
def test_the_yaml_is_read_back_as_the_same_machines(
    nvml: FakeNvml, group: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--yaml", "--cpu", "3", *["--group"] * group], nvml) == 0
    text = capsys.readouterr().out
    path = tmp_path / "machines.yaml"
    path.write_text(text, encoding="utf-8")
    assert parse_machines(str(path)) == discover(nvml).machines(group, cpu_slots=3)
    assert "memory: 10.0 GiB}  # NVIDIA A100-SXM4-80GB MIG 1g.10gb" in text


def test_shared_devices_keep_their_slots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = "shared:h200@GPU-a*2,cpu@cpu*4"
    assert main(["--yaml", "--machines", spec], FakeNvml()) == 0
    path = tmp_path / "machines.yaml"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    assert parse_machines(str(path)) == parse_machines(spec)


def test_the_table_shows_every_device_with_its_health(
    nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], nvml) == 0
    lines = capsys.readouterr().out.splitlines()
    (healthy,) = (line for line in lines if "GPU-a" in line)
    assert all(word in healthy for word in ("h200", "150.0 GiB", "ok", "17 (5.0 GiB)"))
    (suspect,) = (line for line in lines if "GPU-b" in line)
    assert "suspect, 2 uncorrected memory errors" in suspect
    (part,) = (line for line in lines if "MIG-1" in line)
    assert all(word in part for word in ("a100-80gb-1g.10gb", "unknown"))


def test_the_json_holds_devices_and_machines(
    nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--json"], nvml) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["driver"] == "580.1"
    assert [one["health"]["verdict"] for one in report["devices"]] == ["ok", "suspect", "unknown"]
    assert report["machines"][2] == {
        "name": "a100-80gb-1g.10gb-0", "type": "a100-80gb-1g.10gb", "device": "MIG-1",
        "memory": "10.0 GiB",
    }  # fmt: skip


def test_without_a_driver_it_says_so_and_is_no_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([], FakeNvml(driver=False)) == 0
    assert capsys.readouterr().out.startswith("No NVIDIA driver answers here")
    assert main(["--yaml"], FakeNvml(driver=False)) == 0
    assert capsys.readouterr().out == "machines: []\n"


def test_described_machines_that_are_not_here_are_pointed_out(
    nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--machines", "big:h200@GPU-a,far:h200@GPU-x,second:h200@1"], nvml) == 0
    out = capsys.readouterr().out
    assert "Machine 'far': device GPU-x is not on this computer." in out
    assert out.count("is not on this computer") == 1


def test_mistakes_are_one_sentence(nvml: FakeNvml) -> None:
    with pytest.raises(UserError, match="cannot be read; write NAME:TYPE@DEVICE"):
        main(["--machines", "nonsense"], nvml)
    with pytest.raises(UserError, match="leave out --group and --cpu"):
        main(["--machines", "cpu@cpu", "--group"], nvml)
    with pytest.raises(SystemExit) as stopped:
        main(["--cpu", "-1"], nvml)
    assert stopped.value.code == 2


def test_it_answers_through_dispatch_without_loading_torch() -> None:
    code = (
        "import sys; from hetsched.dispatch import dispatch; "
        "status = dispatch(['machines', '--yaml']); sys.exit(status or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("machines:")
