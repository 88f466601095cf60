"""From vLLM's /metrics to the few numbers that matter."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from pdinference.planning.observed import KvCache

_PREFIX: Final = "vllm:"
_HOLDING: Final = frozenset({"in_progress", "completed_waiting"})
"""Stages of `vllm:num_requests_kv_fetch_by_stage` in which a waiting request has its KV blocks already."""

Sample = tuple[str, dict[str, str], float]


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram since the process started: `buckets` are upper bound and cumulative count, in order."""

    buckets: tuple[tuple[float, float], ...]
    total: float
    count: float


@dataclass(frozen=True, slots=True)
class Reading:
    """One pod's metrics, summed over the engines in it (data parallelism). None is what vLLM did not tell.

    Attributes:
        kv_usage: Part of the KV cache that is used, 0 to 1; mean over engines.
        running: Requests that are worked on.
        waiting: Requests that wait.
        holding: Those among them that have their KV blocks already, because D pulls their cache.
        cache: Size of the KV cache.
        prompt_tokens: Prompt tokens so far.
        generation_tokens: Generated tokens so far.
        prompt_lengths: Prompt tokens of finished requests.
        answer_lengths: Generated tokens of finished requests.
        prefill: Prefill time of finished requests.
        first_token: Time to the first token.
        inter_token: Time between tokens.
    """

    kv_usage: float | None
    running: float | None
    waiting: float | None
    holding: float
    cache: KvCache | None
    prompt_tokens: float | None
    generation_tokens: float | None
    prompt_lengths: Histogram | None
    answer_lengths: Histogram | None
    prefill: Histogram | None
    first_token: Histogram | None
    inter_token: Histogram | None

    @property
    def counters(self) -> tuple[float, ...]:
        """Numbers that only grow while the process lives."""
        histograms = (self.prompt_lengths, self.answer_lengths, self.prefill, self.first_token, self.inter_token)
        tokens = (self.prompt_tokens or 0.0, self.generation_tokens or 0.0)
        return (*tokens, *(histogram.count if histogram else 0.0 for histogram in histograms))


def reading(text: str) -> Reading:
    """Read an answer of /metrics.

    Raises:
        ValueError: It is not in Prometheus' text format.
    """
    samples = list(_samples(text))
    engines = _values(samples, "kv_cache_usage_perc")
    return Reading(
        kv_usage=sum(engines) / len(engines) if engines else None,
        running=_sum(samples, "num_requests_running"),
        waiting=_sum(samples, "num_requests_waiting"),
        holding=_sum(samples, "num_requests_kv_fetch_by_stage", lambda labels: labels.get("stage") in _HOLDING) or 0.0,
        cache=_cache(samples),
        prompt_tokens=_sum(samples, "prompt_tokens_total"),
        generation_tokens=_sum(samples, "generation_tokens_total"),
        prompt_lengths=_histogram(samples, "request_prompt_tokens"),
        answer_lengths=_histogram(samples, "request_generation_tokens"),
        prefill=_histogram(samples, "request_prefill_time_seconds"),
        first_token=_histogram(samples, "time_to_first_token_seconds"),
        inter_token=_histogram(samples, "inter_token_latency_seconds"),
    )


_WANTED: Final = tuple(
    f"{_PREFIX}{name}"
    for name in (
        "kv_cache_usage_perc",
        "num_requests_running",
        "num_requests_waiting",
        "num_requests_kv_fetch_by_stage",
        "cache_config_info",
        "prompt_tokens_total",
        "generation_tokens_total",
        "request_prompt_tokens_",
        "request_generation_tokens_",
        "request_prefill_time_seconds_",
        "time_to_first_token_seconds_",
        "inter_token_latency_seconds_",
    )
)


def _samples(text: str) -> Iterator[Sample]:
    """The samples that are wanted; the rest, most of some hundred lines, is not worth parsing."""
    wanted = "\n".join(line for line in text.splitlines() if line.startswith(_WANTED))
    for family in text_string_to_metric_families(wanted + "\n"):
        for sample in family.samples:
            yield sample.name.removeprefix(_PREFIX), sample.labels, sample.value


def _values(
    samples: Iterable[Sample], name: str, fits: Callable[[dict[str, str]], bool] = lambda _: True
) -> list[float]:
    return [value for found, labels, value in samples if found == name and fits(labels)]


def _sum(samples: Iterable[Sample], name: str, fits: Callable[[dict[str, str]], bool] = lambda _: True) -> float | None:
    values = _values(samples, name, fits)
    return sum(values) if values else None


def _histogram(samples: Iterable[Sample], name: str) -> Histogram | None:
    buckets: dict[float, float] = {}
    for found, labels, value in samples:
        if found == f"{name}_bucket":
            bound = float(labels["le"])
            buckets[bound] = buckets.get(bound, 0.0) + value
    count = _sum(samples, f"{name}_count")
    if count is None:
        return None
    return Histogram(tuple(sorted(buckets.items())), _sum(samples, f"{name}_sum") or 0.0, count)


def _cache(samples: Iterable[Sample]) -> KvCache | None:
    """The KV cache of all engines of the pod together; they are alike."""
    blocks, size = 0, 0
    for name, labels, _ in samples:
        if name == "cache_config_info":
            try:
                blocks += int(labels["num_gpu_blocks"])
                size = int(labels["block_size"])
            except (KeyError, ValueError):
                return None
    return KvCache(blocks, size) if blocks and size else None
