"""The endpoints of vLLM that clients may use.

Tests: tests/router/test_arguments.py, tests/router/test_fuzzer.py
"""

from collections.abc import Mapping
from typing import Final

POST: Final[Mapping[str, tuple[str, ...]]] = {
    "/v1/chat/completions": ("max_tokens", "max_completion_tokens"),
    "/v1/completions": ("max_tokens",),
    "/v1/responses": ("max_output_tokens",),
    "/v1/messages": ("max_tokens",),
    **dict.fromkeys(
        (
            "/v1/messages/count_tokens",
            "/v1/embeddings",
            "/v1/audio/transcriptions",
            "/v1/audio/translations",
            "/v1/score",
            "/v1/rerank",
            "/v2/rerank",
            "/score",
            "/rerank",
            "/classify",
            "/pooling",
            "/tokenize",
            "/detokenize",
        ),
        (),
    ),
}
"""Endpoints of requests with a body, and the members that limit the number of generated tokens. With such members, a
request is split into prefill and decode; without them, D answers alone. All other endpoints, such as those that load
adapters or profile, are refused."""
GET: Final = frozenset({"/v1/models", "/version"})

FORMS: Final = frozenset({"/v1/audio/transcriptions", "/v1/audio/translations"})
"""Endpoints whose body is a form."""
WITHOUT_MODEL: Final = frozenset({"/v1/messages/count_tokens", "/tokenize", "/detokenize"})
"""Endpoints that no tokens are computed for."""
