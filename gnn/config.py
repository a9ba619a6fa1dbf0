"""NetworkConfig: the size of the network; light to import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkConfig:
    """Size of the network; it does not depend on the size of the instances.

    Attributes:
        hidden: width of job, machine and mode embeddings, a multiple of ``heads``.
        layers: rounds of message passing, at least 1.
        heads: attention heads.
    """

    hidden: int = 32
    layers: int = 2
    heads: int = 4

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "heads"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.hidden % self.heads:
            raise ValueError(
                f"hidden must be a multiple of heads, got {self.hidden} and {self.heads}"
            )
