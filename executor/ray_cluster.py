"""A Ray cluster: connecting to it, what it offers, and which of it a machine takes.

A node says what its GPUs are by a custom resource, ``machine:TYPE``, one per GPU::

    ray start --address HEAD:6379 --num-gpus 2 --resources '{"machine:a100": 2}'

Without one, the type is the one that Ray has found (``accelerator_type:A100`` becomes ``a100``).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hetsched.executor.protocol import Kind, Machine

TYPE_PREFIX = "machine:"
FOUND_PREFIX = "accelerator_type:"
OWN_STORE_BYTES = (
    80 * 2**20
)  # object store of a cluster of our own: next to nothing goes through it


class RayUnavailable(RuntimeError):
    """There is no Ray, no cluster, or no machine in it, in one sentence."""


@dataclass(frozen=True)
class Offer:
    """What one node can be asked for.

    Args:
        node: Ray's identity of the node; a node that comes back has a new one.
        host: the node's name, for people and for the order of machines.
        type: type of the machines.
        kind: ``gpu`` or ``cpu``.
        units: GPUs, or CPUs.
        resource: the custom resource of which a machine takes its share; None: there is none.
    """

    node: str
    host: str
    type: str
    kind: Kind
    units: int
    resource: str | None = None


@dataclass(frozen=True)
class Place:
    """Where a machine's actor goes: a node, and what it asks Ray for there."""

    node: str
    num_cpus: float
    num_gpus: float
    resources: Mapping[str, float]


def connect(address: str | None) -> bool:
    """Connect this process to a cluster, unless it is connected already.

    Args:
        address: of a running cluster; None: start one on this computer.

    Returns:
        Whether the connection is ours, to be ended by `disconnect`.

    Raises:
        RayUnavailable: Ray is not installed, or no cluster answers.
    """
    try:
        import ray
    except ImportError:
        raise RayUnavailable("Ray is not installed; run pip install 'hetsched[ray]'.") from None
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # reports to nobody unless asked to
    own: dict[str, Any] = (
        {} if address else {"include_dashboard": False, "object_store_memory": OWN_STORE_BYTES}
    )
    in_main = threading.current_thread() is threading.main_thread()
    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address or "local",
            log_to_driver=False,
            logging_level=logging.ERROR,
            **own,
        )
    except Exception as error:  # a node that starts too slowly is a bare Exception
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise RayUnavailable(f"no Ray cluster at {address or 'this computer'}: {reason}.") from None
    finally:
        if in_main:  # Ray takes the signal for itself; whoever had it before has it again
            signal.signal(signal.SIGTERM, on_terminate)
    return True


def disconnect() -> None:
    """End the connection, and the cluster if it is our own."""
    import ray

    ray.shutdown()


def cluster_offers() -> list[Offer]:
    """What the connected cluster offers now; see `offers_of`."""
    import ray

    return offers_of(ray.nodes())


def cluster_machines() -> tuple[Machine, ...]:
    """The machines of the connected cluster; see `machines_of`.

    Raises:
        RayUnavailable: it has none.
    """
    machines = machines_of(cluster_offers())
    if not machines:
        raise RayUnavailable("the Ray cluster has neither GPUs nor CPUs; start a node with some.")
    return machines


def offers_of(nodes: Iterable[Mapping[str, Any]]) -> list[Offer]:
    """What the living nodes offer, in an order that does not change from call to call.

    Args:
        nodes: as ``ray.nodes()`` returns them.

    Raises:
        ValueError: a node's GPUs are of more than one type: nobody could tell which one Ray gives.
    """
    offers = []
    for node in nodes:
        if not node["Alive"]:
            continue
        resources = node["Resources"]
        host = str(node.get("NodeName") or node["NodeManagerAddress"])
        named = sorted(name for name in resources if name.startswith(TYPE_PREFIX))
        found = sorted(name for name in resources if name.startswith(FOUND_PREFIX))
        if len(named) > 1:
            raise ValueError(
                f"node {host!r}: offers {' and '.join(named)}; start one Ray node per type, each "
                "with CUDA_VISIBLE_DEVICES set to its own GPUs."
            )
        resource = named[0] if named else None
        gpus, cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 0))
        if gpus:
            kind = resource or (found[0] if found else f"{FOUND_PREFIX}gpu")
            name = kind.split(":", 1)[1].lower()
            offers.append(Offer(node["NodeID"], host, name, "gpu", gpus, resource))
        if cpus:
            name = "cpu" if gpus or resource is None else resource.split(":", 1)[1].lower()
            own = None if gpus else resource
            offers.append(Offer(node["NodeID"], host, name, "cpu", cpus, own))
    return sorted(offers, key=lambda offer: (offer.type, offer.host, offer.node))


def machines_of(offers: Sequence[Offer]) -> tuple[Machine, ...]:
    """One machine per GPU; where there is no GPU at all, one per node with a slot per CPU."""
    gpus = [offer for offer in offers if offer.kind == "gpu"]
    numbers: Counter[str] = Counter()
    machines = []
    for offer in gpus or offers:
        for _ in range(offer.units if gpus else 1):
            name = f"{offer.type}-{numbers[offer.type]}"
            numbers[offer.type] += 1
            devices = ("0",) if gpus else ()
            capacity = 1 if gpus else offer.units
            machines.append(Machine(name, offer.type, offer.kind, devices, capacity))
    return tuple(machines)


def find_place(
    machine: Machine, offers: Sequence[Offer], taken: Sequence[tuple[Machine, Place]]
) -> Place | None:
    """The first node with room for a machine beside those that have their place.

    Args:
        machine: its type and kind are looked for. A GPU machine takes as many GPUs as it has
            devices (which ones, Ray decides), a CPU machine as many CPUs as it has slots.
        offers: as `offers_of` gives.
        taken: other machines and where they are.

    Returns:
        None: no living node has room.
    """
    wanted = _units(machine)
    for offer in offers:
        if (offer.type, offer.kind) != (machine.type, machine.kind):
            continue
        used = sum(
            _units(other)
            for other, place in taken
            if place.node == offer.node and other.kind == offer.kind
        )
        if wanted > offer.units - used:
            continue
        if machine.kind == "cpu":
            return Place(offer.node, wanted, 0, {})
        resources = {offer.resource: float(wanted)} if offer.resource else {}
        return Place(offer.node, 0, wanted, resources)
    return None


def describe(offers: Sequence[Offer]) -> str:
    """For messages: "2 a100 GPUs, 8 cpu CPUs"."""
    totals: Counter[tuple[str, str]] = Counter()
    for offer in offers:
        totals[offer.type, offer.kind.upper() + "s"] += offer.units
    return ", ".join(f"{count} {type_} {kind}" for (type_, kind), count in totals.items()) or "none"


def _units(machine: Machine) -> int:
    return len(machine.devices) if machine.kind == "gpu" else machine.capacity
