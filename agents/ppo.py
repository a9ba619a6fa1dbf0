"""PPO through stable-baselines3, the only module that imports it.

What is ours: the observation is a padded graph, masks are applied to the logits inside the policy,
and the advantage of a decision is taken relative to the other rollouts of the same instance.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import DictRolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from hetsched.envs.observation import (
    Extent,
    arrays_from_graph,
    graph_from_tensors,
    observation_space,
)
from hetsched.gnn.network import SchedulingNetwork

if TYPE_CHECKING:
    from stable_baselines3.common.type_aliases import DictRolloutBufferSamples

    from hetsched.agents.configs import PPOConfig
    from hetsched.envs.graph import Graph
    from hetsched.envs.vector import VectorEnvironment
    from hetsched.gnn.config import NetworkConfig

Observation = dict[str, NDArray[Any]]


class GraphVecEnv(VecEnv):
    """stable-baselines3's view of a :class:`VectorEnvironment`; observations are padded graphs."""

    def __init__(self, environment: VectorEnvironment, extent: Extent) -> None:
        self.environment, self.extent = environment, extent
        self.render_mode = None
        self._actions: NDArray[np.int64]
        seen = dict(observation_space(extent))
        seen["when"] = spaces.Box(0.0, np.inf, (2,), np.float64)  # for the baseline only
        super().__init__(
            environment.batch_size, spaces.Dict(seen), spaces.Discrete(extent.num_actions)
        )

    def reset(self) -> Observation:
        return self._observation(self.environment.reset())

    def resume(self, saved: dict[str, Any]) -> Observation:
        """Go to where a saved environment stood."""
        return self._observation(self.environment.load_state_dict(saved))

    def _observation(self, graph: Graph) -> Observation:
        progress = self.environment.progress().cpu().numpy()  # (B,)
        when = np.stack([np.full_like(progress, self.environment.batch), progress], axis=1)
        return {**arrays_from_graph(graph, self.extent), "when": when}

    def step_async(self, actions: NDArray[np.int64]) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Observation, NDArray[Any], NDArray[Any], list[dict[str, Any]]]:
        actions = self.extent.to_problem(
            torch.from_numpy(self._actions).to(self.environment.device),
            self.environment.state.problem,
        )
        step = self.environment.step(actions)
        return (
            self._observation(step.graph),
            step.rewards.float().cpu().numpy(),
            step.done.cpu().numpy(),
            [{} for _ in range(self.num_envs)],
        )

    def close(self) -> None:
        pass

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self, attr_name, value)

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any
    ) -> list[Any]:
        raise AttributeError(f"rows of a GraphVecEnv have no method {method_name!r}")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class GraphPolicy(ActorCriticPolicy):
    """An actor-critic around :class:`SchedulingNetwork`; illegal actions have probability zero."""

    def __init__(
        self,
        *args: Any,
        extent: Extent,
        network: NetworkConfig | None = None,
        **kwargs: Any,
    ) -> None:
        self.extent, self.network_config = extent, network
        super().__init__(*args, **kwargs)

    def _build(self, lr_schedule: Any) -> None:
        self.network = SchedulingNetwork(self.network_config)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=lr_schedule(1), eps=1e-5)

    def _distribution(self, obs: Any) -> tuple[torch.distributions.Categorical, Tensor]:
        seen = {name: value for name, value in obs.items() if name != "when"}
        logits, values = self.network(graph_from_tensors(seen, self.extent))
        return torch.distributions.Categorical(logits=logits, validate_args=False), values

    def forward(self, obs: Any, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        distribution, values = self._distribution(obs)
        actions = distribution.logits.argmax(1) if deterministic else distribution.sample()
        return actions, values[:, None], distribution.log_prob(actions)

    def evaluate_actions(self, obs: Any, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        distribution, values = self._distribution(obs)
        logits, probabilities = distribution.logits, distribution.probs
        entropy = -(probabilities * logits.masked_fill(probabilities == 0, 0.0)).sum(1)
        return values[:, None], distribution.log_prob(actions.flatten()), entropy

    def predict_values(self, obs: Any) -> Tensor:
        return self._distribution(obs)[1][:, None]

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        return self.forward(observation, deterministic)[0]


class GroupBaselineBuffer(DictRolloutBuffer):
    """A rollout buffer whose advantages are relative to the rollouts of the same instance.

    Rows ``g * repeats .. (g + 1) * repeats - 1`` decide the same instance
    (:class:`VectorEnvironment`), so the mean of their advantages at the same moment is an error
    that the critic makes on what they have in common, arrivals to come included; it is subtracted.
    The same moment is the same clock in dispatch and the same number of decisions in a plan: a
    baseline that depends on the input (Mao et al., ICLR 2019).  Decisions of rows that were
    already done (WAIT is all they have) teach nothing and are left out of the minibatches.
    """

    def __init__(self, *args: Any, repeats: int = 1, **kwargs: Any) -> None:
        self.repeats = repeats
        super().__init__(*args, **kwargs)

    def compute_returns_and_advantage(self, last_values: Tensor, dones: NDArray[np.bool_]) -> None:
        super().compute_returns_and_advantage(last_values, dones)
        real = np.asarray(self.observations["job_mask"].any(-1))  # (T, B)
        if self.repeats > 1:
            when = np.asarray(self.observations["when"])  # (T, B, 2)
            mean = mean_of_peers(self.advantages, real, when, self.repeats)
            self.advantages = self.advantages - mean
        self.mean_reward = float(self.rewards.sum() / max(1, real.sum()))
        # Rows are flattened row by row, as swap_and_flatten does.
        self._real = np.flatnonzero(real.swapaxes(0, 1).reshape(-1))

    def get(  # type: ignore[override]
        self, batch_size: int | None = None
    ) -> Generator[DictRolloutBufferSamples, None, None]:
        if not self.generator_ready:
            for key, value in self.observations.items():
                self.observations[key] = self.swap_and_flatten(value)
            for name in ("actions", "values", "log_probs", "advantages", "returns"):
                setattr(self, name, self.swap_and_flatten(getattr(self, name)))
            self.generator_ready = True
        indices = self._real[torch.randperm(len(self._real)).numpy()]
        size = batch_size or len(indices)
        for begin in range(0, max(1, len(indices) - size // 2), size):  # no tiny last batch
            yield self._get_samples(indices[begin : begin + size])


def mean_of_peers(
    values: NDArray[np.float32], real: NDArray[np.bool_], when: NDArray[np.float64], repeats: int
) -> NDArray[np.float32]:
    """Mean over the rows of a group of their values at the same moment.

    Args:
        values: (T, B), one per decision.
        real: (T, B), decisions that count.
        when: (T, B, 2): batch of instances, and moment within it, both not decreasing along T.
        repeats: rows per group, side by side.

    Returns:
        (T, B): for each decision the mean over the latest decisions, at or before its moment, of
        all rows of its group that had something to decide then.
    """
    longest = float(when[..., 1].max()) + 1.0
    moment = when[..., 0] * longest + when[..., 1]  # (T, B), in the order of T
    total, number = np.zeros_like(values), np.zeros_like(values)
    for row in range(values.shape[1]):
        first = row - row % repeats
        for peer in range(first, first + repeats):
            at = np.searchsorted(moment[:, peer], moment[:, row], side="right") - 1  # (T,)
            same = (at >= 0) & (when[at, peer, 0] == when[:, row, 0]) & real[at, peer]
            total[:, row] += np.where(same, values[at, peer], 0.0)
            number[:, row] += same
    return np.divide(total, np.maximum(number, 1), dtype=np.float32)


def make_ppo(
    environment: VectorEnvironment,
    extent: Extent,
    config: PPOConfig,
    network: NetworkConfig,
    seed: int,
    device: str = "cpu",
) -> PPO:
    """A stable-baselines3 PPO ready to ``learn`` on the environment."""
    with warnings.catch_warnings():  # our buffer makes no truncated minibatch
        warnings.filterwarnings("ignore", message="You have specified a mini-batch size")
        model = PPO(
            GraphPolicy,
            GraphVecEnv(environment, extent),
            n_steps=config.n_steps,
            batch_size=config.batch_size,
            n_epochs=config.n_epochs,
            # The last rollout may overshoot the total, whereupon ``left`` is below zero.
            learning_rate=lambda left: config.learning_rate * (0.1 + 0.9 * max(0.0, left)),
            gamma=1.0,
            gae_lambda=config.gae_lambda,
            clip_range=config.clip_range,
            ent_coef=config.ent_coef,
            vf_coef=config.vf_coef,
            max_grad_norm=config.max_grad_norm,
            target_kl=config.target_kl,
            rollout_buffer_class=GroupBaselineBuffer,
            rollout_buffer_kwargs={"repeats": environment.repeats},
            policy_kwargs={"extent": extent, "network": network},
            seed=seed,
            device=device,
        )
    model.set_logger(Logger(folder=None, output_formats=[]))
    return model


def on_rollout_start(action: Callable[[], None]) -> BaseCallback:
    """A callback that acts before every rollout, when all earlier ones have been learned from."""

    class OnRolloutStart(BaseCallback):
        def _on_rollout_start(self) -> None:
            action()

        def _on_step(self) -> bool:
            return True

    return OnRolloutStart()


def network_of(model: PPO) -> SchedulingNetwork:
    """The network inside a model."""
    policy = model.policy
    assert isinstance(policy, GraphPolicy)
    return policy.network
