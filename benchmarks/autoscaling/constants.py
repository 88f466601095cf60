"""Where the numbers of the simulated devices come from, and the objectives that requests are judged by.

Measured (two H200 joined by NVLink, vLLM, Llama-3.1-8B in bf16, 8,000-token prompts, 150 output tokens, block size
128, one P and one D): a prefill GPU is about 90 % busy at 4.5 requests a second; ITL 5.4 to 5.6 ms with about four
requests in decode; KV cache 899,104 tokens; a 1 GB transfer takes 15 ms. README.md compares the simulated latencies
with the measured ones.
"""

LAYERS, HIDDEN, KV_HEADS, HEAD = 32, 4096, 8, 128
PARAMETERS = 8.03e9
KV_BYTES_PER_TOKEN = 2 * 2 * LAYERS * KV_HEADS * HEAD
"""Bytes: keys and values, two bytes each."""

KV_TOKENS = 899_104
"""Measured: what the KV cache of one GPU holds."""

_MEASURED_PREFILL_TOKENS = 8000
_MEASURED_PREFILL_SECONDS = 0.9 / 4.5
"""Measured: 90 % busy at 4.5 requests a second."""
_MEASURED_ITL = 0.0055
_MEASURED_IN_DECODE = 4.5 * 150 * _MEASURED_ITL
"""Requests in decode at that rate, by Little's law."""


def _prefill_flops(tokens: float) -> float:
    """Matrix products with the weights, and causal attention, which grows with the square."""
    return 2 * PARAMETERS * tokens + 2 * LAYERS * HIDDEN * tokens**2


_FLOPS = _prefill_flops(_MEASURED_PREFILL_TOKENS) / _MEASURED_PREFILL_SECONDS


def prefill_seconds(tokens: float) -> float:
    """How long a P pod works on a prompt: compute-bound, at the rate measured with 8,000 tokens."""
    return _prefill_flops(tokens) / _FLOPS


_BANDWIDTH = (2 * PARAMETERS + _MEASURED_IN_DECODE * 8075 * KV_BYTES_PER_TOKEN) / _MEASURED_ITL


def token_seconds(kv_tokens: float) -> float:
    """How long a D pod takes for one token of each running request: it reads all weights and the KV cache in use."""
    return (2 * PARAMETERS + kv_tokens * KV_BYTES_PER_TOKEN) / _BANDWIDTH


TRANSFER_SECONDS_PER_TOKEN = 0.015 / (1e9 / KV_BYTES_PER_TOKEN)
"""Measured: 15 ms for 1 GB."""
OVERHEAD_SECONDS = 0.03
"""Assumed: router, HTTP, tokenizer and scheduling of the two hops (measured TTFT at light load less prefill)."""

STARTUP_SECONDS = 90
"""Assumed: from the decision to a ready pod: schedule and start 10 s, import 20 s, 16 GB of weights from a local disk
or page cache 15 s, compilation cache and CUDA graphs 35 s, readiness 10 s. The image is on the node. Varied below."""
STARTUP_SPREAD = 0.2
"""Assumed: each start takes this share more or less, uniformly."""

SCRAPE_SECONDS = 5
"""How often the operator reads the pods' metrics. The peers get the same; Prometheus and an adapter would be slower."""

MIN_PODS, MAX_PODS = 1, 16

ROUTING = "least_loaded"
"""How the router chooses pods, the same for all policies of scaling: the operator's default."""

TTFT_OBJECTIVE = 2.0
"""Seconds for prompts of up to 8,000 tokens, in proportion for longer ones."""
ITL_OBJECTIVE = 0.040
"""Seconds a token, as the mean of a request: 25 tokens a second, several times as fast as one reads."""


def ttft_objective(prompt_tokens: int) -> float:
    """Within how many seconds the first token of a request should come."""
    return TTFT_OBJECTIVE * max(1.0, prompt_tokens / _MEASURED_PREFILL_TOKENS)
