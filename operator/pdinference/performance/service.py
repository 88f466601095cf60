"""What a request takes besides the steps of an engine: HTTP, tokenizer, router, hand-over from P to D.

Tests: tests/advise/simulation/test_fleet.py
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Service:
    """Seconds besides the steps.

    Attributes:
        request: From the client to the engine's queue: router, HTTP, parsing, and back with the first token.
        prompt_token: Of the tokenizer and of reading the request, for each prompt token, on the one CPU of the API
            server.
        hand_over: From P's answer to D's queue: the answer through the router, and the second request.
        hiccup_share: Share of requests that wait for the CPU of the router or an API server.
        hiccup: How long they wait, as a mean.
        token_out: CPU time of the API server for each token of an answer.
        step_out: CPU time of the API server for each step that gives tokens.
        request_cpu: CPU time of the API server for each request.
        turns: How often a request waits for its turn in the API server's event loop, up to its first token.
    """

    request: float
    prompt_token: float
    hand_over: float
    token_out: float
    step_out: float
    request_cpu: float
    turns: float
    hiccup_share: float
    hiccup: float


SERVICE: Final = Service(
    request=0.0026,
    prompt_token=0.0000005,
    hand_over=0.0127,
    token_out=0.000061,
    step_out=0.00043,
    request_cpu=0.0022,
    turns=20,
    hiccup_share=0.03,
    hiccup=0.02,
)
"""Measured on machines of 16 CPU cores: our router or vllm-router 0.1.17, vLLM 0.26.0, one API server."""
