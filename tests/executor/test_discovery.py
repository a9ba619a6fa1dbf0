"""GPUs as NVML tells them: names, slices, health, what hides them, and no driver at all."""

from __future__ import annotations

import builtins
import subprocess
import sys
from typing import Any

import pytest

from hetsched.executor.discovery import Device, Discovery, GpuProcess, discover
from hetsched.executor.discovery_health import Health
from hetsched.executor.discovery_names import type_name
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import QueueError
from hetsched.executor.queue_file import parse_machines
from hetsched.tests.executor.fake_nvml import FakeGpu, FakeNvml

GIB = 2**30


@pytest.mark.parametrize(
    ("product", "short"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("Tesla K80", "k80"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx4070ti-super"),
        ("NVIDIA GeForce GTX 1660 SUPER", "gtx1660-super"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000-ada"),
        ("Quadro RTX 6000", "quadro-rtx6000"),
        ("NVIDIA H200 MIG 1g.18gb", "h200-1g.18gb"),
        ("NVIDIA A100-SXM4-40GB MIG 1c.2g.10gb+me", "a100-40gb-1c.2g.10gb+me"),
        ("NVIDIA", "gpu"),
    ],
)
def test_products_have_short_type_names(product: str, short: str) -> None:
    assert type_name(product) == short


def test_a_gpu_is_told_in_full() -> None:
    nvml = FakeNvml(
        FakeGpu(processes=[(17, 5 * GIB), (18, None)], recovery=0, uncorrected=0, rows=(3, 1, 0, 0))
    )
    found = discover(nvml)
    assert found.driver == "580.1"
    assert found.notes == ()
    assert found.devices == (
        Device(
            "GPU-aaaa", "h200", "NVIDIA H200", 0, 150 * GIB, GIB, "",
            Health("none", 0, 0, 1, False, False, None),
            (GpuProcess(17, 5 * GIB), GpuProcess(18, None)),
        ),
    )  # fmt: skip
    assert found.devices[0].health.verdict == "ok"
    assert nvml.open == 0  # shut down again


def test_what_a_driver_does_not_say_is_unknown() -> None:
    (device,) = discover(FakeNvml(FakeGpu(total=None, processes=None))).devices
    assert (device.memory, device.used, device.processes) == (None, None, None)
    assert device.health == Health()
    assert device.health.verdict == "unknown"


@pytest.mark.parametrize(
    ("gpu", "verdict", "problems"),
    [
        (FakeGpu(recovery=1), "unusable", ("needs gpu reset",)),
        (FakeGpu(recovery=9), "unusable", ("needs recovery action 9",)),
        (FakeGpu(rows=(0, 2, 0, 1)), "unusable", ("row remapping failed",)),
        (FakeGpu(rows=(0, 2, 1, 0)), "suspect", ("bad memory waits for a reset",)),
        (FakeGpu(uncorrected=4), "suspect", ("4 uncorrected memory errors",)),
        (FakeGpu(recovery=0, reasons=0x44), "suspect", ("hardware thermal slowdown",)),
        (FakeGpu(recovery=0, reasons=0x05), "ok", ()),  # idle, and a cap of power
        (FakeGpu(retired=[1, 2]), "ok", ()),
    ],
)
def test_health_is_judged(gpu: FakeGpu, verdict: str, problems: tuple[str, ...]) -> None:
    (device,) = discover(FakeNvml(gpu)).devices
    assert (device.health.verdict, device.health.problems) == (verdict, problems)


def test_retired_pages_are_counted_where_rows_are_not_remapped() -> None:
    (device,) = discover(FakeNvml(FakeGpu(retired=[1, 2]))).devices
    assert (device.health.retired, device.health.pending) == (2, False)


def test_an_unusable_gpu_is_shown_but_is_no_machine() -> None:
    found = discover(FakeNvml(FakeGpu(), FakeGpu(uuid="GPU-bbbb", recovery=1)))
    assert len(found.devices) == 2
    assert [machine.devices for machine in found.machines()] == [("GPU-aaaa",)]
    assert found.notes == ("GPU 1 (GPU-bbbb) gets no work: needs gpu reset.",)


def test_a_lost_gpu_is_left_out_with_the_reason() -> None:
    found = discover(FakeNvml(FakeGpu(lost=True), FakeGpu(uuid="GPU-bbbb")))
    assert [(one.uuid, one.index) for one in found.devices] == [("GPU-bbbb", 1)]
    assert found.notes == ("GPU 0 is left out because it does not answer (GPU is lost).",)


def test_slices_are_devices_and_their_gpu_is_not() -> None:
    slices = [
        FakeGpu("NVIDIA H200 MIG 3g.71gb", "MIG-1", 70 * GIB),
        None,
        FakeGpu("NVIDIA H200", "MIG-2", 17 * GIB, attributes=(1, 17 * 1024 + 500)),
        FakeGpu("NVIDIA H200 MIG 3g.71gb", "MIG-3", 70 * GIB),
    ]
    found = discover(FakeNvml(FakeGpu(uuid="GPU-whole", mig=slices, uncorrected=1)))
    assert [(one.uuid, one.type, one.profile) for one in found.devices] == [
        ("MIG-1", "h200-3g.71gb", "3g.71gb"),
        ("MIG-2", "h200-1g.18gb", "1g.18gb"),
        ("MIG-3", "h200-3g.71gb", "3g.71gb"),
    ]
    assert {one.health.uncorrected for one in found.devices} == {1}  # the GPU's
    names = [machine.name for machine in found.machines(group=True)]
    assert names == ["h200-3g.71gb-0", "h200-1g.18gb-0", "h200-3g.71gb-1"]


def test_mig_without_slices_is_said() -> None:
    found = discover(FakeNvml(FakeGpu(mig=[])))
    assert found.devices == ()
    assert found.notes == ("GPU 0 is left out: MIG is on and it has no slice.",)


def test_gpus_of_one_type_can_be_one_machine() -> None:
    nvml = FakeNvml(
        FakeGpu(uuid="a", total=140 * GIB),
        FakeGpu("NVIDIA L40S", "b", total=None),
        FakeGpu(uuid="c", total=139 * GIB),
    )
    assert discover(nvml).machines(group=True, cpu_slots=4) == (
        Machine("h200-0", "h200", "gpu", ("a", "c"), capacity=2, memory=139 * GIB),
        Machine("l40s-0", "l40s", "gpu", ("b",)),
        Machine("cpu", capacity=4),
    )
    assert [one.name for one in discover(nvml).machines()] == ["h200-0", "l40s-0", "h200-1"]


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        ("1", ["GPU-b1"]),
        ("GPU-b,0", ["GPU-b1", "GPU-a1"]),
        ("0,7,1", ["GPU-a1"]),  # nothing after the first that matches none
        ("", []),
        ("-1", []),
    ],
)
def test_only_gpus_that_this_process_may_use_are_found(visible: str, uuids: list[str]) -> None:
    found = discover(FakeNvml(FakeGpu(uuid="GPU-a1"), FakeGpu(uuid="GPU-b1")), visible)
    assert [one.uuid for one in found.devices] == uuids
    assert any("CUDA_VISIBLE_DEVICES" in note for note in found.notes) == (len(uuids) < 2)


