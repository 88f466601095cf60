"""The histograms of latencies that routers export: their names and the bounds of their buckets.

The operator compares them with `spec.objectives`. Between 10 ms and 100 s (time to first token), and between 1 ms and
1 s (time per output token), a bound is at most 10 % above the one before, and round values are bounds. So an objective
that lies inside a bucket is off by less than 10 %, whatever the distribution within the bucket.

Tests: tests/router/test_timing.py, tests/loadmetrics/test_streams.py
"""

from typing import Final

_DECADE: Final = (
    *(1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.65, 1.8, 1.9),
    *(2, 2.15, 2.3, 2.5, 2.75),
    *(3, 3.25, 3.5, 3.75),
    *(4, 4.4, 4.7, 5, 5.5, 6, 6.5, 7, 7.5, 8, 8.75, 9.5),
)


def _decades(first: int, last: int) -> tuple[float, ...]:
    """The bounds from 10^first to 10^last seconds."""
    steps = (float(f"{step}e{exponent}") for exponent in range(first, last) for step in _DECADE)
    return (*steps, float(f"1e{last}"))


FIRST_TOKEN: Final = "pdinference_stream_time_to_first_token_seconds"  # noqa: S105 - no password
OUTPUT_TOKEN: Final = "pdinference_stream_time_per_output_token_seconds"  # noqa: S105 - no password
ABANDONED: Final = "pdinference_stream_abandoned_seconds"
FAILED: Final = "pdinference_stream_failed_total"
PREFIX: Final = "pdinference_stream_"
"""Common prefix of their names. No other metric of a router has it, so that readers skip them at no cost."""

FIRST_TOKEN_BOUNDS: Final = (*_decades(-2, 2), 150.0, 300.0, 600.0)
"""Seconds."""
OUTPUT_TOKEN_BOUNDS: Final = (*_decades(-3, 0), 2.0, 5.0, 10.0)
"""Seconds."""
ABANDONED_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds. Coarse, because few requests are expected in it."""
