"""How much KV cache a pod needs, in units of its own cache."""


def kv_demand(*, usage: float, queued: float, running: float, tokens: float, usual: float) -> float:
    """KV cache in use, plus what queued requests will need at their end; can exceed 1.

    A queued request counts as large as finished requests were, but not below the mean of the running ones.

    Args:
        usage: Part of the cache in use, 0 to 1.
        queued: Requests that wait without KV blocks of their own.
        running: Requests in the pod that have KV blocks.
        tokens: Size of the cache, in tokens.
        usual: Mean prompt plus mean answer of finished requests, in tokens; 0 when unknown.
    """
    each = max(usual, usage * tokens / running) if running else usual
    return usage + max(0.0, queued) * each / tokens
