"""What Prometheus is told. Each service has a registry of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

MEDIA_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)
_GAPS = (0.0, 0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5)


class Metrics:
    """Counters of calls, refusals, workers and decisions."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = self._counter("requests", "Requests by path and status.", "path", "status")
        self._seconds = Histogram(
            "allocator_request_seconds", "Seconds from request to answer.", ["path"], buckets=_SECONDS, registry=self.registry
        )
        self._refusals = self._counter("refusals", "Requests that were refused, by kind of problem.", "problem")
        self._received = self._counter("received_bytes", "Bytes of bodies as they came.")
        self._replaced = self._counter("workers_replaced", "Workers that were replaced, by cause.", "cause")
        self._decisions = self._counter("decisions", "Decisions by rung and solver status.", "rung", "status")
        self._gap = Histogram(
            "allocator_decision_gap", "Proven gap, share of the cluster's time.", buckets=_GAPS, registry=self.registry
        )
        self._steps = self._counter("decision_step_seconds", "Seconds spent in each step of deciding.", "step")
        self._starts = self._counter("starts", "Starts decided.")
        self._preemptions = self._counter("preemptions", "Stops decided, by reason.", "reason")
        self._broken = self._counter("contracts_broken", "Promises that decisions reported as broken.")
        self._waiting = Gauge("allocator_waiting", "Workloads that wait, by the last decision.", registry=self.registry)
        self._last = Gauge("allocator_last_decision_timestamp_seconds", "When it last decided.", registry=self.registry)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A gauge that is read when it is asked for."""
        Gauge(f"allocator_{name}", text, registry=self.registry).set_function(value)

    def request(self, path: str, status: int, seconds: float, received: int) -> None:
        """One more request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)
        self._received.inc(received)

    def refused(self, problem: str) -> None:
        """One more refusal."""
        self._refusals.labels(problem).inc()

    def replaced(self, cause: str) -> None:
        """One more worker was replaced."""
        self._replaced.labels(cause).inc()

    def decided(self, facts: Mapping[str, Any]) -> None:
        """One more decision, by the facts of its reply."""
        self._decisions.labels(facts["rung"], facts["solver_status"]).inc()
        if facts["gap"] is not None:
            self._gap.observe(facts["gap"])
        for step, seconds in facts["steps"].items():
            self._steps.labels(step).inc(seconds)
        self._starts.inc(facts["starts"])
        for reason, count in facts["preemptions"].items():
            self._preemptions.labels(reason).inc(count)
        self._broken.inc(facts["contract_broken"])
        self._waiting.set(facts["waiting"])
        self._last.set_to_current_time()

    def page(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"allocator_{name}", text, labels, registry=self.registry)
