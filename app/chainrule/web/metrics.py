"""Counters, gauges and histograms for Prometheus, one object per application.

Work runs in a device's thread. At all times

    accepted = done + cancelled + timed out + failed + in hand

Refusals, and live messages that a newer one replaced before their turn, are no work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from chainrule.errors import STOP_REASONS

Kind = Literal["request", "picture", "theory"]
"""Purpose of work: an HTTP request, a live socket's picture, or the theory of a picture."""

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the histograms' bins."""


class Metrics:
    """Counters, gauges and histograms of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, doc: str, *labels: str) -> Counter:
            return Counter(f"chainrule_{name}", doc, labels, registry=self.registry)

        def gauge(name: str, doc: str, *labels: str) -> Gauge:
            return Gauge(f"chainrule_{name}", doc, labels, registry=self.registry)

        def histogram(name: str, doc: str, *labels: str) -> Histogram:
            return Histogram(f"chainrule_{name}", doc, labels, buckets=SECONDS, registry=self.registry)

        self.accepted = counter("work_accepted", "Work that entered the queue.", "kind")
        self.done = counter("work_done", "Work that was computed.", "kind")
        self.cancelled = counter("work_cancelled", "Work that was stopped, by reason.", "kind", "reason")
        self.timed_out = counter("work_timed_out", "Work that exceeded its deadline.", "kind")
        self.failed = counter("work_failed", "Work that raised, by the code of its error.", "kind", "code")
        self.in_hand = gauge("work_in_hand", "Work that waits in the queue or runs.", "kind")
        self.rejected = counter("rejected", "Requests, sockets and messages that were refused, by code.", "code")
        self.coalesced = counter(
            "live_coalesced", "Live messages that a newer message replaced before they were computed."
        )
        self.messages = counter("live_messages", "Live messages that could be read.")
        self.seconds = histogram("compute_seconds", "Time in a device's thread.", "kind")
        self.waited = histogram("queue_wait_seconds", "Time in the queue.", "kind")
        self.sockets = gauge("live_sockets", "Live sockets that are open.")
        self.requests = counter(
            "http_requests",
            "Answers, by route and status; 101 for an opened socket, 499 for a client that left before its answer.",
            "method",
            "route",
            "status",
        )
        self.open_requests = gauge("http_open_requests", "Requests that are being answered.")
        for kind in get_args(Kind):
            # A rate includes the first event only if the series begins at zero.
            for each in (self.accepted, self.done, self.timed_out, self.seconds, self.waited):
                each.labels(kind)
            for reason in STOP_REASONS:
                self.cancelled.labels(kind, reason)
        self._watched = dict[str, Gauge]()
        started = time.time()
        self.watch("start_time_seconds", "When the server started, in seconds since 1970.", lambda: started)
        # Memory, descriptors and CPU time of the process; on Linux alone, elsewhere it shows nothing.
        ProcessCollector(registry=self.registry)

    def watch(self, name: str, doc: str, read: Callable[[], float], **labels: str) -> None:
        """Add the gauge `chainrule_NAME`, read at each scrape; a name may be added again with other label values."""
        gauge = self._watched.get(name)
        if gauge is None:
            gauge = self._watched[name] = Gauge(f"chainrule_{name}", doc, tuple(labels), registry=self.registry)
        (gauge.labels(**labels) if labels else gauge).set_function(read)

    def open_sockets(self) -> int:
        """How many live sockets are open."""
        return int(self.registry.get_sample_value("chainrule_live_sockets") or 0)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(_Plain(self.registry))


class _Plain(Collector):
    """A registry without the creation time of each series, which would double the text."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        for metric in self.registry.collect():
            metric.samples = [sample for sample in metric.samples if sample.name != f"{metric.name}_created"]
            yield metric
