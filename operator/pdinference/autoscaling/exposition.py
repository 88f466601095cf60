"""From vLLM's /metrics to the few numbers that matter."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from pdinference.planning.observed import KvCache
from pdinference.planning.scaling.vllm_metrics import HOLDING_STAGES, VllmMetric

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
    engines = _values(samples, VllmMetric.KV_USAGE)
    return Reading(
        kv_usage=sum(engines) / len(engines) if engines else None,
        running=_sum(samples, VllmMetric.RUNNING),
        waiting=_sum(samples, VllmMetric.WAITING),
        holding=_sum(samples, VllmMetric.KV_FETCHES, lambda labels: labels.get("stage") in HOLDING_STAGES) or 0.0,
        cache=_cache(samples),
        prompt_tokens=_sum(samples, VllmMetric.PROMPT_TOKENS),
        generation_tokens=_sum(samples, VllmMetric.GENERATION_TOKENS),
        prompt_lengths=_histogram(samples, VllmMetric.PROMPT_LENGTHS),
        answer_lengths=_histogram(samples, VllmMetric.ANSWER_LENGTHS),
        prefill=_histogram(samples, VllmMetric.PREFILL_SECONDS),
        first_token=_histogram(samples, VllmMetric.FIRST_TOKEN_SECONDS),
        inter_token=_histogram(samples, VllmMetric.INTER_TOKEN_SECONDS),
    )


_WANTED: Final = tuple(VllmMetric)


def _samples(text: str) -> Iterator[Sample]:
    """The samples that are wanted; the rest, most of some hundred lines, is not worth parsing."""
    wanted = "\n".join(line for line in text.splitlines() if line.startswith(_WANTED))
    for family in text_string_to_metric_families(wanted + "\n"):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


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
        if name == VllmMetric.CACHE:
            try:
                blocks += int(labels["num_gpu_blocks"])
                size = int(labels["block_size"])
            except (KeyError, ValueError):
                return None
    return KvCache(blocks, size) if blocks and size else None
