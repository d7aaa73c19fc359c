"""Prometheus metrics of the door: our own prefix, vLLM's suffixes, base units."""

from collections.abc import Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SHORT = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 5e-2, 0.25, 1)


class Gauge(Protocol):
    """Gives the present value of one gauge for each device."""

    def __call__(self) -> Iterable[tuple[str, float]]:
        """Yield (device, value)."""


class _Gauges(Collector):
    def __init__(self, gauges: dict[str, tuple[str, Gauge]]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[GaugeMetricFamily]:
        for name, (text, read) in self._gauges.items():
            family = GaugeMetricFamily(f"zerolayer_{name}", text, labels=["device"])
            for device, value in read():
                family.add_metric([device], value)
            yield family


class Metrics:
    """Counters and histograms of one door, in a registry of its own."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, gauges: dict[str, tuple[str, Gauge]]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Gauges(gauges))
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens taken in.")
        self.generation_tokens = self._counter("generation_tokens", "Tokens generated.")
        self.success = self._counter(
            "request_success", "Choices by how they ended.", "finished_reason"
        )
        self.oom = self._counter("requests_oom", "Requests that died of memory.")
        self.errors = self._counter("request_errors", "Answers that were no completion.", "status")
        self.ttft = self._histogram("time_to_first_token_seconds", "Arrival to first token.")
        self.itl = self._histogram("inter_token_latency_seconds", "Gap between tokens.", _SHORT)
        self.e2e = self._histogram("e2e_request_latency_seconds", "Arrival to last token.")
        self.queue = self._histogram(
            "request_queue_time_seconds", "Hand-over to first kernel.", _SHORT
        )
        self.dispatch = self._histogram(
            "dispatch_duration_seconds", "Arrival to hand-over.", _SHORT
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"zerolayer_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
        return Histogram(f"zerolayer_{name}", text, registry=self.registry, buckets=buckets)

    def page(self) -> bytes:
        """Return the exposition text."""
        return generate_latest(self.registry)
