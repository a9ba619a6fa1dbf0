"""The health of a GPU, as far as NVML tells.

Past Xid errors cannot be asked for: NVML announces them to listeners as they occur. Their outcome
can: newer drivers say what must be done to the GPU (the recovery action), and that is what counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from hetsched.executor.discovery_nvml import Nvml

Verdict = Literal["ok", "suspect", "unusable", "unknown"]

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h). Idle clocks, fixed application clocks
# and sync boost are no trouble and are left out.
CLOCK_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
SLOWED = frozenset(CLOCK_REASONS.values()) - {"power cap"}  # a cap under full load is normal


@dataclass(frozen=True)
class Health:
    """What is known of a GPU's health; None: the driver does not say.

    Args:
        recovery: what must be done to the GPU before it works again: ``none``, ``gpu reset``, ...
        uncorrected: uncorrected memory errors since the driver was loaded.
        uncorrected_ever: the same in the GPU's life.
        retired: memory pages or rows taken out of use because of uncorrected errors.
        pending: a page or row waits for a reset to be taken out of use.
        remap_failed: a row could not be replaced; NVIDIA exchanges such GPUs.
        slowdown: reasons for which clocks are held down at the moment.
    """

    recovery: str | None = None
    uncorrected: int | None = None
    uncorrected_ever: int | None = None
    retired: int | None = None
    pending: bool | None = None
    remap_failed: bool | None = None
    slowdown: tuple[str, ...] | None = None

    @property
    def verdict(self) -> Verdict:
        """``unusable`` gets no work; ``suspect`` still runs; ``unknown``: nothing was told."""
        if self.fatal:
            return "unusable"
        if self.uncorrected or self.pending or SLOWED & set(self.slowdown or ()):
            return "suspect"
        known = (self.recovery, self.uncorrected, self.retired, self.pending)
        return "unknown" if all(one is None for one in known) else "ok"

    @property
    def fatal(self) -> tuple[str, ...]:
        """One phrase per reason to call it unusable."""
        found = []
        if self.recovery not in (None, "none"):
            found.append(f"needs {self.recovery}")
        if self.remap_failed:
            found.append("row remapping failed")
        return tuple(found)

    @property
    def problems(self) -> tuple[str, ...]:
        """One phrase per reason of the verdict; empty when there is none."""
        found = list(self.fatal)
        if self.uncorrected:
            found.append(f"{self.uncorrected} uncorrected memory errors")
        if self.pending:
            found.append("bad memory waits for a reset")
        found += sorted(SLOWED & set(self.slowdown or ()))
        return tuple(found)


def read_health(nvml: Nvml, handle: Any) -> Health:
    """Ask NVML for everything in `Health`."""
    kind = nvml.constant("NVML_MEMORY_ERROR_TYPE_UNCORRECTED")
    rows = nvml.ask("nvmlDeviceGetRemappedRows", handle)  # corrected, uncorrected, pending, failed
    pending = nvml.ask("nvmlDeviceGetRetiredPagesPendingStatus", handle)
    pages = nvml.ask(
        "nvmlDeviceGetRetiredPages",
        handle,
        nvml.constant("NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR"),
    )
    return Health(
        recovery=_recovery(nvml, handle),
        uncorrected=nvml.ask(
            "nvmlDeviceGetTotalEccErrors", handle, kind, nvml.constant("NVML_VOLATILE_ECC")
        ),
        uncorrected_ever=nvml.ask(
            "nvmlDeviceGetTotalEccErrors", handle, kind, nvml.constant("NVML_AGGREGATE_ECC")
        ),
        retired=int(rows[1]) if rows else None if pages is None else len(pages),
        pending=bool(rows[2]) if rows else None if pending is None else bool(pending),
        remap_failed=bool(rows[3]) if rows else None,
        slowdown=read_slowdown(nvml, handle),
    )


def read_slowdown(nvml: Nvml, handle: Any) -> tuple[str, ...] | None:
    """Why the GPU's clocks are held down at the moment; None: the driver does not say."""
    bits = nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if bits is None:  # the function's name until driver 535
        bits = nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    if bits is None:
        return None
    return tuple(name for bit, name in CLOCK_REASONS.items() if bits & bit)


def _recovery(nvml: Nvml, handle: Any) -> str | None:
    """The recovery action in words."""
    action = nvml.field(handle, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION")
    if action is None:
        return None
    for word in ("none", "gpu reset", "node reboot", "drain p2p", "drain and reset"):
        name = f"NVML_GPU_RECOVERY_ACTION_{word.upper().replace(' ', '_')}"
        if nvml.constant(name) == action:
            return word
    return "none" if action == 0 else f"recovery action {action}"
