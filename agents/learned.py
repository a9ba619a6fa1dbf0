"""LearnedPolicy: a trained network behind the signature that all policies share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hetsched.envs.features import observe
from hetsched.envs.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetsched.agents.policy import Policy
    from hetsched.envs.instance import Instance
    from hetsched.envs.simulator import State
    from hetsched.gnn.network import SchedulingNetwork


class LearnedPolicy:
    """Scores are the network's logits.

    Args:
        network: put into evaluation mode.
        name: how tables call it.
        temperature: at which the best of some tens of samples is best.
        keep: it is shown so many of each job's fastest modes (`problem_for`); None: all.
    """

    def __init__(
        self,
        network: SchedulingNetwork,
        name: str = "learned",
        temperature: float = 1.0,
        keep: int | None = None,
    ) -> None:
        self.network, self.name, self.temperature = network.eval(), name, temperature
        self.keep = keep
        network.keep_at_hand()

    def keeping(self, modes: int) -> LearnedPolicy:
        """The same policy, shown so many of each job's fastest modes: quicker on many machines.

        Raises:
            ValueError: fewer than one.
        """
        if modes < 1:
            raise ValueError(f"keep must be at least 1, got {modes}")
        return LearnedPolicy(self.network, f"{self.name}:keep={modes}", self.temperature, modes)

    @torch.inference_mode()
    def scores(self, state: State) -> Tensor:
        """(B, J * K + 1) float32, minus infinity at illegal actions."""
        return self.network.scores(observe(state))


def problem_for(policy: Policy | None, instances: Sequence[Instance], device: str) -> Problem:
    """The instances as a policy is to see them: all of it, or what a learned one keeps."""
    keep = policy.keep if isinstance(policy, LearnedPolicy) else None
    return Problem.from_instances(instances, keep_fastest=keep, device=device)
