"""Tokens of answers by client, from what vLLM reports.

An answer counts once, whatever was tried before: what other pods computed for it in vain is not the client's.

Tests: tests/router/test_client_tokens.py
"""

from prometheus_client import CollectorRegistry, Counter

from pdinference.router.usage import Usage


class ClientTokens:
    """Counts tokens of clients."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._tokens = Counter(
            "pdinference_router_client_tokens",
            "Tokens by name of the API key and kind: prompt, those of them that were cached (cached), answer.",
            ("client", "kind"),
            registry=registry,
        )
        self._unreported = Counter(
            "pdinference_router_client_unreported_answers",
            "Answers by name of the API key of which not all tokens are known: streams that ended early and could not "
            "have gone on at another pod, and answers without a report.",
            ("client",),
            registry=registry,
        )

    def count(self, client: str, usage: Usage | None, *, known: bool) -> None:
        """Count an answer.

        Args:
            client: Name of the API key; empty without keys.
            usage: Its tokens, as far as they are known.
            known: Whether these are all.
        """
        if usage is not None:
            for kind, tokens in (("prompt", usage.prompt), ("cached", usage.cached or 0), ("answer", usage.answer)):
                self._tokens.labels(client, kind).inc(tokens)
        if not known:
            self._unreported.labels(client).inc()
