"""Supervised warm start: learn from a teacher, then let PPO go on from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hetsched.agents.teachers import RuleTeacher, Teacher, annealing_teacher
from hetsched.agents.unit_cost import rule_cost
from hetsched.envs.features import observe
from hetsched.envs.graph import Graph
from hetsched.envs.problem import Problem
from hetsched.envs.simulator import State
from hetsched.envs.vector import reward_unit

if TYPE_CHECKING:
    from hetsched.agents.configs import ImitationConfig
    from hetsched.agents.policy import Policy
    from hetsched.envs.scenarios import Scenario
    from hetsched.gnn.network import SchedulingNetwork


VALUE_WEIGHT = 0.5
LIGHTEST, HEAVIEST = 0.25, 4.0  # weights of decisions


@dataclass(frozen=True, eq=False)
class Lessons:
    """Decisions met on the way.

    Attributes:
        graph: D rows; targets: (D, J * K + 1) bool, right actions; returns: (D,) float32, rewards
            that followed; weights: (D,) float32, of the decisions.
    """

    graph: Graph
    targets: Tensor
    returns: Tensor
    weights: Tensor


def _weights(regrets: Tensor) -> Tensor:
    """(D,) float32: one, or in proportion to a regret (D,) that is known, one in their mean."""
    known = (regrets > 0) & regrets.isfinite()
    mean = regrets[known].mean()
    weights = (regrets / mean).clamp(LIGHTEST, HEAVIEST)
    return torch.where(known, weights, 1.0).float()


class Imitation:
    """The warm start, one round at a time, so that the caller can validate, save and stop.

    A round draws instances of one size, walks through them under the teacher's eye and learns
    from every decision met: the loss is minus the logarithm of the probability of the set of right
    actions.  Where several are right the student chooses among them, so it may settle on an order
    of its own; what it does that turns out as good as the teacher's way is right, too, and where it
    was wrong the decision weighs in proportion to what that cost.  Beside it the network learns the
    value of where it stands: what will still be added to the cost, in the unit of PPO's rewards, so
    that PPO does not begin with a critic that knows nothing.

    Args:
        network: trained in place.
        scenario, sizes: what to draw; sizes in turn.
        config: see :class:`ImitationConfig`.
        seed: round ``i`` draws its instances from (seed, i) alone.
        rule: the teacher where it is not annealing.
    """

    def __init__(
        self,
        network: SchedulingNetwork,
        scenario: Scenario,
        sizes: Sequence[tuple[int, int]],
        config: ImitationConfig,
        seed: int,
        rule: Policy | None = None,
    ) -> None:
        self.network, self.scenario, self.sizes = network, scenario, tuple(sizes)
        self.config, self.seed, self.rule = config, seed, rule
        self.reference = rule_cost(scenario)
        self.optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
        self.round, self.decisions = 0, 0

    @property
    def finished(self) -> bool:
        return self.decisions >= self.config.decisions

    @property
    def _part(self) -> float:
        """How much of the stage is done, 0..1."""
        return min(1.0, self.decisions / max(1, self.config.decisions))

    def step(self) -> dict[str, float]:
        """One round; returns ``loss``, ``agreement`` (how often the favourite was right) and
        ``value_loss``."""
        jobs, machines = self.sizes[self.round % len(self.sizes)]
        rng = np.random.default_rng([self.seed, self.round, 1])
        problem = Problem.from_instances(
            [self.scenario.generate(rng, jobs, machines) for _ in range(self.config.instances)],
            device=next(self.network.parameters()).device,
        )
        lessons = self._walk(problem, int(rng.integers(2**31)))
        factor = float(0.01 + 0.99 * 0.5 * (1 + np.cos(np.pi * self._part)))  # saved as such
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * factor
        metrics = self._learn(lessons, rng)
        self.round += 1
        self.decisions += len(lessons.targets)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Where the stage stands, without the network."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "round": self.round,
            "decisions": self.decisions,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Return to where another stage of the same arguments stood."""
        self.optimizer.load_state_dict(saved["optimizer"])
        self.round, self.decisions = saved["round"], saved["decisions"]

    def _teacher(self, problem: Problem, seed: int) -> Teacher:
        if self.rule is not None:
            return RuleTeacher(self.rule)
        return annealing_teacher(problem, self.scenario.objective, self.config.moves_per_job, seed)

    @torch.no_grad()
    def _walk(self, problem: Problem, seed: int) -> Lessons:
        """Every decision met."""
        teacher = self._teacher(problem, seed)
        generator = torch.Generator().manual_seed(seed)
        state = State.initial(problem, self.scenario.objective, self.scenario.deciding)
        unit = reward_unit(state.clone(), self.reference)
        graphs, targets, rows, bounds, regrets = [], [], [], [], []
        share = self.config.explore * min(1.0, 2 * self._part)  # first learn to walk
        explores = torch.rand(problem.batch_size, generator=generator) < share
        explores = explores.to(problem.device)
        while not bool(state.done.all()):
            graph, right = observe(state), teacher.targets(state)
            live = ~state.done
            graphs.append(graph.rows(live))
            rows.append(live.nonzero().squeeze(1))
            bounds.append(state.bound[live])
            scores = self.network(graph)[0]
            # The student's own way, with the teacher's comments, or the teacher's.
            allowed = torch.where((explores | ~live)[:, None], graph.legal, right)
            probabilities = scores.masked_fill(~allowed, -torch.inf).softmax(1).cpu()
            drawn = torch.multinomial(probabilities, 1, generator=generator).squeeze(1)
            drawn = drawn.to(problem.device)
            state.step(drawn)
            taken = drawn[:, None]
            wrong = live & ~right.gather(1, taken).squeeze(1)
            regret = teacher.follow(state, wrong)
            right = right.scatter(1, taken, (~wrong | (regret == 0))[:, None])
            targets.append(right[live])
            regrets.append((regret / unit)[live])
        row = torch.cat(rows)  # (D,)
        returns = (torch.cat(bounds) - state.bound[row]) / unit[row]
        return Lessons(
            Graph.concatenate(graphs),
            torch.cat(targets),
            returns.float(),
            _weights(torch.cat(regrets)),
        )

    def _learn(self, lessons: Lessons, rng: np.random.Generator) -> dict[str, float]:
        losses, right, errors = [], [], []
        graph, targets, size = lessons.graph, lessons.targets, self.config.batch_size
        for _ in range(self.config.epochs):
            order = torch.from_numpy(rng.permutation(len(targets)))
            for begin in range(0, max(1, len(order) - size // 2), size):
                rows = order[begin : begin + size]
                scores, values = self.network(graph.rows(rows))
                logits, wanted = scores.log_softmax(1), targets[rows]
                likelihood = logits.masked_fill(~wanted, -torch.inf).logsumexp(1)  # (batch,)
                loss = -(lessons.weights[rows] * likelihood).mean()
                error = (values - lessons.returns[rows]).square().mean()
                self.optimizer.zero_grad()
                (loss + VALUE_WEIGHT * error).backward()
                torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
                self.optimizer.step()
                losses.append(loss.item())
                errors.append(error.item())
                favourite = logits.argmax(1, keepdim=True)
                right.append(wanted.gather(1, favourite).float().mean().item())
        means = {"loss": losses, "agreement": right, "value_loss": errors}
        return {name: float(np.mean(values)) for name, values in means.items()}
