"""What the router adds to the requests to P and D, so that the KV cache of a prompt goes from P to D."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

TransferParams = dict[str, Any]
"""`kv_transfer_params` of a request or of a response (vllm/entrypoints/openai/chat_completion/protocol.py)."""

MEMBER = "kv_transfer_params"
"""The member of bodies that has them."""


class HandoverError(Exception):
    """The response of P does not say where its KV cache is."""


class Handover(ABC):
    """The two requests of a hand-over: first to P, which answers after one token, then to D.

    Attributes:
        name: Value of the router's option `--handover`.
    """

    name: ClassVar[str]

    @abstractmethod
    def to_prefill(self) -> TransferParams | None:
        """Parameters of the request to P; None if it needs none."""

    @abstractmethod
    def to_decode(self, response: Mapping[str, Any]) -> TransferParams | None:
        """Parameters of the request to D; None if it needs none.

        Args:
            response: The response of P.

        Raises:
            HandoverError: P computed the prompt, but D cannot find its KV cache.
        """


class NixlHandover(Handover):
    """D gets the engine, address, blocks and number of stages from the response of P.

    The same parameters serve NixlConnector, which pulls, and NixlPushConnector. P releases the blocks once D has read
    them, so a response of P serves one request to one D (vllm/distributed/kv_transfer/kv_connector/v1/nixl).
    """

    name = "nixl"

    def to_prefill(self) -> TransferParams:
        """P keeps its blocks until D has read them."""
        return {
            "do_remote_decode": True,
            "do_remote_prefill": False,
            "remote_engine_id": None,
            "remote_block_ids": None,
            "remote_host": None,
            "remote_port": None,
        }

    def to_decode(self, response: Mapping[str, Any]) -> TransferParams:
        """All that P returned, with members that only later releases of vLLM have."""
        found = response.get(MEMBER)
        if not isinstance(found, dict) or not found.get("remote_engine_id"):
            raise HandoverError("the response of P has no kv_transfer_params")
        return found


class PromptHandover(Handover):
    """D finds the KV cache by the tokens of the prompt: SharedStorage, LMCache."""

    name = "prompt"

    def to_prefill(self) -> None:
        """P stores the KV cache of every prompt."""

    def to_decode(self, response: Mapping[str, Any]) -> None:
        """D looks up every prompt."""


HANDOVERS: Mapping[str, Handover] = {handover.name: handover for handover in (NixlHandover(), PromptHandover())}
"""The hand-overs, by name."""
