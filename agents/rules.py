"""The dispatching rules by name: ``make_rule("atc:k=0.5")``.

Every rule is a policy: state in, a score per edge and for WAIT out.  ``docs/rules.md`` lists the
formulas and their sources.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from hetsched.agents import rules_static as static
from hetsched.agents.rules_index import AtcRule, AtcsReadyRule
from hetsched.agents.rules_online import AlloxRule, EctWaitRule
from hetsched.agents.rules_parts import fastest_times
from hetsched.agents.rules_precedence import (
    AtcTailsRule,
    TailRule,
    remaining_operations,
    remaining_work,
)

if TYPE_CHECKING:
    from torch import Tensor

    from hetsched.agents.policy import Policy
    from hetsched.envs.simulator import State


Build = Callable[[str, Mapping[str, float]], "Policy"]


@dataclass(frozen=True)
class RuleEntry:
    """One name of the registry.

    Attributes:
        build: (name, parameters) -> the rule.
        summary: one line for lists of rules.
        parameters: names and default values; a whole number as the default asks for whole numbers.
        waits: in dispatch the rule may leave a machine idle although a job could start.
    """

    build: Build
    summary: str
    parameters: Mapping[str, float] = field(default_factory=dict)
    waits: bool = False


def _listed(key: Callable[[State], Tensor]) -> Build:
    return lambda name, _: static.ListRule(name, key)


RULES: Mapping[str, RuleEntry] = MappingProxyType(
    {
        "fifo": RuleEntry(_listed(static.release_key), "by release time, then index"),
        "ect": RuleEntry(_listed(static.index_key), "by index, each to its earliest completion"),
        "spt": RuleEntry(_listed(fastest_times), "shortest fastest duration first"),
        "lpt": RuleEntry(_listed(static.longest_key), "longest fastest duration first"),
        "edd": RuleEntry(_listed(static.due_key), "earliest due time first"),
        "wspt": RuleEntry(_listed(static.weighted_key), "largest weight per duration first"),
        "min-min": RuleEntry(
            lambda name, _: static.MinMinRule(name), "the pair with the earliest completion"
        ),
        "max-min": RuleEntry(
            _listed(static.max_min_key), "the job whose best completion is the latest"
        ),
        "sufferage": RuleEntry(
            _listed(static.sufferage_key), "the job that loses most without its best machine"
        ),
        "heft": RuleEntry(
            lambda name, _: static.HeftRule(name), "longest path of mean durations to the end first"
        ),
        "atc": RuleEntry(
            lambda name, given: AtcRule(name, **given),
            "apparent tardiness cost behind an earliest-end gate",
            {"k": 2.0},
            waits=True,
        ),
        "atcs-r": RuleEntry(
            lambda name, given: AtcsReadyRule(name, **given),
            "apparent tardiness cost with set-ups and ready times",
            {"k1": 2.0, "k2": 1.0, "k3": 1.0},
            waits=True,
        ),
        "mwkr": RuleEntry(
            lambda name, _: TailRule(name, remaining_work),
            "of what starts first behind the gate, the longest path of work behind it",
            waits=True,
        ),
        "mopnr": RuleEntry(
            lambda name, _: TailRule(name, remaining_operations),
            "of what starts first behind the gate, the most operations behind it",
            waits=True,
        ),
        "atc-tails": RuleEntry(
            lambda name, given: AtcTailsRule(name, **given),
            "apparent tardiness cost of a job and all that waits for it",
            {"k": 1.0},
            waits=True,
        ),
        "random": RuleEntry(
            lambda name, given: static.RandomRule(name, int(given["seed"])),
            "any edge that is legal",
            {"seed": 0},
        ),
        "ect-wait": RuleEntry(
            lambda name, _: EctWaitRule(name),
            "earliest completions laid out; a job waits for the machine it is laid out on",
            waits=True,
        ),
        "allox": RuleEntry(
            lambda name, _: AlloxRule(name),
            "assignment of waiting jobs to machines and positions",
            waits=True,
        ),
    }
)


def rule_names() -> tuple[str, ...]:
    """The names that ``make_rule`` knows, without parameters."""
    return tuple(RULES)


def make_rule(name: str) -> Policy:
    """The rule of that name.

    Args:
        name: a name of ``rule_names()``, optionally with parameters after a colon, by name or in
            their order: ``"atc"``, ``"atc:k=0.5"``, ``"atcs-r:2,1,0.5"``, ``"random:seed=7"``.

    Raises:
        ValueError: unknown rule or parameter, or a value out of range.
    """
    base, _, text = name.strip().partition(":")
    entry = RULES.get(base)
    if entry is None:
        near = difflib.get_close_matches(base, RULES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"no rule is called {base!r}; {hint}known: {', '.join(RULES)}")
    return entry.build(name.strip(), _parse(base, entry.parameters, text))


def _parse(rule: str, defaults: Mapping[str, float], text: str) -> dict[str, float]:
    """Parameters of a rule from ``k1=2,k2=0.5`` or ``2,0.5``."""
    values = dict(defaults)
    names = list(defaults)
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if parts and not names:
        raise ValueError(f"rule {rule!r} takes no parameters, got {text!r}; leave them out")
    if len(parts) > len(names):
        raise ValueError(
            f"rule {rule!r} takes {len(names)} parameter(s) ({', '.join(names)}), got {len(parts)}"
        )
    for position, part in enumerate(parts):
        key, equals, value = part.partition("=")
        key, value = (key.strip(), value.strip()) if equals else (names[position], part)
        if key not in values:
            raise ValueError(f"rule {rule!r} has no parameter {key!r}; use {', '.join(names)}")
        values[key] = _number(rule, key, value, whole=isinstance(defaults[key], int))
    return values


def _number(rule: str, key: str, text: str, *, whole: bool) -> float:
    """A non-negative whole number, or a positive real one."""
    kind = "a whole number of at least 0" if whole else "a number above 0"
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        value = -1
    if not (0 <= value < float("inf")) or (value == 0 and not whole):
        raise ValueError(f"parameter {key!r} of rule {rule!r} must be {kind}, got {text!r}")
    return value
