"""What is assumed beside the simulator of the package, and the objectives that requests are judged by."""

STARTUP_SECONDS = 90
"""Assumed: from the decision to a ready pod: schedule and start 10 s, import 20 s, 16 GB of weights from a local disk
or page cache 15 s, compilation cache and CUDA graphs 35 s, readiness 10 s. The image is on the node. Varied below."""
STARTUP_SPREAD = 0.2
"""Assumed: each start takes this share more or less, uniformly."""

MIN_PODS, MAX_PODS = 1, 16

ROUTING = "least_loaded"
"""How the router chooses pods, the same for all policies of scaling: no two prompts have a beginning in common."""

_LONG_PROMPT = 8000
TTFT_OBJECTIVE = 2.0
"""Seconds for prompts of up to 8,000 tokens, in proportion for longer ones."""
TPOT_OBJECTIVE = 0.040
"""Seconds a token, as the mean of a request: 25 tokens a second, several times as fast as one reads."""


def ttft_objective(prompt_tokens: int) -> float:
    """Within how many seconds the first token of a request should come."""
    return TTFT_OBJECTIVE * max(1.0, prompt_tokens / _LONG_PROMPT)
