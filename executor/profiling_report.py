"""What was measured, as a table for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from hetsched.executor.profiling import Measurement


def print_report(console: Console, measured: Sequence[Measurement], out: Path) -> None:
    """A row per measurement, and the durations of whole runs in the form that a queue takes."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    if not measured:
        console.print("Nothing was measured.")
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in (
        "model",
        "machine",
        "units",
        "speed",
        "spread",
        "start-up",
        "whole run",
        "notes",
    ):
        text = column in ("model", "machine", "notes")
        table.add_column(column, justify="left" if text else "right", overflow="fold")
    for one in measured:
        figures = [f"{one.speed:.4g}/s", f"{one.spread:.1%}", f"{one.startup:.2f} s"]
        figures.append("" if one.seconds is None else f"{one.seconds:.2f} s")
        table.add_row(
            escape(one.subject.model),
            escape(one.subject.machine.type),
            str(one.subject.gpus),
            *(["-"] * 4 if one.problem else figures),
            escape(f"not measured: {one.problem}" if one.problem else "; ".join(one.notes)),
        )
    console.print(table)
    if any(not one.problem for one in measured):
        console.print(f"Written to {out}", markup=False)
    durations: dict[str, list[str]] = {}
    for one in measured:
        if one.seconds is not None:
            said = f"{one.subject.machine.type}: {one.seconds:.3g}"
            durations.setdefault(one.subject.job.name, []).append(said)
    for name, texts in durations.items():
        console.print(f"{name}: durations: {{{', '.join(texts)}}}", markup=False)


def as_dict(measured: Sequence[Measurement]) -> dict[str, Any]:
    """Every run's figures, ready for JSON."""
    measurements = [
        {
            "model": one.subject.model,
            "machine": one.subject.machine.type,
            "gpus": one.subject.gpus,
            "problem": one.problem,
            "speed": one.speed,
            "startup": one.startup,
            "seconds": one.seconds,
            "spread": one.spread,
            "notes": one.notes,
            "runs": [
                {
                    "seconds": run.seconds,
                    "slowdown": sorted(run.slowdown),
                    "speed": run.steady and run.steady.speed,
                    "blocks": run.steady and run.steady.blocks,
                    "startup": run.steady and run.steady.startup,
                    "first_report": run.steady and run.steady.first,
                }
                for run in one.runs
            ],
        }
        for one in measured
    ]
    return {"measurements": measurements}
