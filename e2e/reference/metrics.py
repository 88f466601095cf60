"""The page of metrics, from the registries of the operator, the router and the runner of batches."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from e2e.reference.markdown import code, page, plain, table
from pdinference.admission.webhook import admission_routes
from pdinference.api import names
from pdinference.controller.metrics import Metrics
from pdinference.isolation.process import ChildProgram, IsolatedProcess
from pdinference.loadmetrics.gauges import HELP, HELP_OF_SIGNALS
from pdinference.loadmetrics.metrics import ScrapeMetrics
from pdinference.planning.scaling.signals import METRICS
from pdinference.router import admission_metrics, faults, lengths, record, transfers, verification_metrics
from pdinference.runner.progress import RunProgress

if TYPE_CHECKING:
    from pdinference.isolation.calls import Calls

Row = tuple[str, str, str, str]

_KINDS: Final = {Counter: "counter", Gauge: "gauge", Histogram: "histogram"}
_OF_RESOURCE: Final = "inference_namespace, inference_name, and of a role inference_role"


def metric_page() -> str:
    """Every metric."""
    introduction = (
        "vLLM has metrics of its own; [verify](../verify.md) names those that show P and D at work. "
        "A histogram has the series `_bucket`, `_sum` and `_count`."
    )
    return page("Metrics", introduction, [*_operator(), *_router(), *_batch()])


def _operator() -> Iterator[str]:
    yield "## Of the operator"
    yield (
        "On port 8080 at `/metrics`, the port of `/healthz`. The chart can create a ServiceMonitor "
        "(`metrics.serviceMonitor.enabled`). The leader alone exports `pdinference_kv_transfer` and "
        "`pdinference_objectives`. The usual `process_...` metrics of Prometheus' client are there, too."
    )
    metrics = Metrics()
    ScrapeMetrics(metrics.registry)
    IsolatedProcess(ChildProgram("", None), {}, metrics.registry)
    list(admission_routes(cast("Calls", None), metrics.registry))  # the routes are not called
    yield _table(_rows(metrics.registry))
    yield "### Of resources"
    yield (
        "Of resources with autoscaling or objectives, and the memory plan of every PDInference; for Prometheus, KEDA "
        "and dashboards. "
        "[Autoscaling](../autoscaling.md#the-signals) has the units and what they are computed from."
    )
    signals = ((name, "gauge", _OF_RESOURCE, HELP_OF_SIGNALS) for name in METRICS)
    others = ((name, "gauge", _OF_RESOURCE, text) for name, text in HELP.items())
    yield _table(chain(signals, others))


def _router() -> Iterator[str]:
    yield "## Of a router pod"
    yield (
        "On port 29000 at `/metrics`. NetworkPolicies admit the operator, and the namespace in the chart value "
        "`autoscaling.prometheusNamespace`. Prompt and answer lengths, and the counters of the KV transfer, are read "
        "from the pods of P and D: all router pods count the same pods, so take one of them, not their sum."
    )
    counters = ((name, "counter", label, text) for name, (label, text) in transfers.HELP.items())
    yield _table(
        chain(
            _rows(record.Metrics().registry),
            _described(verification_metrics.HELP, "gauge"),
            ((names.METRIC_POD_FAULT, "gauge", "pod, fault", faults.HELP),),
            ((names.METRIC_ADMISSION_TIME, "gauge", "decode", admission_metrics.HELP),),
            counters,
            _described(lengths.HELP, "histogram"),
        )
    )


def _batch() -> Iterator[str]:
    yield "## Of the runner of a PDBatch"
    yield "The operator reads them for the status of the batch."
    yield _table(_rows(RunProgress(total=0).registry))


def _rows(registry: CollectorRegistry) -> Iterator[Row]:
    """Metrics of a registry. A metric without samples is in no public list of it."""
    for collector in registry._collector_to_names:
        if isinstance(collector, MetricWrapperBase) and type(collector) in _KINDS:
            kind = _KINDS[type(collector)]
            name = f"{collector._name}_total" if kind == "counter" else collector._name
            yield name, kind, ", ".join(collector._labelnames), collector._documentation


def _described(texts: Mapping[str, str], kind: str) -> Iterator[Row]:
    return ((name, kind, "", text) for name, text in texts.items())


def _table(rows: Iterable[Row]) -> str:
    cells = ((code(name), kind, plain(labels), plain(text)) for name, kind, labels, text in rows)
    return table(("metric", "type", "labels", "meaning"), cells)
