"""Whether GPUs were slowed down, or used by others, while something was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetsched.executor.discovery_health import read_slowdown

if TYPE_CHECKING:
    from hetsched.executor.discovery_nvml import Nvml


class ClockWatch:
    """Asks NVML about the devices of a measurement; without NVML it sees nothing.

    Args:
        nvml: open; None: no driver.
    """

    def __init__(self, nvml: Nvml | None = None) -> None:
        self._nvml = nvml
        self._handles: list[Any] = []
        self._seen: set[str] = set()

    def watch(self, devices: tuple[str, ...]) -> tuple[int, ...]:
        """Turn to other devices, UUIDs or numbers; returns the processes that use them already."""
        self._handles, busy = [], []
        self._seen.clear()
        if self._nvml is None:
            return ()
        for device in devices:
            if device.isdecimal():
                handle = self._nvml.ask("nvmlDeviceGetHandleByIndex", int(device))
            else:
                handle = self._nvml.ask("nvmlDeviceGetHandleByUUID", device)
            if handle is None:
                continue
            processes = self._nvml.ask("nvmlDeviceGetComputeRunningProcesses", handle)
            busy += [int(process.pid) for process in processes or ()]
            # The clocks of a MIG slice are its GPU's.
            whole = self._nvml.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
            self._handles.append(handle if whole is None else whole)
        return tuple(busy)

    def look(self) -> None:
        """Remember why clocks are held down now."""
        if self._nvml is not None:
            for handle in self._handles:
                self._seen.update(read_slowdown(self._nvml, handle) or ())

    def slowdown(self) -> frozenset[str]:
        """What was remembered; it is forgotten."""
        seen = frozenset(self._seen)
        self._seen.clear()
        return seen
