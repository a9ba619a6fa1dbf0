"""Asks a policy, and a rule in its place where the policy fails: a queue does not stop for that."""

from __future__ import annotations

import math
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hetsched.agents.policy import masked_scores

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetsched.agents.policy import Policy
    from hetsched.envs.simulator import State

STRIKES = 3  # failures after which a policy is not asked any more
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Answer:
    """What to do now: an action of the state, who said so, and why not the policy (else empty)."""

    action: int
    policy: str
    failure: str = ""


class Guard:
    """A policy with a rule behind it.

    Args:
        policy: what decides; None: the rule alone, from the start.
        fallback: takes a decision when the policy raises, gives NaN or takes too long. After three
            failures, or one that never came back, the policy is not asked any more. None: a failure
            of the policy is raised.
        timeout: seconds that a decision may take.
    """

    def __init__(
        self,
        policy: Policy | None,
        fallback: Policy | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        if policy is None and fallback is None:
            raise ValueError("guard: there is neither a policy nor a fallback; give one of them.")
        if not timeout > 0:
            raise ValueError(f"guard: timeout is {timeout}; it must be above 0 seconds.")
        self._policy, self._fallback = policy, fallback
        self._timeout = timeout
        self._failures = 0
        self._worker: _Worker | None = None

    @property
    def name(self) -> str:
        """Of what decides at present."""
        deciding = self._policy or self._fallback
        assert deciding is not None
        return deciding.name

    def decide(self, state: State) -> Answer:
        """The best legal action of a one-row state in which something is legal.

        Raises:
            Exception: what the policy raised, where there is no fallback, or what the fallback did.
        """
        failure = ""
        if self._policy is not None:
            policy = self._policy
            if self._fallback is None:
                return Answer(_best(policy, state), policy.name)
            try:
                return Answer(self._in_time(policy, state), policy.name)
            except Exception as error:
                failure = self._strike(policy, error)
        assert self._fallback is not None
        return Answer(_best(self._fallback, state), self._fallback.name, failure)

    def _strike(self, policy: Policy, error: Exception) -> str:
        self._failures += 1
        what = str(error).splitlines()[0] if str(error) else ""
        if type(error) is not ValueError and not isinstance(error, TimeoutError):
            what = f"{type(error).__name__}: {what}" if what else type(error).__name__
        given_up = self._failures >= STRIKES or isinstance(error, TimeoutError)
        if given_up:
            self._policy = None
        for_how_long = "from now on" if given_up else "this time"
        assert self._fallback is not None
        return (
            f"policy {policy.name!r} failed ({what}); {self._fallback.name} decides {for_how_long}"
        )

    def _in_time(self, policy: Policy, state: State) -> int:
        if self._worker is None:
            self._worker = _Worker()
        return self._worker.call(lambda: _best(policy, state), self._timeout)


def _best(policy: Policy, state: State) -> int:
    with torch.no_grad():
        scores = masked_scores(policy, state)[0]
    action = int(scores.argmax())  # the first of equals
    if float(scores[action]) == -math.inf:
        raise ValueError("no legal action has a score above minus infinity")
    return action


class _Worker:
    """A thread that can be left alone with a call that does not return.

    A daemon: the process can end without it. Killing it is impossible, which is why a policy
    that hung once is not asked again.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], int]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[int | Exception] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="policy", daemon=True).start()

    def _serve(self) -> None:
        while True:
            call = self._calls.get()
            try:
                answer: int | Exception = call()
            except Exception as error:
                answer = error
            self._answers.put(answer)

    def call(self, what: Callable[[], int], timeout: float) -> int:
        began = time.monotonic()
        self._calls.put(what)
        try:
            answer = self._answers.get(timeout=timeout)
        except queue.Empty:
            waited = time.monotonic() - began
            raise TimeoutError(f"no answer after {waited:.1f} s") from None
        if isinstance(answer, Exception):
            raise answer
        return answer
