"""Names of the vLLM metrics from which the operator computes the load.

Tests: tests/checks/test_vllm_names.py, tests/loadmetrics/test_exposition.py
"""

from enum import StrEnum
from typing import Final

HOLDING_STAGES: Final = ("in_progress", "completed_waiting")
"""Stages of `KV_FETCHES` in which a waiting request already has its KV blocks."""


class VllmMetric(StrEnum):
    """Families of vLLM 0.32 and 0.33; histograms without `_sum`, `_count` and `_bucket`."""

    KV_USAGE = "vllm:kv_cache_usage_perc"
    """Share of the KV cache in use, 0 to 1."""
    RUNNING = "vllm:num_requests_running"
    """Running requests."""
    WAITING = "vllm:num_requests_waiting"
    """Waiting requests."""
    KV_FETCHES = "vllm:num_requests_kv_fetch_by_stage"
    """Requests whose KV cache D fetches from P, by `stage`."""
    CACHE = "vllm:cache_config_info"
    """The size of the KV cache, in labels."""
    PROMPT_TOKENS = "vllm:prompt_tokens_total"
    """Counter of prompt tokens."""
    GENERATION_TOKENS = "vllm:generation_tokens_total"
    """Counter of generated tokens."""
    PROMPT_LENGTHS = "vllm:request_prompt_tokens"
    """Histogram of prompt tokens of finished requests."""
    ANSWER_LENGTHS = "vllm:request_generation_tokens"
    """Histogram of generated tokens of finished requests."""
    PREFILL_SECONDS = "vllm:request_prefill_time_seconds"
    """Histogram of the prefill time of finished requests."""
    FIRST_TOKEN_SECONDS = "vllm:time_to_first_token_seconds"  # noqa: S105 - no password
    """Histogram of the time to the first token."""
    INTER_TOKEN_SECONDS = "vllm:inter_token_latency_seconds"  # noqa: S105 - no password
    """Histogram of the time between tokens."""
