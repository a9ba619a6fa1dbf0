"""The progress bar of a training run: rate, loss, validation against the best rule, time left."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from hetsched.agents.training import Progress as Watcher

QUIET_SECONDS = 30.0  # between lines where there is no terminal to draw on


class RichProgress(Watcher):
    """Draws a bar on a terminal and prints a line now and then elsewhere.

    Args:
        enabled: False keeps silent but for warnings.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.console = Console(stderr=True)
        self.enabled = enabled
        self._bar = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:>9,.0f}/{task.total:,.0f}"),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[loss]}"),
            TextColumn("{task.fields[validation]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
            transient=True,
            disable=not (enabled and self.console.is_terminal),
        )
        self._task: TaskID | None = None
        self._name, self._total = "", 0
        self._begun, self._before, self._told = 0.0, 0, 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()

    def stage(self, name: str, total: int, done: int) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(
            name, total=total, completed=done, rate="", loss="", validation=""
        )
        self._name, self._total, self._before = name, total, done
        self._begun = self._told = time.monotonic()

    def advance(self, done: int, values: Mapping[str, float]) -> None:
        now = time.monotonic()
        rate = (done - self._before) / max(1e-9, now - self._begun)
        loss = values.get("warm_start/loss", values.get("ppo/policy_loss"))
        shown: dict[str, Any] = {
            "rate": f"{rate:,.0f}/s",
            "loss": "" if loss is None else f"loss {loss:.3f}",
            "validation": "",
        }
        if "validation/ratio_to_rule" in values:
            shown["validation"] = f"cost/best rule {values['validation/ratio_to_rule']:.3f}"
            if "validation/standard_error" in values:
                shown["validation"] += f"±{values['validation/standard_error']:.3f}"
        if self._task is not None:
            self._bar.update(self._task, completed=done, **shown)
        if self.enabled and not self.console.is_terminal and now - self._told >= QUIET_SECONDS:
            self._told = now
            left = max(0, self._total - done) / max(1e-9, rate)
            self.say(
                f"{self._name}: {done:,} of {self._total:,} decisions, "
                f"{', '.join(text for text in shown.values() if text)}, {left / 60:.1f} min left"
            )

    def say(self, sentence: str) -> None:
        # One line as it is: it may hold a command to copy, or brackets that are no markup.
        self.console.print(sentence, highlight=False, markup=False, emoji=False, soft_wrap=True)
