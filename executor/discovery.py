"""The GPUs of this computer, found through NVML.

MIG slices are devices of their own and their GPU is none. `Discovery.machines` turns what was found
into machines for a queue.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hetsched.executor.discovery_health import Health, read_health
from hetsched.executor.discovery_names import type_name
from hetsched.executor.discovery_nvml import NoNvml, Nvml, open_nvml
from hetsched.executor.protocol import Machine


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a device, and its memory there in bytes (None: not told)."""

    pid: int
    memory: int | None


@dataclass(frozen=True)
class Device:
    """A GPU, or a MIG slice of one.

    Args:
        uuid: what CUDA_VISIBLE_DEVICES takes.
        type: a short name that equally fast devices share, such as ``h200`` or ``a100-80gb``.
        product: the driver's full name.
        index: the GPU's number in ``nvidia-smi``; a slice has its GPU's.
        memory, used: bytes; None: not told.
        profile: of a slice, such as ``1g.18gb``; empty for a whole GPU.
        health: of the GPU.
        processes: None: not told. In a container their numbers may be the host's.
    """

    uuid: str
    type: str
    product: str
    index: int
    memory: int | None = None
    used: int | None = None
    profile: str = ""
    health: Health = field(default_factory=Health)
    processes: tuple[GpuProcess, ...] | None = None


@dataclass(frozen=True)
class Discovery:
    """What was found.

    Args:
        devices: in the order of their numbers.
        driver: the driver's version; None where there is no driver.
        notes: sentences for people: why nothing was found, what was left out.
    """

    devices: tuple[Device, ...] = ()
    driver: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def usable(self) -> tuple[Device, ...]:
        """The devices that may get work."""
        return tuple(one for one in self.devices if one.health.verdict != "unusable")

    def machines(self, group: bool = False, cpu_slots: int = 0) -> tuple[Machine, ...]:
        """Machines for a queue: the usable devices, then a CPU machine if asked for.

        Args:
            group: the GPUs of one type become one machine, so that a job can take several. Slices
                stay alone: a process can use only one.
            cpu_slots: slots of a machine ``cpu``; 0: none.
        """
        groups: dict[str, list[Device]] = {}
        for device in self.usable:
            alone = device.profile or not group
            groups.setdefault(device.uuid if alone else device.type, []).append(device)
        made: list[Machine] = []
        numbers: Counter[str] = Counter()
        for members in groups.values():
            kind = members[0].type
            name = f"{kind}-{numbers[kind]}"
            numbers[kind] += 1
            uuids = tuple(one.uuid for one in members)
            memory = min((one.memory for one in members if one.memory), default=None)
            made.append(Machine(name, kind, "gpu", uuids, capacity=len(uuids), memory=memory))
        if cpu_slots:
            made.append(Machine("cpu", capacity=cpu_slots))
        return tuple(made)


def discover(nvml: Any = None, visible: str | None = None) -> Discovery:
    """The GPUs of this computer; never fails for want of a driver, and starts no CUDA.

    Args:
        nvml: used instead of ``pynvml``.
        visible: this process's CUDA_VISIBLE_DEVICES; None: all. Jobs are given UUIDs, so without
            it they could reach GPUs that a batch system gave to somebody else.
    """
    try:
        with open_nvml(nvml) as opened:
            return _discover(opened, visible)
    except NoNvml as reason:
        return Discovery(notes=(str(reason),))


def _discover(nvml: Nvml, visible: str | None) -> Discovery:
    found: list[Device] = []
    notes: list[str] = []
    for index, handle, error in nvml.devices():
        if handle is None:
            notes.append(f"GPU {index} is left out because it does not answer ({error}).")
            continue
        health = read_health(nvml, handle)
        product = nvml.text("nvmlDeviceGetName", handle) or "unknown GPU"
        slices = nvml.slices(handle)
        if slices is None:
            found.append(_device(nvml, handle, index, product, "", health))
            continue
        found += [_device(nvml, one, index, product, _profile(nvml, one), health) for one in slices]
        if not slices:
            notes.append(f"GPU {index} is left out: MIG is on and it has no slice.")
    shown = found if visible is None else _visible(found, visible)
    if len(shown) < len(found):
        notes.append(
            f"CUDA_VISIBLE_DEVICES={visible!r} hides {len(found) - len(shown)} of "
            f"{len(found)} devices."
        )
    for device in shown:
        if device.health.verdict == "unusable":
            why = ", ".join(device.health.problems)
            notes.append(f"GPU {device.index} ({device.uuid}) gets no work: {why}.")
    if not found and not notes:
        notes.append("The NVIDIA driver works but sees no GPU.")
    return Discovery(tuple(shown), nvml.text("nvmlSystemGetDriverVersion"), tuple(notes))


def _device(
    nvml: Nvml, handle: Any, index: int, product: str, profile: str, health: Health
) -> Device:
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    processes = nvml.ask("nvmlDeviceGetComputeRunningProcesses", handle)
    if profile:
        product = f"{product} MIG {profile}"
    return Device(
        # Without a UUID the number has to do; CUDA_DEVICE_ORDER makes it the same one.
        uuid=nvml.text("nvmlDeviceGetUUID", handle) or str(index),
        type=type_name(product),
        product=product,
        index=index,
        memory=None if memory is None else int(memory.total),
        used=None if memory is None else int(memory.used),
        profile=profile,
        health=health,
        processes=None
        if processes is None
        else tuple(GpuProcess(int(one.pid), one.usedGpuMemory) for one in processes),
    )


def _profile(nvml: Nvml, handle: Any) -> str:
    """A slice's profile: the driver writes it into the name; else its parts are put together."""
    name = nvml.text("nvmlDeviceGetName", handle) or ""
    if " MIG " in name:
        return name.partition(" MIG ")[2]
    parts = nvml.ask("nvmlDeviceGetAttributes", handle)
    if parts is None:
        return "slice"
    return f"{parts.gpuInstanceSliceCount}g.{math.ceil(parts.memorySizeMB / 1024)}gb"


def _visible(devices: list[Device], visible: str) -> list[Device]:
    """What CUDA would show: numbers or beginnings of UUIDs, up to the first that matches none."""
    shown: list[Device] = []
    for word in (word.strip() for word in visible.split(",")):
        matching = [
            one
            for one in devices
            if (one.index == int(word) if word.isdecimal() else word and one.uuid.startswith(word))
        ]
        if not matching:
            break
        shown += [one for one in matching if one not in shown]
    return shown
