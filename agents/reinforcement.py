"""The second stage of training: PPO on many rollouts side by side, from where the first ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hetsched.agents.ppo import make_ppo, network_of, on_rollout_start
from hetsched.agents.teachers import annealing_teacher
from hetsched.agents.unit_cost import rule_cost
from hetsched.envs.observation import Extent
from hetsched.envs.problem import Problem
from hetsched.envs.vector import VectorEnvironment

if TYPE_CHECKING:
    from hetsched.agents.recipe import TrainConfig
    from hetsched.envs.scenarios import Scenario
    from hetsched.gnn.network import SchedulingNetwork

SAMPLED = 64  # instances of each size that the padding is measured on


class Reinforcement:
    """PPO, with a word to the caller after every rollout that has been learned from.

    Args:
        network: its weights are copied; ``self.network`` is the one that learns.
        scenario, sizes: what to draw; sizes in turn.
        config: of the run.
    """

    def __init__(
        self,
        network: SchedulingNetwork,
        scenario: Scenario,
        sizes: Sequence[tuple[int, int]],
        config: TrainConfig,
    ) -> None:
        self.config = config
        outlook = None
        if config.ppo.outlook_moves:
            outlook = partial(
                annealing_teacher,
                objective=scenario.objective,
                moves_per_job=config.ppo.outlook_moves,
                seed=config.seed,
            )
        extent = widest(scenario, sizes)
        self.environment = VectorEnvironment(
            scenario,
            config.groups,
            config.repeats,
            config.seed,
            sizes,
            reference=rule_cost(scenario),
            outlook=outlook,
            device=config.device,
            extent=extent,
        )
        self.model = make_ppo(
            self.environment, extent, config.ppo, config.network, config.seed, config.device
        )
        self.network = network_of(self.model)
        self.network.load_state_dict(network.state_dict())
        self._random: Tensor | None = None  # of torch, where a saved stage goes on

    @property
    def decisions(self) -> int:
        """Taken so far, over all rows."""
        return self.model.num_timesteps

    @property
    def rollout_size(self) -> int:
        """Decisions between two updates."""
        return self.environment.batch_size * self.config.ppo.n_steps

    def learn(self, after_round: Callable[[dict[str, float]], None]) -> None:
        """Take the decisions that remain; ``after_round`` is called with metrics after each update.

        At that moment :meth:`state_dict` is all that the stage goes on from.
        """
        remaining = self.config.timesteps - self.decisions
        if remaining <= 0:
            return
        first = True

        def before_rollout() -> None:
            nonlocal first
            if not first:
                after_round(self._metrics())
            elif self._random is not None:
                torch.set_rng_state(self._random)
            first = False

        self.model.learn(
            remaining,
            callback=on_rollout_start(before_rollout),
            log_interval=None,  # type: ignore[arg-type]  # its default is int, its use allows None
            reset_num_timesteps=self._random is None,
        )
        after_round(self._metrics())

    def state_dict(self) -> dict[str, Any]:
        """Where the stage stands, without the network; torch's random state is the caller's."""
        model = self.model
        return {
            "optimizer": model.policy.optimizer.state_dict(),
            "num_timesteps": model.num_timesteps,
            "updates": model._n_updates,
            "environment": self.environment.state_dict(),
            "episode_starts": torch.from_numpy(np.array(model._last_episode_starts)),
        }

    def load_state_dict(self, saved: dict[str, Any], random: Tensor) -> None:
        """Return to where another stage of the same arguments stood, torch's random state too."""
        model = self.model
        model.policy.optimizer.load_state_dict(saved["optimizer"])
        model.num_timesteps, model._n_updates = saved["num_timesteps"], saved["updates"]
        model._last_obs = model.env.resume(saved["environment"])  # type: ignore[union-attr]
        model._last_episode_starts = saved["episode_starts"].numpy()
        self._random = random

    def _metrics(self) -> dict[str, float]:
        buffer: Any = self.model.rollout_buffer
        logged = self.model.logger.name_to_value
        names = {
            "train/entropy_loss": "ppo/entropy",
            "train/value_loss": "ppo/value_loss",
            "train/policy_gradient_loss": "ppo/policy_loss",
            "train/approx_kl": "ppo/kl",
            "train/clip_fraction": "ppo/clip_fraction",
            "train/explained_variance": "ppo/explained_variance",
            "train/learning_rate": "ppo/learning_rate",
        }
        found = {short: float(logged[name]) for name, short in names.items() if name in logged}
        if "ppo/entropy" in found:
            found["ppo/entropy"] = -found["ppo/entropy"]
        return {**found, "ppo/reward": buffer.mean_reward}


def widest(scenario: Scenario, sizes: Sequence[tuple[int, int]]) -> Extent:
    """An extent that holds all or almost all instances of the scenario at these sizes."""
    rng = np.random.default_rng(0)
    extents = [
        Extent.of(Problem.from_instances([scenario.generate(rng, *size) for _ in range(SAMPLED)]))
        for size in dict.fromkeys(sizes)
    ]
    return Extent.around(extents)
