"""Samples without replacement: K schedules of a policy, no two of them alike.

Independent samples of a sharp policy are often the same schedule, and a beam search over
*decisions* hardly helps: schedules in which the same jobs follow one another on the same machines
are one, in whatever order that was decided.  Here partial schedules that are equal are merged,
their probabilities added up, so that the search runs over schedules.  Which ones stay is drawn by
the Gumbel-top-k trick (stochastic beam search, Kool, van Hoof & Welling, ICML 2019): K schedules
without replacement, each as likely as the policy makes it over all orders.  The greedy decisions
always stay, so the best is never worse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hetsched.agents.evaluation import MAX_EDGES, Answers, padded_edges
from hetsched.agents.learned import LearnedPolicy, problem_for
from hetsched.agents.policy import masked_scores
from hetsched.agents.sampling import Best, clock, temperature_of
from hetsched.envs.simulator import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetsched.agents.evaluation import Setting
    from hetsched.agents.policy import Policy
    from hetsched.envs.instance import Instance
    from hetsched.envs.simulator import Deciding

CANDIDATES = 8  # children that are looked at, in widths: many of them are merged


@dataclass(frozen=True)
class Beam:
    """The greedy schedule and K - 1 others, all different; the best counts, and all of the time.

    Attributes:
        policy: what decides, one by one: a network or a rule.
        width: K, schedules per instance; fewer where an instance has no more.
        temperature: scores are divided by it before the softmax.  None: that of samples.

    Raises:
        ValueError: a width below one, a temperature that is not positive, or a policy that
            decides together.
    """

    policy: Policy
    width: int
    temperature: float | None = None
    kind: str = field(default="policy", init=False)

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"the width of a beam must be at least 1, got {self.width}")
        if self.temperature is not None and not 0 < self.temperature < float("inf"):
            raise ValueError(f"the temperature must be above 0, got {self.temperature:g}")
        if isinstance(self.policy, LearnedPolicy) and self.policy.together:
            raise ValueError(f"{self.name!r}: a beam decides one by one; leave out together=")

    @property
    def name(self) -> str:
        return f"{self.policy.name}+beam@{self.width}"

    def hindsight(self, deciding: Deciding) -> bool:
        return False  # refuses to dispatch

    def solve(self, instances: Sequence[Instance], setting: Setting) -> Answers:
        if setting.deciding != "plan":
            raise ValueError(
                f"{self.name!r} can only plan; in dispatch compare {self.policy.name}@{self.width}"
            )
        generator = torch.Generator(setting.device).manual_seed(setting.seed)
        temperature = self.temperature or temperature_of(self.policy)
        size = max(1, MAX_EDGES // (padded_edges(instances) * self.width))  # instances at once
        best = Best(len(instances))
        for first in range(0, len(instances), size):
            some = instances[first : first + size]
            problem = problem_for(self.policy, some, setting.device).repeat(self.width)
            began = clock(setting.device)
            state = State.initial(problem, setting.objective, "plan")
            search(self.policy, state, self.width, temperature, generator)
            elapsed = clock(setting.device) - began
            best.offer(state, group=self.width, elapsed=elapsed, first=first)
        return best.answers()


@torch.inference_mode()
def search(
    policy: Policy, state: State, width: int, temperature: float, generator: torch.Generator
) -> Tensor:
    """Decide until every row is done; the state is moved in place.

    Args:
        state: an initial plan of I instances, each of them ``width`` rows in succession.

    Returns:
        (I, width) float64: logarithms of the probabilities with which the policy, at this
        temperature, ends in the schedule of each row, as far as ways to it were seen; minus
        infinity in rows that repeat another one.
    """
    device, problem = state.done.device, state.problem
    count = problem.batch_size // width  # I
    rows = torch.arange(problem.batch_size, device=device).view(count, width)
    keys = torch.zeros(count, width, dtype=torch.int64, device=device)  # of what is scheduled
    likely = torch.full((count, width), -torch.inf, dtype=torch.float64, device=device)
    likely[:, 0] = 0.0  # at first all rows are the same: one of them lives
    drawn = likely.clone()  # Gumbel variables of location ``likely``
    while not bool(state.done.all()):
        scores = masked_scores(policy, state).double() / temperature  # (I * width, A)
        best = scores.view(count, width, -1)[:, 0].argmax(1)  # (I,), greedy decisions of row 0
        parts = scores.log_softmax(1).view(count, width, -1) + likely[:, :, None]
        parts = parts.nan_to_num(-torch.inf, neginf=-torch.inf).flatten(1)  # (I, width * A)
        children = _perturbed(parts.view(count, width, -1), drawn, generator).flatten(1)
        rank = children.scatter(1, best[:, None], torch.inf)
        picked = rank.topk(min(CANDIDATES * width, rank.shape[1])).indices  # (I, C)
        parents, actions = picked // problem.num_actions, picked % problem.num_actions
        origin = rows.gather(1, parents)  # (I, C) rows of the state
        jobs = (actions // problem.num_modes).clamp(max=problem.num_jobs - 1)
        starts = state.edge_start()[origin, jobs, actions % problem.num_modes]  # (I, C)
        # Partial schedules are equal that start the same jobs in the same modes at the same times.
        new = keys.gather(1, parents) + _mixed(_mixed(actions) ^ starts.view(torch.int64))
        chosen, merged, most = _distinct(
            new, parts.gather(1, picked), children.gather(1, picked), width
        )
        done = state.done.view(count, width)[:, :1]  # all rows of an instance end together
        drawn, likely = torch.where(done, drawn, most), torch.where(done, likely, merged)
        keys = torch.where(done, keys, new.gather(1, chosen))
        state.take(torch.where(done, rows, origin.gather(1, chosen)).flatten())
        state.step(torch.where(done, 0, actions.gather(1, chosen)).flatten())
    return likely


def _perturbed(parts: Tensor, drawn: Tensor, generator: torch.Generator) -> Tensor:
    """Gumbel variables of locations (I, K, A), their maximum in each (I, K) being ``drawn``.

    Kool et al. (2019), section 4.1 and appendix B.3.
    """
    uniform = torch.rand(parts.shape, generator=generator, dtype=torch.float64, device=parts.device)
    free = parts - (-uniform.clamp(min=1e-300).log()).log()
    gap = (free - free.amax(2, keepdim=True)).nan_to_num(-torch.inf, neginf=-torch.inf)
    value = drawn[:, :, None] - free + torch.log1p(-gap.exp())
    bound = drawn[:, :, None] - value.clamp(min=0) - torch.log1p((-value.abs()).exp())
    return bound.masked_fill(parts == -torch.inf, -torch.inf)


def _mixed(values: Tensor) -> Tensor:
    """A hash of int64 (after the mixing of splitmix64); sums of such tell sets apart."""
    values = (values ^ (values >> 30)) * -0x40A7B892E31B1A47
    values = (values ^ (values >> 27)) * -0x6B2FB644ECCEEE15
    return values ^ (values >> 31)


def _distinct(
    keys: Tensor, likely: Tensor, drawn: Tensor, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Merge candidates of equal keys and keep the first ``width`` that differ.

    Args:
        keys, likely, drawn: (I, C), in falling order of preference.

    Returns:
        Indices of candidates (I, width), and of what they stand for the sum of the probabilities
        as a logarithm and the largest Gumbel variable, which is that of the sum's location.  Where
        there are too few, the first one again, with minus infinity in both.
    """
    order = keys.argsort(dim=1, stable=True)  # (I, C)
    ordered = keys.gather(1, order)
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    group = torch.empty_like(order).scatter(1, order, fresh.cumsum(1) - 1)  # (I, C)
    top = likely.amax(1, keepdim=True)
    nothing = torch.zeros_like(likely)
    sums = nothing.scatter_add(1, group, (likely - top).exp()).log() + top
    most = (nothing - torch.inf).scatter_reduce(1, group, drawn, "amax")
    first = torch.zeros_like(fresh).scatter(1, order, fresh) & (likely > -torch.inf)
    place = torch.arange(keys.shape[1], device=keys.device).expand_as(keys)
    ranked = torch.where(first, place, keys.shape[1])
    kept = ranked.sort(1).values[:, :width]  # (I, at most width)
    kept = torch.nn.functional.pad(kept, (0, width - kept.shape[1]), value=keys.shape[1])
    missing = kept == keys.shape[1]
    chosen = kept.masked_fill(missing, 0)
    of = group.gather(1, chosen)
    return (
        chosen,
        sums.gather(1, of).masked_fill(missing, -torch.inf),
        most.gather(1, of).masked_fill(missing, -torch.inf),
    )
