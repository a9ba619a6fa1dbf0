"""Stop signals become requests."""

from __future__ import annotations

import os
import select
import signal

from hetsched.executor.signals import StopSignals


def test_signals_are_counted_and_can_be_waited_for() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopSignals() as signals:
        assert (signals.count, signals.last) == (0, None)
        assert select.select([signals.descriptor], [], [], 0)[0] == []
        os.kill(os.getpid(), signal.SIGINT)
        assert select.select([signals.descriptor], [], [], 5)[0] == [signals.descriptor]
        os.kill(os.getpid(), signal.SIGTERM)
        assert (signals.count, signals.last) == (2, signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) == before


def test_nohup_keeps_its_meaning() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.count == 0
    finally:
        signal.signal(signal.SIGHUP, before)
