"""``dispatch.py machines``: the GPUs of this computer, and as machines of a queue."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hetsched.cli import UserError, user_input

if TYPE_CHECKING:
    from rich.console import Console

    from hetsched.executor.discovery import Device, Discovery
    from hetsched.executor.protocol import Machine


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="dispatch.py machines",
        description="Show the NVIDIA GPUs of this computer. Nothing is started on them.",
        epilog="--yaml > machines.yaml makes a file for --machines, or a part of a queue.",
    )
    parser.add_argument(
        "--machines",
        metavar="SPEC",
        help="instead of what is found: a YAML file or NAME:TYPE@DEVICE*SLOTS,..., as for a queue; "
        "devices that are not on this computer are pointed out",
    )
    parser.add_argument(
        "--group",
        action="store_true",
        help="GPUs of one type as one machine, so that a job may take several of them",
    )
    parser.add_argument(
        "--cpu", metavar="SLOTS", type=int, default=0, help="add a machine of so many CPU slots"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="everything that is known, as JSON")
    form.add_argument("--yaml", action="store_true", help="the machines section of a queue")
    options = parser.parse_args(arguments)
    if options.cpu < 0:
        parser.error(f"--cpu is {options.cpu}; give 0 or more slots")
    return options


def main(arguments: Sequence[str], nvml: Any = None) -> int:
    """Show what is there; returns 0, also when there is no GPU.

    Args:
        arguments: without the command's name.
        nvml: used instead of ``pynvml``.

    Raises:
        UserError: a mistake in ``--machines``.
    """
    options = parse(arguments)
    from hetsched.executor.discovery import discover

    found = discover(nvml, os.environ.get("CUDA_VISIBLE_DEVICES"))
    machines = found.machines(options.group, options.cpu)
    notes = list(found.notes)
    if options.machines is not None:
        from hetsched.executor.machine_specs import parse_machines

        with user_input():
            machines = parse_machines(options.machines)
        if options.cpu or options.group:
            raise UserError("--machines says all machines; leave out --group and --cpu")
        notes += _absent(machines, found)
    if options.json:
        report = {
            "driver": found.driver,
            "devices": [_device(one) for one in found.devices],
            "machines": [entry(machine) for machine in machines],
            "notes": notes,
        }
        print(json.dumps(report, indent=2))
    elif options.yaml:
        for note in notes:
            print(note, file=sys.stderr)
        print(to_yaml(machines, found), end="")
    else:
        from rich.console import Console

        # Into a file or a pipe: no line broken, whatever the terminal's width.
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
        _table(console, found, machines, given=options.machines is not None)
        for note in notes:
            console.print(note, markup=False)
    return 0


def entry(machine: Machine) -> dict[str, Any]:
    """A machine as a queue's YAML has it."""
    said: dict[str, Any] = {"name": machine.name, "type": machine.type}
    if machine.kind == "cpu" or len(machine.devices) == 1 < machine.capacity:
        said["slots"] = machine.capacity
    if len(machine.devices) == 1:
        said["device"] = machine.devices[0]
    elif machine.devices:
        said["devices"] = list(machine.devices)
    if machine.memory is not None:
        said["memory"] = _size(machine.memory)
    return said


def to_yaml(machines: Sequence[Machine], found: Discovery) -> str:
    """The ``machines:`` section, a line each with the product in a comment."""
    import yaml

    products = {one.uuid: one for one in found.devices}
    lines = ["machines:" if machines else "machines: []"]
    for machine in machines:
        text = yaml.safe_dump(
            entry(machine), default_flow_style=True, sort_keys=False, width=10**6
        ).strip()
        device = products.get(machine.devices[0]) if machine.devices else None
        comment = f"  # {device.product}" if device else ""
        lines.append(f"  - {text}{comment}")
    return "\n".join(lines) + "\n"


def _absent(machines: Sequence[Machine], found: Discovery) -> list[str]:
    """A sentence per machine of ours whose device is not here."""
    here = {str(one.index) for one in found.devices} | {one.uuid for one in found.devices}
    return [
        f"Machine {machine.name!r}: device {device} is not on this computer."
        for machine in machines
        for device in machine.devices
        if device not in here
    ]


def _device(device: Device) -> dict[str, Any]:
    said = dataclasses.asdict(device)
    said["health"]["verdict"] = device.health.verdict
    said["health"]["problems"] = list(device.health.problems)
    return said


def _table(console: Console, found: Discovery, machines: Sequence[Machine], given: bool) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    if found.devices:
        table = Table(box=box.SIMPLE_HEAD, title=f"GPUs (driver {found.driver or 'unknown'})")
        for column in ("nr", "type", "product", "memory", "in use", "health", "processes", "UUID"):
            table.add_column(column, justify="right" if column in ("nr", "memory") else "left")
        for one in found.devices:
            table.add_row(
                str(one.index),
                escape(one.type),
                escape(one.product),
                _size(one.memory),
                _size(one.used),
                ", ".join((one.health.verdict, *one.health.problems)),
                "unknown"
                if one.processes is None
                else ", ".join(f"{p.pid} ({_size(p.memory)})" for p in one.processes) or "none",
                escape(one.uuid),
            )
        console.print(table)
    if machines and (given or not found.devices):
        table = Table(box=box.SIMPLE_HEAD, title="Machines")
        for column in ("machine", "type", "slots", "devices"):
            table.add_column(column, justify="right" if column == "slots" else "left")
        for machine in machines:
            devices = ", ".join(machine.devices) or "no GPU"
            table.add_row(
                escape(machine.name), escape(machine.type), str(machine.capacity), escape(devices)
            )
        console.print(table)


def _size(memory: float | None) -> str:
    return "unknown" if memory is None else f"{memory / 2**30:.1f} GiB"
