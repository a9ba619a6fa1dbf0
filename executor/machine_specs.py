"""Reads machines: the ``machines`` section of a queue's YAML, or ``--machines SPEC``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetsched.executor.protocol import Machine
from hetsched.executor.queue import QueueError, check_names
from hetsched.executor.yaml_fields import (
    as_bytes,
    as_mapping,
    as_text,
    as_whole,
    kind_of,
    only_known_keys,
    read_yaml,
)

MACHINE_KEYS = {"name", "type", "kind", "device", "devices", "slots", "memory"}


def parse_machines(spec: str) -> tuple[Machine, ...]:
    """The machines that ``--machines`` names: a YAML file, or ``NAME[:TYPE]@DEVICE[*SLOTS]``, ...

    ``found`` are the GPUs of this computer, a machine each. DEVICE is ``cpu``, a GPU's UUID or its
    index; TYPE is the name if left out. For example ``big:h200@0,small:l40s@1,cpu@cpu*2``.

    Raises:
        QueueError: naming the part that cannot be read.
    """
    if spec.endswith((".yaml", ".yml")):
        data = read_yaml(Path(spec))
        return read_machines(data.get("machines") if isinstance(data, Mapping) else data, spec)
    if spec == "found":
        return _found()
    machines = []
    for part in (part.strip() for part in spec.split(",")):
        match = re.fullmatch(r"([^:@*\s]+)(?::([^:@*\s]+))?@([^:@*\s]+)(?:\*(\d+))?", part)
        if match is None:
            raise QueueError(
                f"--machines: {part!r} cannot be read; write NAME:TYPE@DEVICE*SLOTS, "
                "for example gpu0:v100@0 or cpu@cpu*2, or name a .yaml file."
            )
        name, kind, device, slots = match.groups()
        entry = {"name": name, "type": kind or name, "slots": int(slots or 1)}
        if device != "cpu":
            entry["device"] = device
        machines.append(_machine(entry, f"--machines: {part!r}"))
    return tuple(machines)


def _found() -> tuple[Machine, ...]:
    from hetsched.executor.discovery import discover

    found = discover(visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
    machines = found.machines()
    if not machines:
        raise QueueError(f"--machines found: there is no GPU to use. {' '.join(found.notes)}")
    return machines


def read_machines(entries: Any, who: str) -> tuple[Machine, ...]:
    """The machines in a YAML list.

    Raises:
        QueueError: naming the place, by `who` and position, and the key.
    """
    if not isinstance(entries, list):
        raise QueueError(f"{who}: give a list of machines, not {kind_of(entries)}.")
    machines = tuple(_machine(entry, f"{who}[{at}]") for at, entry in enumerate(entries))
    check_names(f"{who}: machine", (machine.name for machine in machines))
    return machines


def _machine(entry: Any, who: str) -> Machine:
    entry = as_mapping(entry, who)
    only_known_keys(entry, MACHINE_KEYS, who)
    if "name" not in entry:
        raise QueueError(f"{who}: name is missing; give every machine a name.")
    if "device" in entry and "devices" in entry:
        raise QueueError(f"{who}: device and devices exclude each other; keep one.")
    devices = entry.get("devices", [entry["device"]] if "device" in entry else [])
    if not isinstance(devices, list):
        raise QueueError(f"{who}: devices is {kind_of(devices)}; give a list.")
    kind = entry.get("kind", "gpu" if devices else "cpu")
    default = max(1, len(devices))
    try:
        return Machine(
            name=as_text(entry["name"], who, "name"),
            type=as_text(entry.get("type", kind), who, "type"),
            kind=kind,
            devices=tuple(as_text(device, who, "devices") for device in devices),
            capacity=as_whole(entry.get("slots", default), who, "slots"),
            memory=as_bytes(entry["memory"], who, "memory") if "memory" in entry else None,
        )
    except QueueError:
        raise
    except ValueError as error:
        raise QueueError(str(error)) from None
