"""Machines, attempts, outcomes, occupancy; `test_conformance.py` is about the executors."""

from __future__ import annotations

import pytest

from hetsched.executor.protocol import Attempt, Machine, Occupancy, Outcome, after_preemption


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "machine: name is empty"),
        ({"name": "a", "type": ""}, "machine 'a': type is empty"),
        ({"name": "a", "kind": "tpu"}, "machine 'a': kind is 'tpu'"),
        ({"name": "a", "capacity": 0}, "machine 'a': slots is 0"),
        ({"name": "a", "devices": ("0",)}, "machine 'a': a cpu machine has no device"),
        ({"name": "a", "kind": "gpu"}, "machine 'a': 0 devices for 1 slots"),
        (
            {"name": "a", "kind": "gpu", "devices": ("0", "1"), "capacity": 3},
            "machine 'a': 2 devices for 3 slots",
        ),
        (
            {"name": "a", "kind": "gpu", "devices": ("0", "0"), "capacity": 2},
            "machine 'a': a device is listed twice",
        ),
    ],
)
def test_a_machine_that_makes_no_sense_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Machine(**fields)


def test_an_attempt_that_makes_no_sense_is_refused() -> None:
    for fields, message in (
        ({"job": ""}, "job is empty"),
        ({"number": 0}, "number must be at least 1"),
        ({"demand": 0}, "demand is 0"),
        ({"timeout": 0.0}, "timeout is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            Attempt(**{"job": "a", "machine": "m", **fields})  # type: ignore[arg-type]


def test_an_outcome_cannot_end_before_it_started() -> None:
    with pytest.raises(ValueError, match="is before started"):
        Outcome(Attempt("a", "m"), "done", started=2.0, ended=1.0)
    with pytest.raises(ValueError, match="status is 'fine'"):
        Outcome(Attempt("a", "m"), "fine", started=1.0, ended=1.0)  # type: ignore[arg-type]


def test_units_are_devices_of_their_own_or_shares_of_one() -> None:
    node = Machine("node", "v100", "gpu", ("a", "b", "c"), capacity=3)
    shared = Machine("shared", "v100", "gpu", ("a",), capacity=3)
    occupancy = Occupancy((node,))
    assert node.visible_devices(occupancy.take(Attempt("x", "node", demand=2))) == "a,b"
    assert node.visible_devices(occupancy.take(Attempt("y", "node"))) == "c"
    occupancy.release("x")
    assert node.visible_devices(occupancy.take(Attempt("z", "node"))) == "a"
    assert shared.visible_devices((1, 2)) == "a"
    assert Machine("cpu").visible_devices((0,)) == ""


def test_two_machines_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two have the same name"):
        Occupancy((Machine("a"), Machine("a")))


@pytest.mark.parametrize(
    ("code", "killed", "status", "reason"),
    [
        (0, False, "done", ""),
        (75, False, "preempted", "made to leave its machine; it has saved its state"),
        (-15, False, "preempted", "made to leave its machine; it did not say that it saved"),
        (1, False, "preempted", "made to leave its machine; it did not say that it saved"),
        (-9, True, "preempted", "made to leave its machine; it was killed after its grace"),
    ],
)
def test_what_a_preempted_command_returns_says_what_became_of_it(
    code: int, killed: bool, status: str, reason: str
) -> None:
    found = after_preemption(code, killed)
    assert found[0] == status
    assert found[1].startswith(reason)


def test_a_loss_without_an_exit_code_is_the_machine_s() -> None:
    attempt = Attempt("a", "m")
    assert Outcome(attempt, "lost", 0.0, 1.0).machine_failed
    assert not Outcome(attempt, "lost", 0.0, 1.0, exit_code=-9).machine_failed
    assert not Outcome(attempt, "cancelled", 0.0, 1.0).machine_failed
