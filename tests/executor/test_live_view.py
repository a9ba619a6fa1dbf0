"""The view on a terminal: what it shows, and that nobody waits for it."""

from __future__ import annotations

import io
import math
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from hetsched.executor.live_view import LiveView, picture
from hetsched.executor.overview import JobStatus, MachineStatus
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, Mode
from hetsched.executor.snapshot import Snapshot, Watch
from hetsched.tests.executor.made_states import EVIL, make_state

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(make_state(tmp_path / "state"), every=0.0)


def seen(snapshot: Snapshot, height: int = 30, width: int = 110, stops: int = 0) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        console.print(picture(snapshot, height, stops))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_it_shows_machines_what_waits_and_what_failed(watch: Watch) -> None:
    now = watch.latest()
    lines = seen(replace(now, clock=60.0))
    assert lines[0].startswith(
        "state: 1 done, 1 failed, 2 running, 1 waiting; 1:00 since the start,"
    )
    assert "all over at about" in lines[0]
    rows = [line.split() for line in lines[3:]]
    assert rows[0][:2] == ["one", "runs"]
    assert "55.0 s of 8:20" in lines[3]  # since 5 s, and 500 s expected
    assert rows[1][:2] == ["four", "half"]
    assert lines[5].startswith("waits    gang  needs 4 of 'four' together; 2 free; next at about")
    assert lines[6] == "failed   b  on four, 59.0 s ago: exit status 3"


def test_a_job_that_is_late_and_a_machine_without_work_are_shown_as_such(watch: Watch) -> None:
    now = watch.latest()
    one, four = now.overview.machines
    drained = replace(four, drained="two failures [in] a row", until=900.0)
    overview = replace(now.overview, machines=(one, drained))
    lines = seen(replace(now, clock=600.0, overview=overview), width=150)
    assert lines[3].startswith("four")  # before those that work
    assert "drained: two failures [in] a row" in lines[3]
    by_hand = replace(overview, machines=(one, replace(drained, until=math.inf)))
    assert "a row" in seen(replace(now, clock=600.0, overview=by_hand), width=150)[3]
    late = next(line for line in lines if line.startswith("one"))
    assert late.endswith("late")


def many(snapshot: Snapshot, machines: int, waiting: int) -> Snapshot:
    fleet = tuple(MachineStatus(Machine(f"m{at}"), 0, "", 0.0) for at in range(machines))
    jobs = tuple(
        JobStatus(Job(f"w{at}", (Mode("m0", 1.0),), "true"), "waiting", "why not", "")
        for at in range(waiting)
    )
    counts = {"waiting": 10 * waiting}
    return replace(
        snapshot, overview=replace(snapshot.overview, machines=fleet, jobs=jobs, counts=counts)
    )


@pytest.mark.parametrize("height", [12, 24, 60])
def test_it_fits_the_terminal_and_says_what_it_leaves_out(watch: Watch, height: int) -> None:
    lines = seen(many(watch.latest(), machines=100, waiting=50), height)
    assert len(lines) <= height
    machines = sum(line.startswith("m") and "idle" in line for line in lines)
    waiting = sum(line.startswith("waits") for line in lines)
    assert any(f"{100 - machines} more" in line for line in lines)
    assert f"…        {500 - waiting} more wait" in lines


def test_who_stops_the_queue_is_told_that_it_is_heard(watch: Watch) -> None:
    assert "stopping, Ctrl-C again kills" in seen(watch.latest(), width=200, stops=1)[0]


def test_names_are_no_markup(watch: Watch) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=100, height=20)
    with LiveView(console, watch) as view:
        view.say(f"start {EVIL} [red]x[/red]")
    assert "[red]x[/red]" in output.getvalue()


def test_when_it_is_closed_all_is_said_and_the_cursor_is_back(watch: Watch) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=100, height=20)
    with pytest.raises(KeyboardInterrupt), LiveView(console, watch) as view:
        for number in range(300):
            view.say(f"line {number}")
        raise KeyboardInterrupt
    text = output.getvalue()
    assert text.count("line ") == 300
    assert text.rindex(SHOW) > text.rindex(HIDE)
    assert not [one for one in threading.enumerate() if one.name == "hetsched-view"]


def test_nobody_waits_for_a_slow_terminal(watch: Watch) -> None:
    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            if threading.current_thread().name == "hetsched-view":
                go.wait(20)
            return super().write(text)

    go = threading.Event()
    view = LiveView(Console(file=Stuck(), force_terminal=True, width=80, height=20), watch)
    view.open()
    began = time.perf_counter()
    for number in range(1000):
        view.say(f"line {number}")
    assert time.perf_counter() - began < 1.0
    go.set()
    view.close()


def test_a_state_that_is_gone_does_not_end_the_view(tmp_path: Path) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=100, height=20)
    with LiveView(console, Watch(tmp_path / "nothing", every=0.0)) as view:
        for _ in range(200):
            if "holds no queue" in output.getvalue():
                break
            time.sleep(0.02)
        view.say("still here")
    assert "holds no queue" in output.getvalue()
    assert "still here" in output.getvalue()
