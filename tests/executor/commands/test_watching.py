"""What ``dispatch.py run`` shows: a real terminal, Ctrl-C in it, and the web page meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import time
import urllib.request
from pathlib import Path

import pytest
from rich.console import Console

from hetsched import dispatch
from hetsched.cli import UserError
from hetsched.executor.commands.common import Printer
from hetsched.executor.commands.watching import watching

ROOT = Path(dispatch.__file__).parent
QUEUE = """
machines: [{name: cpu}]
grace: 5s
jobs:
  - {name: long, command: "echo begun; exec sleep 60", durations: {cpu: 90}}
  - {name: next, command: "true", durations: {cpu: 1}}
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queue.yaml").write_text(QUEUE)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--web-host", "0.0.0.0"], "--web-host says where, but --web PORT is missing"),
        (["--web", "0", "--dry-run"], "--web: a simulated run keeps nothing to show"),
        (["--web", "0", "--executor", "simulated"], "--web: a simulated run keeps nothing"),
        (["--web", "-1", "--policy", "fifo"], "--web is -1; give a number"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_has_run(options: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        dispatch.dispatch(["queue.yaml", *options])
    assert not list(Path().glob("runs/dispatch/queue/logs/*"))


def test_a_port_that_is_taken_is_said_before_anything_runs() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = str(other.getsockname()[1])
        with pytest.raises(UserError, match=f"--web: cannot listen at 127.0.0.1, port {port}"):
            dispatch.dispatch(["queue.yaml", "--policy", "fifo", "--web", port])
    assert not list(Path().glob("runs/dispatch/queue/logs/*"))


@pytest.mark.parametrize(("terminal", "quiet"), [(False, False), (True, True), (False, True)])
def test_without_a_terminal_or_when_it_is_to_be_quiet_there_is_no_view(
    tmp_path: Path, terminal: bool, quiet: bool
) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal)
    with watching(tmp_path, quiet, console, lambda: 0) as observer:
        assert type(observer) is Printer
    assert output.getvalue() == ""


def read_until(terminal: int, words: str, seconds: float = 90.0) -> str:
    """What the terminal shows until the words have come, or it is closed."""
    text, end = "", time.monotonic() + seconds
    while words not in text and time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                part = os.read(terminal, 1 << 16)
            except OSError:  # closed
                break
            text += part.decode(errors="replace")
    return text


def test_a_terminal_shows_the_queue_and_is_clean_after_ctrl_c() -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, str(ROOT / "dispatch.py"), "queue.yaml", "--policy", "fifo"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    with subprocess.Popen(
        [*command, "--web", "0"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is for it
    ) as process:
        os.close(follower)
        try:
            text = read_until(leader, " of 1:30")
            assert "queue: 1 running, 1 waiting" in re.sub(r"\x1b\[[0-9;]*m", "", text)
            found = re.search(r"http://127\.0\.0\.1:\d+/", text)
            assert found is not None
            with urllib.request.urlopen(found[0] + "api/queue", timeout=20) as answer:
                said = json.load(answer)
            assert said["scheduler"]
            assert {one["job"]: one["status"] for one in said["jobs"]} == {
                "long": "running",
                "next": "waiting",
            }
            with urllib.request.urlopen(found[0] + "api/log?job=long", timeout=20) as answer:
                assert answer.read() == b"begun\n"
            os.write(leader, b"\x03")  # Ctrl-C, by the terminal
            text += read_until(leader, "To go on:")
            assert process.wait(timeout=60) == 130
        finally:
            process.send_signal(signal.SIGKILL)
            os.close(leader)
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
    report = text[text.rindex("\x1b[?25h") :]
    assert "0 of 2 jobs done" in report
    assert "waits    " not in report  # the view is gone
