"""The progress bar: drawn on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from hetsched.agents import progress
from hetsched.agents.progress import RichProgress

if TYPE_CHECKING:
    from collections.abc import Callable

VALUES = {
    "warm_start/loss": 0.5,
    "validation/ratio_to_rule": 0.912,
    "validation/standard_error": 0.013,
}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[RichProgress, io.StringIO]]:
    """A progress bar and what it writes."""

    def make(enabled: bool = True, **options) -> tuple[RichProgress, io.StringIO]:
        out = io.StringIO()
        monkeypatch.setattr(
            progress, "Console", lambda stderr: Console(file=out, width=100, **options)
        )
        return RichProgress(enabled), out

    return make


def test_a_line_tells_what_matters_where_there_is_no_terminal(shown, monkeypatch) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    bar, out = shown()
    with bar:
        bar.stage("warm start", 2000, 0)
        bar.advance(1500, VALUES)
        bar.advance(2100, {"ppo/policy_loss": -0.25})  # a round may go beyond the budget
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("warm start: 1,500 of 2,000 decisions, ")
    assert "loss 0.500, cost/best rule 0.912±0.013, " in lines[0]
    assert lines[0].endswith(" min left")
    assert "loss -0.250, 0.0 min left" in lines[1]


def test_lines_are_rare(shown) -> None:
    bar, out = shown()
    with bar:
        bar.stage("ppo", 2000, 0)
        for done in range(100):
            bar.advance(done, VALUES)
    assert out.getvalue() == ""


def test_a_bar_is_drawn_on_a_terminal(shown) -> None:
    bar, out = shown(force_terminal=True)
    with bar:
        bar.stage("warm start", 2000, 0)
        bar.stage("ppo", 3000, 1000)  # takes the place of the first
        bar.advance(1500, VALUES)
    drawn = out.getvalue()
    assert "ppo" in drawn
    assert "1,500/3,000" in drawn
    assert "cost/best rule 0.912±0.013" in drawn


def test_silence_where_no_progress_is_wanted(shown, monkeypatch) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    for options in ({}, {"force_terminal": True}):
        bar, out = shown(enabled=False, **options)
        with bar:
            bar.stage("ppo", 10, 0)
            bar.advance(5, VALUES)
        assert out.getvalue() == ""


def test_what_is_said_stays_one_line_without_markup(shown) -> None:
    bar, out = shown(enabled=False)
    command = f"Go on with: python train.py --out '[red]{'x' * 200}[/red]' :smile:"
    with bar:
        bar.say(command)
    assert out.getvalue() == command + "\n"
