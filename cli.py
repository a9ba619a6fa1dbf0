"""What the three command files share: one-sentence errors, and the settings of the process.

Nothing here imports torch at the top, so that ``--help`` stays instant.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

USER_ERROR_STATUS = 2
UNREAD_STATUS = 1  # the reader of a pipe did not want all of it (``| head``)
INTERRUPTED_STATUS = 130  # 128 + SIGINT, what a shell reports for Ctrl-C

# glibc's malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_MMAP_MAX = -4
_LARGEST_INT = 2**31 - 1  # mallopt takes a C int: 4 GB cannot be said, just under 2 GiB can


class UserError(Exception):
    """A mistake of the person at the keyboard; one sentence naming the thing and the mend."""


def pattern(text: str) -> str:
    """A regular expression, as the ``type`` of an option.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
    return text


@contextlib.contextmanager
def user_input(what: str | None = None) -> Iterator[None]:
    """Take every ValueError of the block for a mistake in what the user gave.

    Use it around the reading of files and options only: a ValueError of the computation itself is
    a bug, and a bug deserves its traceback.

    Args:
        what: the file or option that is read; the message starts with it.

    Raises:
        UserError: the block raised a ValueError.
    """
    try:
        yield
    except ValueError as error:
        raise UserError(f"{what}: {error}" if what else str(error)) from error


def run(main: Callable[[], object]) -> None:
    """Call ``main``; a mistake of the user becomes one sentence on stderr instead of a traceback.

    Mistakes are :class:`UserError`, the subclasses of ValueError that hetsched defines, and paths
    that do not exist or cannot be used. Everything else is a bug and keeps its traceback.

    Raises:
        SystemExit: with status 2 after a mistake of the user, with 130 after Ctrl-C, with 1 where
            nobody reads what is printed any more (``| head``).
    """
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by the caller (>&-)
            setattr(sys, stream, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    try:
        try:
            main()
        finally:
            _flush()
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        raise SystemExit(UNREAD_STATUS) from None
    except KeyboardInterrupt:
        _complain("stopped by Ctrl-C")
        raise SystemExit(INTERRUPTED_STATUS) from None
    except (UserError, ValueError, OSError) as error:
        sentence = _mistake(error)
        if sentence is None:
            raise
        _complain(sentence)
        raise SystemExit(USER_ERROR_STATUS) from error


def _reader_is_gone() -> bool:
    """Whether stdout is a pipe that nobody reads any more; another broken pipe is a bug."""
    import select

    try:
        poll = select.poll()
        poll.register(sys.__stdout__ or -1, 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError):  # it has no descriptor
        return False


def _flush() -> None:
    """Write what was printed now: in the interpreter's last moments nobody could be told."""
    try:
        sys.stdout.flush()
    except OSError:
        gone = _reader_is_gone()
        # What could not be written stays in the buffer; the interpreter will try it once more.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        if gone:
            raise SystemExit(UNREAD_STATUS) from None
        raise


def _mistake(error: Exception) -> str | None:
    """The sentence for a mistake of the user, None for a bug."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, ValueError):
        ours = type(error).__module__.split(".")[0] == "hetsched"
        return str(error) if ours else None
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = "what was to be written" if error.filename is None else repr(str(error.filename))
        return f"the disk is full: there is no room for {where}; make room and call again"
    if isinstance(error, FileNotFoundError):
        if error.filename is None:
            return str(error)
        return f"there is no file or folder {str(error.filename)!r}; check the path"
    paths = (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)
    if isinstance(error, paths) and error.filename is not None:
        return f"cannot use {str(error.filename)!r}: {error.strerror}"
    return None


def _complain(sentence: str) -> None:
    """One line on stderr, in the form of argparse."""
    print(f"{Path(sys.argv[0]).name}: error: {' '.join(sentence.split())}", file=sys.stderr)


def prepare_process(threads: int | None = None) -> None:
    """Set the allocator and torch's thread count; call it before the first large tensor.

    Args:
        threads: CPU threads of torch's operators; None leaves torch's own choice (one a core).

    Raises:
        UserError: ``threads`` is below 1.
    """
    if threads is not None and threads < 1:
        raise UserError(f"--threads is {threads}; give 1 or more")
    keep_freed_memory()
    if threads is not None:
        import torch  # imports in three seconds, so not for --help

        torch.set_num_threads(threads)


def check_device(device: str) -> None:
    """Refuse a ``--device`` that is not there.

    Raises:
        UserError: neither the CPU nor a GPU that torch sees.
    """
    import torch

    try:
        wanted = torch.device(device)
    except RuntimeError:
        wanted = None
    if wanted is None or wanted.type not in ("cpu", "cuda"):
        raise UserError(f"--device {device}: use cpu or cuda")
    if wanted.type == "cuda" and (wanted.index or 0) >= torch.cuda.device_count():
        raise UserError(f"--device {device}: torch sees no such GPU here; use --device cpu")


def keep_freed_memory() -> bool:
    """Ask glibc to keep freed memory for the next tensor; True where that took effect.

    By default glibc maps every block above 32 MiB (at first 128 KiB) afresh and gives it back when
    freed, so each temporary tensor pays one page fault for every 4 KiB that it writes. With both
    thresholds just under 2 GiB freed blocks are used again; ``benchmarks/allocator.py`` measures
    it. It is the effect of MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_, without asking users
    for environment variables. The price: the process keeps up to 2 GiB that it no longer needs.

    Elsewhere than on Linux with glibc this does nothing.
    """
    import ctypes
    import platform  # both for those commands only that touch tensors

    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    # glibc before 2.35 refuses a threshold above 32 MiB; there, forbid mapped blocks altogether.
    mapped_less = mallopt(_M_MMAP_THRESHOLD, _LARGEST_INT) or mallopt(_M_MMAP_MAX, 0)
    return bool(mapped_less and mallopt(_M_TRIM_THRESHOLD, _LARGEST_INT))
