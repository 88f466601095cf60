"""The scaling signals: their names, and their units. `prefill_load` and `decode_load` compute the two loads.

A signal is a sum over the serving pods of one role of one PDInference. An HPA with an AverageValue computes
ceil(sum / target) from it, whatever the current replica count.

Tests: tests/loadmetrics/test_latencies.py, tests/loadmetrics/test_signals.py, tests/manifests/test_sources.py
"""

from enum import StrEnum
from itertools import product
from typing import Final


class Signal(StrEnum):
    """Names of the metrics that the operator's metrics API serves for each role."""

    PREFILL_LOAD = "pdinference_prefill_load"
    """Arriving and queued prefill work, in units of busy pods; can exceed the number of pods."""
    DECODE_LOAD = "pdinference_decode_load"
    """Arriving and queued decode work, in units of busy pods; can exceed the number of pods."""
    KV_DEMAND = "pdinference_kv_demand"
    """KV cache in use and needed by queued requests, in units of a pod's KV cache; can exceed the number of pods."""
    KV_USAGE = "pdinference_kv_usage"
    """KV cache used, 0 to 1 for each pod."""
    WAITING_REQUESTS = "pdinference_waiting_requests"
    """Requests that wait in vLLM."""
    RUNNING_REQUESTS = "pdinference_running_requests"
    """Requests that run in vLLM."""
    QUEUED_PROMPT_TOKENS = "pdinference_queued_prompt_tokens"
    """Prompt tokens of waiting requests."""
    PROMPT_TOKENS_PER_SECOND = "pdinference_prompt_tokens_per_second"
    """Prompt tokens processed."""
    GENERATION_TOKENS_PER_SECOND = "pdinference_generation_tokens_per_second"
    """Tokens generated."""


class Latency(StrEnum):
    """Latencies, for dashboards and for HPA metrics of type Value."""

    TIME_TO_FIRST_TOKEN = "pdinference_time_to_first_token_milliseconds"  # noqa: S105 - no password
    INTER_TOKEN = "pdinference_inter_token_latency_milliseconds"  # noqa: S105 - no password


_QUANTILES: Final = (50, 90, 99)
LATENCY_METRICS: Final = {f"{kind}_p{percent}": (kind, percent / 100) for kind, percent in product(Latency, _QUANTILES)}
"""The latency and the quantile of each metric name."""

METRICS: Final = (*Signal, *LATENCY_METRICS)
"""Every metric that the operator's metrics API serves."""

WINDOW_SECONDS = 30
"""Window of rates: long enough for some requests to finish, short enough to show a burst."""
DRAIN_SECONDS = 900
"""Time in which the recommended pods would drain the queue. It is long: a new pod is ready after a minute or more, when
most of the queue has drained, and pods added to drain it faster would stay for minutes."""
