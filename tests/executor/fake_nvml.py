"""A stand-in for ``pynvml``: devices as plain data, and refusals where a field is absent."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    pass


@dataclass
class FakeGpu:
    """A GPU or a slice. What is None raises "not supported" when asked for."""

    name: str = "NVIDIA H200"
    uuid: str = "GPU-aaaa"
    total: int | None = 150 * 2**30
    used: int = 2**30
    processes: list[tuple[int, int | None]] | None = field(default_factory=list)
    recovery: int | None = None
    uncorrected: int | None = None
    rows: tuple[int, int, int, int] | None = None
    retired: list[int] | None = None
    reasons: int | None = None
    mig: list[FakeGpu | None] | None = None  # None: MIG is off; a None inside: an empty place
    attributes: tuple[int, int] | None = None  # slices of compute, MB
    lost: bool = False


class FakeNvml:
    """The functions of pynvml that discovery uses."""

    NVMLError = NVMLError
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230
    NVML_GPU_RECOVERY_ACTION_NONE = 0
    NVML_GPU_RECOVERY_ACTION_GPU_RESET = 1
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_AGGREGATE_ECC = 1
    NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR = 1

    def __init__(self, *gpus: FakeGpu, driver: bool = True) -> None:
        self.gpus = gpus
        self.driver = driver
        self.open = 0

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError("NVML Shared Library Not Found")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        if self.gpus[index].lost:
            raise NVMLError("GPU is lost")
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        return _told(next((gpu for gpu in self.gpus if gpu.uuid == uuid), None))

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> bytes:
        return gpu.name.encode()  # as old bindings do

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:
        return gpu.uuid

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> Any:
        return SimpleNamespace(total=_told(gpu.total), used=gpu.used)

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> list[Any]:
        return [SimpleNamespace(pid=p, usedGpuMemory=m) for p, m in _told(gpu.processes)]

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:
        return [int(gpu.mig is not None)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, index: int) -> FakeGpu:
        return _told(_told(gpu.mig)[index] if index < len(gpu.mig or ()) else None)

    def nvmlDeviceGetAttributes(self, gpu: FakeGpu) -> Any:
        compute, memory = _told(gpu.attributes)
        return SimpleNamespace(gpuInstanceSliceCount=compute, memorySizeMB=memory)

    def nvmlDeviceGetFieldValues(self, gpu: FakeGpu, fields: list[int]) -> list[Any]:
        refused = int(gpu.recovery is None)
        value = SimpleNamespace(uiVal=gpu.recovery or 0)
        return [SimpleNamespace(nvmlReturn=3 * refused, value=value) for _ in fields]

    def nvmlDeviceGetTotalEccErrors(self, gpu: FakeGpu, kind: int, counter: int) -> int:
        return _told(gpu.uncorrected)

    def nvmlDeviceGetRemappedRows(self, gpu: FakeGpu) -> tuple[int, ...]:
        return _told(gpu.rows)

    def nvmlDeviceGetRetiredPages(self, gpu: FakeGpu, cause: int) -> list[int]:
        return _told(gpu.retired)

    def nvmlDeviceGetRetiredPagesPendingStatus(self, gpu: FakeGpu) -> int:
        _told(gpu.retired)
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: FakeGpu) -> int:
        return _told(gpu.reasons)  # the new name is missing, as in old bindings


def _told(value: Any) -> Any:
    if value is None:
        raise NVMLError("Not Supported")
    return value
