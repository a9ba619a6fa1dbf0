"""The one signature of everything that decides: state in, a score per action out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from hetsched.agents.learned import LearnedPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hetsched.envs.simulator import State


BEFORE_JUDGING = 4  # decisions, before their speed is believed


class Policy(Protocol):
    """Scores actions; rules, networks, samplers and the deployed scheduler all look like this."""

    name: str

    def scores(self, state: State) -> Tensor:
        """(B, J * K + 1) real numbers, higher is better; entries of illegal actions are ignored."""
        ...


def masked_scores(policy: Policy, state: State) -> Tensor:
    """(B, J * K + 1): the policy's scores, minus infinity at illegal actions.

    Raises:
        ValueError: a legal action has no number as its score.
    """
    mask = state.mask()
    scores = policy.scores(state).masked_fill(~mask, -torch.inf)
    if bool(scores.isnan().any()):
        raise ValueError(f"policy {policy.name!r} gave NaN as a score; do not use it")
    return scores


def act(policy: Policy, state: State) -> Tensor:
    """(B,) int64: the best legal action of each row, the first of equals."""
    return greedy(masked_scores(policy, state))


def greedy(scores: Tensor) -> Tensor:
    """(B,) int64: the best of (B, A) scores, the first of equals."""
    return scores.argmax(1)


def sample(policy: Policy, state: State, generator: torch.Generator | None = None) -> Tensor:
    """(B,) int64: actions drawn from the softmax of the scores."""
    return _draw(masked_scores(policy, state), generator)


def rollout(
    policy: Policy,
    state: State,
    *,
    sampled: Tensor | bool = False,
    generator: torch.Generator | None = None,
    temperature: float = 1.0,
    deadline: float = float("inf"),
) -> State:
    """Decide until every row is done; the state is moved in place and returned.

    Args:
        sampled: (B,) bool or one bool: rows that draw from the softmax instead of the argmax.
        generator: of the draws, on the state's device; torch's own by default.
        temperature: scores are divided by it before the softmax.
        deadline: of ``time.perf_counter()``: stop unfinished once it is later, or earlier where
            the jobs that are left cannot be decided by then.
    """
    began, steps = time.perf_counter(), 0
    draws = torch.as_tensor(sampled, device=state.done.device).expand(state.done.shape)

    def mixed(scores: Tensor) -> Tensor:
        return torch.where(draws, _draw(scores / temperature, generator), greedy(scores))

    choose = mixed if bool(draws.any()) else greedy
    while not bool(state.done.all()) and not _too_late(state, began, steps, deadline):
        for actions, still in decisions(policy, state, choose):
            state.step(actions, still)
            steps += 1
    return state


def decisions(
    policy: Policy, state: State, choose: Callable[[Tensor], Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """What follows from one look at the state: actions (B,), and the rows (B,) that keep still.

    The caller steps the state with each before it asks for the next.  One decision a look, but in a
    plan, of a learned policy that decides ``together``, more of them: of other jobs on other
    machines.  A row that is out of those looks again.

    Args:
        choose: from scores (B, J * K + 1) to actions (B,).
    """
    scores = masked_scores(policy, state)
    share = policy.together if isinstance(policy, LearnedPolicy) else 0.0
    if share == 0.0 or state.deciding != "plan":
        yield choose(scores), state.done
        return
    count = (share * (state.problem.job_mask & ~state.scheduled).sum(1)).long()  # (B,)
    actions = choose(scores)
    yield actions, state.done
    for turn in range(1, int(count.max())):
        _exclude(scores, actions, state)
        still = (turn >= count) | (scores.amax(1) == -torch.inf)
        if bool(still.all()):
            return
        actions = choose(scores.masked_fill(still[:, None], 0.0))
        yield actions, still


def _exclude(scores: Tensor, actions: Tensor, state: State) -> None:
    """Make (B, J * K + 1) scores minus infinity at the actions' jobs and machines, and at WAIT."""
    machines = state.problem.mode_machines  # (B, J, K)
    scores[:, -1] = -torch.inf
    modes = scores[:, :-1].view(machines.shape)
    rows = (actions < modes[0].numel()).nonzero().squeeze(1)  # (R,) that are not done
    jobs, slots = actions[rows] // machines.shape[2], actions[rows] % machines.shape[2]
    taken = torch.full_like(state.done, -1, dtype=torch.int64)
    taken[rows] = machines[rows, jobs, slots]
    modes[rows, jobs] = -torch.inf
    modes.masked_fill_(machines == taken[:, None, None], -torch.inf)


def _too_late(state: State, began: float, steps: int, deadline: float) -> bool:
    """Whether a deadline is over, or out of reach.

    Every job is a decision at least, and the later ones, with fewer jobs left, take half as long
    as the first ones on average at best.
    """
    if deadline == float("inf"):
        return False
    now = time.perf_counter()
    if steps < BEFORE_JUDGING:
        return now > deadline
    left = int((state.problem.job_mask & ~state.scheduled).sum(1).max())
    return now + 0.5 * left * (now - began) / steps > deadline


def _draw(scores: Tensor, generator: torch.Generator | None) -> Tensor:
    """(B,) int64 from the softmax of (B, A) scores; those of a rule may be far beyond float32."""
    relative = scores - scores.amax(1, keepdim=True)
    return torch.multinomial(relative.float().softmax(1), 1, generator=generator).squeeze(1)
