"""The size of the network."""

from __future__ import annotations

import dataclasses

import pytest

from hetsched.gnn.config import NetworkConfig


@pytest.mark.parametrize("name", ["hidden", "layers", "heads"])
@pytest.mark.parametrize("value", [0, -4, 8.0, "8", None])
def test_a_size_that_is_no_positive_whole_number_is_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be a whole number of at least 1, got "):
        NetworkConfig(**{name: value})  # type: ignore[arg-type]


def test_hidden_must_be_a_multiple_of_heads() -> None:
    with pytest.raises(ValueError, match="hidden must be a multiple of heads, got 30 and 4"):
        NetworkConfig(hidden=30, heads=4)
    assert NetworkConfig(hidden=30, heads=5).hidden == 30


def test_a_configuration_is_plain_data_that_comes_back_equal() -> None:
    config = NetworkConfig(hidden=16, layers=1, heads=2)
    assert NetworkConfig(**dataclasses.asdict(config)) == config
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.hidden = 8  # type: ignore[misc]