def test_without_a_driver_nothing_is_found_and_the_reason_is_a_sentence() -> None:
    found = discover(FakeNvml(driver=False))
    assert found == Discovery(
        notes=(
            "No NVIDIA driver answers here (NVML Shared Library Not Found); "
            "only CPU slots can run jobs.",
        )
    )
    assert found.machines() == ()


def test_without_the_package_the_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "pynvml":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "pip install 'hetsched[gpu]'" in discover().notes[0]


def test_a_queue_can_take_the_machines_that_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(FakeGpu(uuid="GPU-a"), FakeGpu(uuid="GPU-b"))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [machine.devices for machine in parse_machines("found")] == [("GPU-b",)]
    nvml.driver = False
    with pytest.raises(QueueError, match=r"found: there is no GPU to use\. No NVIDIA"):
        parse_machines("found")


def test_the_real_binding_does_not_raise_and_starts_no_cuda() -> None:
    """With the package or without, with a driver or without; torch must not come along."""
    code = (
        "import sys; from hetsched.executor.discovery import discover; found = discover(); "
        "print(bool(found.devices or found.notes), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_the_stand_in_has_no_name_that_the_real_binding_lacks() -> None:
    real = pytest.importorskip("pynvml", reason="nvidia-ml-py is an optional extra")
    names = [name for name in vars(FakeNvml) if name.lower().startswith("nvml")]
    assert [name for name in names if not hasattr(real, name)] == []
    assert issubclass(real.NVMLError_LibraryNotFound, real.NVMLError)
