"""What Prometheus reads of a queue at ``/metrics``: no label has more values than there are
machines or outcomes, so that a long queue does not fill a database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from hetsched.executor.snapshot import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsMissing(Exception):
    """The library that writes the format is not installed."""


def as_text(snapshot: Snapshot) -> bytes:
    """A snapshot in Prometheus' text format (CONTENT_TYPE).

    Raises:
        MetricsMissing: with the command that installs what is missing.
    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.registry import Collector
    except ModuleNotFoundError:
        raise MetricsMissing(
            "metrics need the package prometheus-client: pip install 'hetsched[web]'"
        ) from None

    class Queue(Collector):
        """Hands the registry what was read, instead of counters of this process."""

        def collect(self) -> Iterator[Metric]:
            return _metrics(snapshot)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Queue())
    return bytes(generate_latest(registry))


def _metrics(snapshot: Snapshot) -> Iterator[Metric]:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        SummaryMetricFamily,
    )

    from hetsched.executor.overview import FINAL
    from hetsched.executor.protocol import STATUSES
    from hetsched.executor.store import OPEN_STATUSES

    overview = snapshot.overview
    yield GaugeMetricFamily(
        "hetsched_scheduler_up", "Whether a scheduler runs.", float(overview.scheduler)
    )
    yield CounterMetricFamily(
        "hetsched_queue_seconds", "The queue's clock at its latest event or now.", snapshot.clock
    )
    jobs = GaugeMetricFamily("hetsched_jobs", "Jobs by status.", labels=["status"])
    for status in (*OPEN_STATUSES, *FINAL):
        jobs.add_metric([status], overview.counts.get(status, 0))
    yield jobs
    attempts = CounterMetricFamily(
        "hetsched_attempts", "Attempts that ended, by outcome.", labels=["status"]
    )
    for status in STATUSES:
        attempts.add_metric([status], snapshot.attempts.get(status, 0))
    yield attempts
    capacity = GaugeMetricFamily("hetsched_machine_units", "Units there are.", labels=["machine"])
    used = GaugeMetricFamily(
        "hetsched_machine_units_used", "Units that running jobs have.", labels=["machine"]
    )
    drained = GaugeMetricFamily(
        "hetsched_machine_drained", "Whether it gets no work.", labels=["machine"]
    )
    away = GaugeMetricFamily(
        "hetsched_machine_away", "Whether it cannot be reached.", labels=["machine"]
    )
    busy = CounterMetricFamily(
        "hetsched_machine_busy_unit_seconds",
        "Time that jobs had units, summed over units.",
        labels=["machine"],
    )
    for one in overview.machines:
        name = [one.machine.name]
        capacity.add_metric(name, one.machine.capacity)
        used.add_metric(name, one.used)
        drained.add_metric(name, float(bool(one.drained)))
        away.add_metric(name, float(one.away is not None))
        busy.add_metric(name, snapshot.busy.get(one.machine.name, 0.0))
    yield from (capacity, used, drained, away, busy)
    yield SummaryMetricFamily(
        "hetsched_decision_seconds",
        "Time that decisions of the policy took.",
        count_value=overview.decisions,
        sum_value=snapshot.decision_seconds,
    )
