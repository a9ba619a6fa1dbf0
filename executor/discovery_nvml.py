"""NVML, asked politely: what a driver or a device does not support is None, never an exception.

NVML reads the driver's own books. It creates no CUDA context, so the scheduler's process can ask
it at any time; jobs started later are not affected.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


class NoNvml(Exception):
    """NVML cannot be used here; one sentence that says why and what would help."""


class Nvml:
    """An initialised NVML.

    Args:
        module: ``pynvml`` of the package nvidia-ml-py, or something that looks like it.
    """

    def __init__(self, module: Any) -> None:
        self._module = module

    def ask(self, function: str, *arguments: Any) -> Any:
        """The answer of an NVML function; None where it is missing, refused or not supported."""
        call = getattr(self._module, function, None)
        if call is None:  # an older or newer binding
            return None
        try:
            return call(*arguments)
        except self._module.NVMLError:
            return None

    def constant(self, name: str) -> Any:
        """A constant of the binding; None where this version does not have it."""
        return getattr(self._module, name, None)

    def field(self, handle: Any, name: str) -> int | None:
        """The value of one of NVML's numbered fields, read as an unsigned number."""
        number = self.constant(name)
        values = None if number is None else self.ask("nvmlDeviceGetFieldValues", handle, [number])
        if not values or values[0].nvmlReturn != 0:
            return None
        return int(values[0].value.uiVal)

    def text(self, function: str, *arguments: Any) -> str | None:
        """An answer that is text; bindings before 2023 gave bytes."""
        answer = self.ask(function, *arguments)
        return answer.decode() if isinstance(answer, bytes) else answer

    def devices(self) -> Iterator[tuple[int, Any, str]]:
        """Index, handle and error of every device; one that cannot be opened has no handle."""
        for index in range(self.ask("nvmlDeviceGetCount") or 0):
            try:
                yield index, self._module.nvmlDeviceGetHandleByIndex(index), ""
            except self._module.NVMLError as error:
                yield index, None, str(error)

    def slices(self, handle: Any) -> list[Any] | None:
        """Handles of the MIG slices of a device; None where MIG is off or unknown."""
        mode = self.ask("nvmlDeviceGetMigMode", handle)
        if mode is None or mode[0] != 1:
            return None
        most = self.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
        found = (self.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, at) for at in range(most))
        return [one for one in found if one is not None]  # places may be empty


@contextlib.contextmanager
def open_nvml(module: Any = None) -> Iterator[Nvml]:
    """NVML, initialised, and shut down afterwards.

    Args:
        module: what to use as ``pynvml``; None imports it.

    Raises:
        NoNvml: no package, no driver, or a driver that refuses.
    """
    if module is None:
        try:
            import pynvml
        except ImportError:
            raise NoNvml(
                "NVIDIA GPUs cannot be listed because nvidia-ml-py is not installed; "
                "pip install 'hetsched[gpu]'."
            ) from None
        module = pynvml
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        raise NoNvml(
            f"No NVIDIA driver answers here ({error}); only CPU slots can run jobs."
        ) from None
    try:
        yield Nvml(module)
    finally:
        with contextlib.suppress(module.NVMLError):
            module.nvmlShutdown()
