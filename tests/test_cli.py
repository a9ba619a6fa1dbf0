"""What the command files share: errors in one sentence, and the settings of the process."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from hetsched import cli


class CheckpointError(ValueError):
    """Stands for the ValueErrors that hetsched defines."""


CheckpointError.__module__ = "hetsched.agents.checkpoint"


def fail_with(error: BaseException) -> None:
    raise error


def outcome(error: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    """The exit status and what was printed on stderr."""
    with pytest.raises(SystemExit) as stop:
        cli.run(lambda: fail_with(error))
    return stop.value.code, capsys.readouterr().err


def test_a_command_that_ends_well_returns(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(lambda: print("done"))
    assert capsys.readouterr().out == "done\n"


@pytest.mark.parametrize(
    "error",
    [cli.UserError("jobs is 0; give 1 or more"), CheckpointError("jobs is 0; give\n1 or more")],
)
def test_a_mistake_of_the_user_is_one_line_and_status_2(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["some/folder/train.py"])
    status, printed = outcome(error, capsys)
    assert status == 2
    assert printed == "train.py: error: jobs is 0; give 1 or more\n"


def test_a_file_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.run(lambda: (tmp_path / "set.npz").read_bytes())
    assert stop.value.code == 2
    printed = capsys.readouterr().err
    assert f"there is no file or folder '{tmp_path / 'set.npz'}'; check the path" in printed


def test_a_folder_in_the_place_of_a_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.run(lambda: tmp_path.read_bytes())
    assert stop.value.code == 2
    assert f"cannot use '{tmp_path}': Is a directory" in capsys.readouterr().err


def test_control_c_ends_with_status_130_and_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, printed = outcome(KeyboardInterrupt(), capsys)
    assert status == 130
    assert printed.endswith(": error: stopped by Ctrl-C\n")
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    "bug", [ValueError("shapes (2,) and (3,)"), KeyError("x"), ConnectionResetError(104, "reset")]
)
def test_a_bug_keeps_its_traceback(bug: Exception) -> None:
    with pytest.raises(type(bug)):
        cli.run(lambda: fail_with(bug))


def test_a_value_error_while_reading_user_input_is_a_mistake_of_the_user() -> None:
    with pytest.raises(cli.UserError, match=r"^--jobs: invalid literal"), cli.user_input("--jobs"):
        int("many")


def test_a_thread_count_below_one_is_refused() -> None:
    with pytest.raises(cli.UserError, match="--threads is 0; give 1 or more"):
        cli.prepare_process(threads=0)


def in_a_fresh_process(code: str) -> str:
    """What ``code`` prints; the settings of a process would outlive the test otherwise."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_thread_count_reaches_torch() -> None:
    code = """
from hetsched import cli
cli.prepare_process(threads=2)
import torch
print(torch.get_num_threads())
"""
    assert in_a_fresh_process(code) == "2"


def printing(redirect: str) -> tuple[int, str]:
    """Exit status and stderr of a command that prints much, under a shell's redirection."""
    code = "from hetsched import cli; cli.run(lambda: print('x' * 200000))"
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$0" -c "$1" {redirect}', sys.executable, code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    assert printing("| true") == (cli.UNREAD_STATUS, "")


def test_a_closed_stdout_is_no_error() -> None:
    assert printing(">&-") == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is full")
def test_a_full_disk_under_stdout_is_one_sentence() -> None:
    status, said = printing("> /dev/full")
    assert status == 2
    assert said.endswith(
        "the disk is full: there is no room for what was to be written; make room and call again\n"
    )
    assert said.count("\n") == 1


def test_without_a_thread_count_torch_is_not_imported() -> None:
    code = """
import sys
from hetsched import cli
cli.prepare_process()
print("torch" in sys.modules)
"""
    assert in_a_fresh_process(code) == "False"


def test_elsewhere_than_on_glibc_the_allocator_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("musl", "1.2"))
    assert not cli.keep_freed_memory()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not cli.keep_freed_memory()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    # 64 MB blocks lie above the largest threshold that glibc finds by itself, 32 MB.
    code = """
import ctypes, resource
from hetsched import cli
kept = cli.keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
for block in range(5):
    if block == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    address = libc.malloc(64 << 20)
    ctypes.memset(address, 1, 64 << 20)
    libc.free(address)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    kept, faults = in_a_fresh_process(code).split()
    assert kept == "True"
    assert int(faults) < 100  # 4 x 16,384 without, or 4 x 32 where pages are huge
