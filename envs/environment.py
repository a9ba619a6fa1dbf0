"""SchedulingEnv: one instance at a time, as a Gymnasium environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from hetsched.envs.drawing import draw_within, extent_of
from hetsched.envs.features import observe
from hetsched.envs.observation import arrays_from_graph, observation_space
from hetsched.envs.problem import Problem
from hetsched.envs.scenarios import get_scenario
from hetsched.envs.simulator import State

if TYPE_CHECKING:
    from hetsched.envs.schedule import Schedule

Observation = dict[str, Any]  # of arrays


class LegalActions(spaces.Discrete):
    """A Discrete space whose samples are legal where the environment stands now.

    Every integer below ``n`` belongs to the space; ``sample`` without a mask draws among the legal
    ones, so that agents that act at random, and environment checkers, work as they are.
    """

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.legal = np.ones(n, np.int8)

    def sample(
        self, mask: NDArray[Any] | None = None, probability: NDArray[Any] | None = None
    ) -> np.int64:
        if mask is None and probability is None:
            mask = self.legal
        return super().sample(mask=mask, probability=probability)


class SchedulingEnv(gymnasium.Env[Observation, Any]):
    """Place jobs on unrelated machines, one decision after the other.

    ## Description
    Every job can run in one or more *modes*: a machine, a duration there, and how many of the
    machine's units it takes.  An action starts one job in one of its modes, or waits.  In a *plan*
    all is known and a job may be put behind what its machine already has; in *dispatch* a clock
    runs, jobs appear at their release times, and only machines with room now can be used.  The
    scenario says which of the two it is, what the objective is and how instances are drawn.

    ## Observation space
    A Dict of one graph: J jobs, M machines, K mode slots per job (slot k is machine k unless a job
    has several modes on one machine), A precedence arcs, padded to the largest instance.

    | key | shape | type | meaning |
    | --- | --- | --- | --- |
    | `jobs` | (J, 12) | float32 | features of visible jobs, `hetsched.envs.graph.JOB_FEATURES` |
    | `machines` | (M, 13) | float32 | features of machines, `MACHINE_FEATURES` |
    | `modes` | (J, K, 17) | float32 | features of the modes of visible jobs, `MODE_FEATURES` |
    | `overall` | (9,) | float32 | features of the whole, `GLOBAL_FEATURES` |
    | `job_mask`, `machine_mask`, `mode_mask` | (J,), (M,), (J, K) | 0/1 | what exists |
    | `legal` | (J * K + 1,) | 0/1 | actions that may be taken |
    | `mode_machines` | (J, K) | int64 | machine of a slot; only where slots are not machines |
    | `arcs`, `arc_mask` | (A, 2), (A,) | int64, 0/1 | job before job; only with precedence |

    Times are shifted to now, divided by the mean fastest duration of the visible jobs and pass
    through a signed logarithm: multiplying all times by 1000 changes no observation.

    ## Action space
    Discrete(J * K + 1): `job * K + slot` starts the job in that mode, `J * K` is WAIT (until the
    next release or completion; dispatch only, while some machine is busy).  `legal` of the
    observation, `info["action_mask"]` and `action_masks()` say what may be chosen;
    `action_space.sample()` draws a legal action.  An illegal action is replaced by the first legal
    one and `info["illegal_action"]` is true; with `strict=True` it raises ValueError instead and
    changes nothing.

    ## Reward
    The decrease of a lower bound of the objective (`hetsched.envs.bounds`), at most zero.  The
    bound meets the cost at the end: an episode's rewards add up to `initial bound - cost` exactly,
    with `info["initial_bound"]` given by `reset`.  Use gamma = 1.

    ## Starting state
    A fresh instance of the scenario, or `options={"instance": Instance}`.  The rare one that is
    larger than the space, where sizes vary, is drawn again.

    ## Episode end
    Terminates once every job is scheduled; never truncates.  The last `info` holds `cost`;
    `schedule()` gives the schedule.

    Args:
        scenario: name, options included, see docs/scenarios.md.
        num_jobs, num_machines: size; the scenario's default.
        strict: refuse illegal actions.

    Raises:
        ValueError: unknown scenario, size below one, an instance that does not fit the space, or,
            if strict, an illegal action.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]
    action_space: LegalActions

    def __init__(
        self,
        scenario: str = "hitzges",
        num_jobs: int | None = None,
        num_machines: int | None = None,
        strict: bool = False,
    ) -> None:
        self.strict = strict
        self.scenario = get_scenario(scenario)
        self.size = (num_jobs, num_machines)
        drawn = [self.scenario.generate(np.random.default_rng(i), *self.size) for i in range(32)]
        self.extent = extent_of(drawn)
        self.observation_space = observation_space(self.extent)
        self.action_space = LegalActions(self.extent.num_actions)
        self.state: State

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        given = (options or {}).get("instance")
        instance = given
        if instance is None:
            instance = draw_within(self.extent, self.scenario, self.np_random, *self.size)
        problem = Problem.from_instances([instance])
        self.state = State.initial(problem, self.scenario.objective, self.scenario.deciding)
        observation = self._observe()
        return observation, {**self._info(), "initial_bound": float(self.state.initial_bound)}

    def step(
        self, action: int | np.integer[Any]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        action, legal = int(action), self.action_space.legal
        illegal = not (0 <= action < len(legal) and legal[action])
        if illegal and self.strict:
            raise ValueError(f"action {action} is not legal now; choose where action_masks() is 1")
        if illegal:
            action = int(legal.argmax())
        chosen = self.extent.to_problem(torch.tensor([action]), self.state.problem)
        reward = float(self.state.step(chosen))
        done = bool(self.state.done)
        observation, info = self._observe(), self._info()
        info["illegal_action"] = illegal
        if done:
            info["cost"] = float(self.state.cost())
        return observation, reward, done, False, info

    def action_masks(self) -> NDArray[np.bool_]:
        """(J * K + 1,) bool: actions that may be taken now."""
        return self.action_space.legal.astype(bool)

    def schedule(self) -> Schedule:
        """The schedule of the finished episode.

        Raises:
            ValueError: jobs are left.
        """
        return self.state.schedules()[0]

    def _observe(self) -> Observation:
        arrays = arrays_from_graph(observe(self.state), self.extent)
        observation = {name: value[0].copy() for name, value in arrays.items()}
        self.action_space.legal = observation["legal"].copy()
        return observation

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self.action_space.legal.copy(), "now": float(self.state.now)}
