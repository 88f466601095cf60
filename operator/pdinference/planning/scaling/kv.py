"""KV demand: the KV cache that a pod needs, in units of its own cache.

Tests: tests/loadmetrics/test_signals.py
"""


def kv_demand(*, usage: float, queued: float, running: float, tokens: float, usual: float) -> float:
    """KV cache in use, plus what queued requests will need when they finish; can exceed 1.

    A queued request counts as the mean of finished requests, but at least as the mean of the running ones.

    Args:
        usage: Share of the cache in use, 0 to 1.
        queued: Requests that wait without KV blocks of their own.
        running: Requests in the pod that have KV blocks.
        tokens: Size of the cache, in tokens.
        usual: Mean prompt plus mean answer of finished requests, in tokens; 0 when unknown.
    """
    each = max(usual, usage * tokens / running) if running else usual
    return usage + max(0.0, queued) * each / tokens
