"""The operator's own Prometheus metrics.

Tests: tests/test_reference.py, tests/charts/test_alerts.py
"""

from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector

from pdinference.planning.scaling.gauges import LABEL_NAME, LABEL_NAMESPACE

_FAST_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """One process's metrics; an instance, not globals, so that tests do not share counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.reconciles = self._counter("reconcile", "Reconciles, by result (success, retry, error).", "result")
        self.reconcile_seconds = self._histogram("reconcile_duration_seconds", "How long a reconcile took.")
        self.errors = self._counter("reconcile_errors", "Failed requests and rejected resources, by reason.", "reason")
        self.applies = self._counter("applies", "Children written by server-side apply, by kind.", "kind")
        self.prunes = self._counter("prunes", "Children deleted because they are no longer wanted, by kind.", "kind")
        self.status_writes = self._counter("status_writes", "Writes of the status subresource.")
        self.events = self._counter("events", "Kubernetes Events written.")
        self.watch_events = self._counter("watch_events", "Events received from watches, by kind.", "kind")
        self.unreadable = self._counter("unreadable_objects", "Objects that could not be read, by kind.", "kind")
        self.resyncs = self._counter("resyncs", "Complete lists, by result (success, error).", "result")
        self.resync_drift = self._counter("resync_drift", "Resources whose cached objects a list had to correct.")
        self.queue_depth = self._gauge("workqueue_depth", "Resources that wait to be reconciled.")
        self.queue_adds = self._counter("workqueue_adds", "Resources put into the queue.")
        self.queue_retries = self._counter("workqueue_retries", "Resources put back with a back-off.")
        self.queue_seconds = self._histogram("workqueue_latency_seconds", "How long a resource waited in the queue.")
        self.is_leader = self._gauge("is_leader", "1 while this process holds the Lease.")
        self.task_failures = self._counter(
            "background_task_failures", "Long-lived tasks that ended by themselves; /healthz fails then.", "task"
        )
        self.resources = self._gauge("resources", "PDInferences, by whether they answer requests.", "ready")
        self.kv_transfer = self._gauge(
            "kv_transfer",
            "1 for the reason of the condition KVTransfer of each PDInference.",
            LABEL_NAMESPACE,
            LABEL_NAME,
            "reason",
        )
        self.objectives = self._gauge(
            "objectives",
            "1 for the reason of the condition ObjectivesMet of each PDInference.",
            LABEL_NAMESPACE,
            LABEL_NAME,
            "reason",
        )
        Info("pdinference_build", "The operator's version.", registry=self.registry).info(
            {"version": version("pdinference")}
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"pdinference_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"pdinference_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"pdinference_{name}", text, buckets=_FAST_BUCKETS, registry=self.registry)
