"""Lengths of prompts and answers: the histograms of vLLM in D pods, as histograms of the router.

The router itself does not know them: prompts come as text, and one event of a stream may have several tokens.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Final

from prometheus_client.core import HistogramMetricFamily

from pdinference.api.names import METRIC_ANSWER_LENGTHS, METRIC_PROMPT_LENGTHS
from pdinference.loadmetrics.scraping.text_format import Sample, measured

_HISTOGRAMS: Final = {
    "vllm:request_prompt_tokens": METRIC_PROMPT_LENGTHS,
    "vllm:request_generation_tokens": METRIC_ANSWER_LENGTHS,
}
"""vllm/v1/metrics/loggers.py. They count finished requests."""
_BOUNDS: Final = frozenset({*(digit * 10.0**power for power, digit in product(range(8), (1, 2, 5))), math.inf})
"""Buckets that are kept: those of vLLM (vllm/v1/metrics/buckets.py), up to 50 million tokens."""
_BUCKETS: Final = {f"{theirs}_bucket".encode(): ours for theirs, ours in _HISTOGRAMS.items()}
_SUMS: Final = {f"{theirs}_sum".encode(): ours for theirs, ours in _HISTOGRAMS.items()}
HELP: Final = {
    METRIC_PROMPT_LENGTHS: "Prompt tokens of the requests that D has finished.",
    METRIC_ANSWER_LENGTHS: "Generated tokens of the requests that D has finished.",
}
NAMES: Final = frozenset({*_BUCKETS, *_SUMS})
"""Metrics of vLLM that count."""


def series(found: Sample) -> tuple[str, str] | None:
    """The series of a sample whose name is in `NAMES`: our name, and the bound of a bucket or empty for the sum."""
    if name := _SUMS.get(found.name):
        return name, ""
    text = found.labels.get(b"le", b"")
    bound = math.inf if text == b"+Inf" else measured(text)
    return (_BUCKETS[found.name], _text(bound)) if bound in _BOUNDS else None


def families(totals: Mapping[tuple[str, str], float]) -> Iterator[HistogramMetricFamily]:
    """The histograms, from the totals of their series. Without requests they are absent."""
    for name, description in HELP.items():
        buckets = sorted(
            ((bound, total) for (of, bound), total in totals.items() if of == name and bound),
            key=lambda bucket: float(bucket[0]),
        )
        if buckets and buckets[-1][0] == _text(math.inf):
            yield HistogramMetricFamily(name, description, buckets=buckets, sum_value=totals.get((name, ""), 0.0))


def _text(bound: float) -> str:
    return "+Inf" if math.isinf(bound) else str(bound)
