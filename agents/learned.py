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
        together: of the jobs left in a plan, the share that one look at a state decides about, at
            least one of them, each on another machine; 0: one by one, as always in dispatch.

    Raises:
        ValueError: it keeps no mode, or ``together`` is not between 0 and 1.
    """

    def __init__(
        self,
        network: SchedulingNetwork,
        name: str = "learned",
        temperature: float = 1.0,
        keep: int | None = None,
        together: float = 0.0,
    ) -> None:
        if keep is not None and keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        if not 0 <= together <= 1:
            raise ValueError(f"together is a share of the jobs, from 0 to 1, got {together:g}")
        self.network, self.name, self.temperature = network.eval(), name, temperature
        self.keep, self.together = keep, together
        network.keep_at_hand()

    def quicker(self, name: str, keep: int | None = None, together: float = 0.0) -> LearnedPolicy:
        """The same policy, which sees or looks less; arguments and errors are the class's."""
        return LearnedPolicy(self.network, name, self.temperature, keep, together)

    @torch.inference_mode()
    def scores(self, state: State) -> Tensor:
        """(B, J * K + 1) float32, minus infinity at illegal actions."""
        return self.network.scores(observe(state))


def problem_for(policy: Policy, instances: Sequence[Instance], device: str) -> Problem:
    """The instances as a policy is to see them: all of it, or what a learned one keeps."""
    keep = policy.keep if isinstance(policy, LearnedPolicy) else None
    return Problem.from_instances(instances, keep_fastest=keep, device=device)
