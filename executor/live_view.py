"""A queue on the terminal while it runs: machines and what runs on them, what waits, what failed.

It looks at snapshots in a thread of its own, twice a second at most and at the price of a twentieth
of one core, and what is printed meanwhile is handed to that thread: the scheduler never waits for a
terminal. The view is drawn below what was printed, and is gone when it is closed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hetsched.executor.overview import clock_time
from hetsched.executor.report import COLOURS, duration
from hetsched.executor.status_data import why_closed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from hetsched.executor.overview import JobStatus
    from hetsched.executor.snapshot import Snapshot, Watch

EVERY = 0.5  # seconds
BAR = 16  # characters
FAILURES = 4  # lines


class LiveView:
    """Drawn from `open` to `close`; a context manager does both.

    Args:
        console: a terminal. Nobody else may print on it meanwhile: see `say`.
        watch: of the queue.
        stops: how often somebody has asked to stop.
    """

    def __init__(
        self, console: Console, watch: Watch, stops: Callable[[], int] = lambda: 0
    ) -> None:
        self._console, self._watch, self._stops = console, watch, stops
        self._said: deque[tuple[str, str]] = deque()
        self._closing = threading.Event()
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,  # a report may be on its way to a file
            vertical_overflow="crop",
        )
        self._thread = threading.Thread(target=self._draw, name="hetsched-view", daemon=True)

    def say(self, line: str, style: str = "") -> None:
        """Print a line above the view, soon."""
        self._said.append((line, style))

    def open(self) -> None:
        """Begin to draw."""
        self._live.start()
        self._thread.start()

    def close(self) -> None:
        """Print what is left to say, take the view away, and give the cursor back."""
        self._closing.set()
        self._thread.join()
        self._live.stop()

    def __enter__(self) -> LiveView:
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _draw(self) -> None:
        while True:
            closing = self._closing.is_set()
            began = time.thread_time()
            self._print()
            if closing:
                self._live.update(Text(), refresh=True)
                return
            try:
                seen = picture(self._watch.latest(), self._console.height - 1, self._stops())
            except Exception as error:  # whatever it is, the queue goes on
                seen = Text(f"{type(error).__name__}: {error}", style="red")
            self._live.update(seen, refresh=True)
            work = time.thread_time() - began
            self._closing.wait(max(EVERY, self._watch.SHARE * work))

    def _print(self) -> None:
        """What was said since the last time, as one piece: every piece draws the view anew."""
        lines = [self._said.popleft() for _ in range(len(self._said))]
        if lines:
            self._console.print(Text("\n").join(Text(*one) for one in lines))


def picture(snapshot: Snapshot, height: int, stops: int = 0) -> RenderableType:
    """A snapshot for a terminal of so many lines."""
    overview = snapshot.overview
    running: dict[str, list[JobStatus]] = {}
    waiting = []
    for one in overview.jobs:
        if one.status == "running":
            running.setdefault(str(one.machine), []).append(one)
        elif one.status == "waiting":
            waiting.append(one)
    room = max(height - 4, 6)  # without the head, and the head of the table
    rows = _machine_rows(snapshot, running)
    shown = _cut(rows, max(3, room // 2 if waiting or snapshot.failures else room))
    machines = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for title, ratio in (("machine", 2), ("runs", 4), ("", 2), ("", 3), ("ends", 2)):
        machines.add_column(title, ratio=ratio, no_wrap=True, overflow="ellipsis")
    for row in shown:
        machines.add_row(*row)
    parts: list[RenderableType] = [_head(snapshot, stops), _total(snapshot), machines]
    room -= len(shown)
    failures = snapshot.failures[: min(FAILURES, max(1, room // 3))]
    room -= len(failures)
    count = overview.counts.get("waiting", 0)
    fitting = waiting[: max(1, room if count <= room else room - 1)]
    for one in fitting:
        parts.append(_line("waits", one.job.name, one.reason, COLOURS.get("waiting", "white")))
    if count > len(fitting):
        parts.append(Text(f"…        {count - len(fitting)} more wait", style="dim"))
    for bar in failures:
        why = f"on {bar.machine}, {duration(max(0.0, snapshot.clock - (bar.ended or 0.0)))} ago"
        why += f": {bar.reason}" if bar.reason else ""
        parts.append(_line(bar.status, bar.job, why, "red"))
    return Group(*parts)


def _line(word: str, job: str, what: str, style: str) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{word:<9}", style=style)
    text.append(job, style="bold")
    text.append(f"  {what}")
    return text


def _head(snapshot: Snapshot, stops: int) -> Text:
    overview = snapshot.overview
    counts = ", ".join(f"{number} {status}" for status, number in overview.counts.items())
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(snapshot.name, style="bold")
    text.append(f": {counts}; {duration(snapshot.clock)} since the start")
    if snapshot.finish is not None:
        text.append(f", all over {clock_time(overview.began + snapshot.finish)}")
    if stops:
        text.append("; stopping, Ctrl-C again kills what runs", style="bold red")
    return text


def _total(snapshot: Snapshot) -> Table:
    counts = snapshot.overview.counts
    total = sum(counts.values())
    left = counts.get("waiting", 0) + counts.get("running", 0)
    line = Table.grid(expand=True)  # a bar alone does not end its line
    line.add_row(ProgressBar(total=max(1, total), completed=total - left))
    return line


def _machine_rows(
    snapshot: Snapshot, running: dict[str, list[JobStatus]]
) -> list[tuple[RenderableType, ...]]:
    """One per running job; machines without one come last, and those that get no work first."""
    overview = snapshot.overview
    closed: list[tuple[RenderableType, ...]] = []
    busy: list[tuple[RenderableType, ...]] = []
    idle: list[tuple[RenderableType, ...]] = []
    for one in overview.machines:
        name = one.machine.name
        if one.closed:
            closed.append((Text(name), Text(why_closed(one, snapshot.clock), style="red")))
        for at, job in enumerate(running.get(name, [])):
            busy.append((Text(name if at == 0 else ""), *_progress(job, overview.began, snapshot)))
        if not one.closed and name not in running:
            idle.append((Text(name), Text("idle", style="dim")))
    return closed + busy + idle


def _progress(job: JobStatus, began: float, snapshot: Snapshot) -> tuple[RenderableType, ...]:
    started = snapshot.clock if job.started is None else job.started
    ran = max(0.0, snapshot.clock - started)
    again = f" (attempt {job.attempts})" if job.attempts > 1 else ""
    asked = f" ({job.asked})" if job.asked else ""
    name = Text(job.job.name + again + asked)
    late = job.expected is not None and ran > job.expected
    style = "yellow" if late else ""
    times = (
        duration(ran) if job.expected is None else f"{duration(ran)} of {duration(job.expected)}"
    )
    bar: RenderableType = Text("")
    if job.progress is not None:  # what it says itself, rather than what was expected
        times = f"{job.progress:.0%}, {times}"
        bar = ProgressBar(total=1.0, completed=job.progress, width=BAR)
    elif job.expected is not None:
        bar = ProgressBar(total=job.expected, completed=min(ran, job.expected), width=BAR)
    if job.expected is None:
        ends = "-"
    else:
        ends = clock_time(began + started + job.expected).removeprefix("at ")
    return name, bar, Text(times, style=style), Text("late" if late else ends, style=style)


def _cut(rows: list[tuple[RenderableType, ...]], most: int) -> list[tuple[RenderableType, ...]]:
    if len(rows) <= most:
        return rows
    return [*rows[: most - 1], (Text("…"), Text(f"{len(rows) - most + 1} more", style="dim"))]
