"""What a Ray cluster offers and who takes what: without Ray."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hetsched.cli import UserError
from hetsched.executor import ray_cluster
from hetsched.executor.commands.run import main
from hetsched.executor.protocol import Machine
from hetsched.executor.ray_cluster import (
    Offer,
    Place,
    RayUnavailable,
    describe,
    find_place,
    machines_of,
    offers_of,
)


def node(name: str, alive: bool = True, **resources: float) -> dict[str, Any]:
    named = {key.replace("__", ":"): value for key, value in resources.items()}
    return {
        "NodeID": f"id of {name}",
        "NodeName": name,
        "NodeManagerAddress": "10.0.0.1",
        "Alive": alive,
        "Resources": {"memory": 1e9, f"node:{name}": 1.0, **named},
    }


def test_a_node_s_custom_resource_names_the_type_of_its_gpus() -> None:
    assert offers_of([node("n", GPU=2.0, machine__a100=2.0, accelerator_type__G=1.0)]) == [
        Offer("id of n", "n", "a100", "gpu", 2, "machine:a100")
    ]


def test_without_one_the_type_is_what_ray_has_found() -> None:
    nodes = [node("n", GPU=1.0, accelerator_type__H100=1.0), node("o", GPU=1.0)]
    assert [offer.type for offer in offers_of(nodes)] == ["gpu", "h100"]


def test_cpus_are_offered_too_and_dead_nodes_offer_nothing() -> None:
    nodes = [
        node("n", CPU=8.0),
        node("gone", alive=False, CPU=8.0),
        node("fast", machine__x=1, CPU=2),
    ]
    assert offers_of(nodes) == [
        Offer("id of n", "n", "cpu", "cpu", 8),
        Offer("id of fast", "fast", "x", "cpu", 2, "machine:x"),
    ]


def test_gpus_of_two_types_on_one_node_are_refused() -> None:
    with pytest.raises(ValueError, match="node 'n': offers machine:a and machine:b; start one"):
        offers_of([node("n", GPU=2.0, machine__a=1.0, machine__b=1.0)])


def test_the_order_of_machines_does_not_depend_on_the_order_of_nodes() -> None:
    nodes = [
        node("b", GPU=1.0, machine__v100=1.0, CPU=4.0),
        node("a", GPU=2.0, machine__v100=2.0),
        node("c", GPU=1.0, machine__a100=1.0),
    ]
    names = ["a100-0", "v100-0", "v100-1", "v100-2"]
    for order in (nodes, nodes[::-1]):
        machines = machines_of(offers_of(order))
        assert [machine.name for machine in machines] == names
        assert all(machine.kind == "gpu" and machine.capacity == 1 for machine in machines)


def test_a_cluster_without_gpus_has_a_machine_per_node_with_a_slot_per_cpu() -> None:
    machines = machines_of(offers_of([node("a", CPU=4.0), node("b", CPU=2.0)]))
    assert machines == (Machine("cpu-0", capacity=4), Machine("cpu-1", capacity=2))
    assert machines_of([]) == ()


def test_machines_share_a_node_as_far_as_it_goes() -> None:
    offers = offers_of([node("n", GPU=3.0, machine__t=3.0, CPU=2.0)])
    pair = Machine("pair", "t", "gpu", ("0", "1"), 2)
    single = Machine("single", "t", "gpu", ("0",))
    first = find_place(pair, offers, [])
    assert first == Place("id of n", 0, 2, {"machine:t": 2.0})
    taken = [(pair, first)]
    assert find_place(pair, offers, taken) is None  # one GPU is left
    assert find_place(single, offers, taken) == Place("id of n", 0, 1, {"machine:t": 1.0})
    assert find_place(Machine("c", capacity=2), offers, taken) == Place("id of n", 2, 0, {})
    assert find_place(Machine("c", capacity=3), offers, []) is None
    assert find_place(Machine("x", "other", "gpu", ("0",)), offers, []) is None


def test_a_shared_gpu_is_one_gpu() -> None:
    offers = offers_of([node("n", GPU=1.0, machine__t=1.0)])
    shared = Machine("shared", "t", "gpu", ("0",), capacity=4)
    assert find_place(shared, offers, []) == Place("id of n", 0, 1, {"machine:t": 1.0})


def test_an_offer_is_described_for_people() -> None:
    offers = offers_of([node("a", GPU=2.0, machine__t=2.0), node("b", GPU=1.0, machine__t=1.0)])
    assert describe(offers) == "3 t GPUs"
    assert describe([]) == "none"


def test_without_ray_one_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RayUnavailable, match=r"not installed; run pip install 'hetsched\[ray\]'"):
        ray_cluster.connect(None)


def test_dispatch_says_so_in_one_sentence_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.chdir(tmp_path)
    queue = tmp_path / "queue.yaml"
    queue.write_text("machines: [{name: m}]\njobs: [{name: j, command: x, durations: {m: 1}}]\n")
    arguments = [str(queue), "--executor", "ray", "--policy", "ect-wait"]
    for where in ([], ["--ray-address", "auto"]):
        with pytest.raises(UserError, match="--executor ray: Ray is not installed"):
            main([*arguments, *where])


class FakeRay:
    def __init__(self, fails: Exception | None = None) -> None:
        self.fails, self.calls, self.connected = fails, [], False

    def is_initialized(self) -> bool:
        return self.connected

    def init(self, address: str, **options: object) -> None:
        self.calls.append((address, options))
        signal.signal(signal.SIGTERM, lambda *_: None)  # as Ray does
        if self.fails:
            raise self.fails


@pytest.mark.parametrize("error", [ConnectionError, Exception])
def test_a_cluster_that_does_not_answer_is_one_sentence(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay(error("Nobody.\nat home")))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with pytest.raises(RayUnavailable, match=r"^no Ray cluster at 10.0.0.1:6379: Nobody\.$"):
        ray_cluster.connect("10.0.0.1:6379")


def test_connecting_leaves_the_signals_alone_and_happens_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    before = signal.getsignal(signal.SIGTERM)
    assert ray_cluster.connect(None)
    assert signal.getsignal(signal.SIGTERM) is before
    ((address, options),) = fake.calls
    assert address == "local"  # also where RAY_ADDRESS names another
    assert options["object_store_memory"] == ray_cluster.OWN_STORE_BYTES
    fake.connected = True
    assert not ray_cluster.connect(None)
    assert len(fake.calls) == 1


def test_an_existing_cluster_is_not_told_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray_cluster.connect("auto")
    assert "object_store_memory" not in fake.calls[0][1]


def test_a_cluster_with_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(nodes=lambda: []))
    with pytest.raises(RayUnavailable, match="neither GPUs nor CPUs"):
        ray_cluster.cluster_machines()


def test_neither_torch_nor_ray_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, hetsched.executor.ray_executor, hetsched.executor.ray_worker\n"
        "print(sorted({'torch', 'ray'} & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"
