"""The scaling signals: their names, and their units. `prefill` and `decode` have the arithmetic of the two loads.

A signal is a sum over the serving pods of one role of one PDInference, so that an HPA with an AverageValue computes
ceil(sum / target), whatever number of pods there is at the moment.
"""

from enum import StrEnum
from itertools import product
from typing import Final


class Signal(StrEnum):
    """Names of the metrics that the operator's metrics API serves for each role."""

    PREFILL_LOAD = "pdinference_prefill_load"
    """Prefill work that arrives and waits, in pods that it keeps busy; can exceed the pods there are."""
    DECODE_LOAD = "pdinference_decode_load"
    """Decode work that arrives and waits, in pods that it keeps busy; can exceed the pods there are."""
    KV_DEMAND = "pdinference_kv_demand"
    """KV cache used and still needed by waiting requests, in pods' KV caches; can exceed the pods there are."""
    KV_USAGE = "pdinference_kv_usage"
    """KV cache used, 0 to 1 for each pod."""
    WAITING_REQUESTS = "pdinference_waiting_requests"
    """Requests that wait in vLLM."""
    RUNNING_REQUESTS = "pdinference_running_requests"
    """Requests that vLLM works on."""
    QUEUED_PROMPT_TOKENS = "pdinference_queued_prompt_tokens"
    """Prompt tokens of waiting requests."""
    PROMPT_TOKENS_PER_SECOND = "pdinference_prompt_tokens_per_second"
    """Prompt tokens worked off."""
    GENERATION_TOKENS_PER_SECOND = "pdinference_generation_tokens_per_second"
    """Tokens generated."""


class Latency(StrEnum):
    """What is timed: for people, and for HPA metrics of the type Value."""

    TIME_TO_FIRST_TOKEN = "pdinference_time_to_first_token_milliseconds"  # noqa: S105 - no password
    INTER_TOKEN = "pdinference_inter_token_latency_milliseconds"  # noqa: S105 - no password


_QUANTILES: Final = (50, 90, 99)
LATENCY_METRICS: Final = {f"{kind}_p{percent}": (kind, percent / 100) for kind, percent in product(Latency, _QUANTILES)}
"""Metric names, and the latency and quantile that each stands for."""

METRICS: Final = (*Signal, *LATENCY_METRICS)
"""Every metric that the operator's metrics API serves."""

WINDOW_SECONDS = 30
"""Over how long rates are taken: long enough for some requests to finish, short enough to notice a burst."""
DRAIN_SECONDS = 900
"""Within how long the pods asked for would work off what waits. Long: new pods come after a minute or more, and what
they find waiting is gone soon after, while pods that are asked for to hurry it stay for minutes."""
