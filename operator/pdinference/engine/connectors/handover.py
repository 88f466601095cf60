"""What the router adds to the requests to P and D, so that the KV cache of a prompt goes from P to D.

Tests: tests/router/test_handover.py, tests/router/test_hops.py, tests/router/test_transfers.py
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final

import msgspec

from pdinference.api.names import METRIC_KV_BYTES, METRIC_KV_TRANSFER_SECONDS, METRIC_KV_TRANSFERS, TransferResult

TransferParams = dict[str, Any]
"""`kv_transfer_params` of a request or of a response (vllm/entrypoints/openai/chat_completion/protocol.py)."""

MEMBER = "kv_transfer_params"
"""The member of bodies that has them."""

Counter = tuple[str, str]
"""A series of the router: its name, and the value of its label; empty without one."""

MOONCAKE_BOOTSTRAP_PORT: Final = 8998
"""vLLM's default for VLLM_MOONCAKE_BOOTSTRAP_PORT."""


class HandoverError(Exception):
    """The response of P does not say where its KV cache is."""


class WrongHandoverError(Exception):
    """The response of P says something of its KV cache that cannot be: P is damaged, or not what it seems."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """A request to P.

    Attributes:
        transfer: Id of the hand-over, made by the router.
        host: Address of P.
        further_hosts: Addresses of the further nodes of the P instance, whose ranks have KV cache of their own.
        engine: Id of the engine in P that computes the prompt; empty if the connector has no bootstrap server.
        bootstrap: URL of the bootstrap server in P; empty without one.
    """

    transfer: str
    host: str = ""
    further_hosts: tuple[str, ...] = ()
    engine: str = ""
    bootstrap: str = ""


class Handover(ABC):
    """The two requests of a hand-over: first to P, which answers after one token, then to D.

    Attributes:
        name: Value of the router's option `--handover`.
        bootstrap_port: Port at which P names its engines (`GET /query`); None if the connector has no such server.
        members: Further members of the request to P.
        chunk: Tokens of a prompt that move together, beside vLLM's blocks.
        counters: Counters of P's and D's vLLM that count transfers, each with the series of the router that has their
            sum. Without them, only the origin of D's prompt tokens is known.
    """

    name: ClassVar[str]
    bootstrap_port: ClassVar[int | None] = None
    members: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    chunk: ClassVar[int] = 1
    counters: ClassVar[Mapping[bytes, Counter]] = MappingProxyType({})

    @abstractmethod
    def to_prefill(self, prefill: Prefill) -> TransferParams | None:
        """Parameters of the request to P; None if it needs none."""

    @abstractmethod
    def to_decode(self, prefill: Prefill, response: Mapping[str, Any]) -> TransferParams | None:
        """Parameters of the request to D; None if it needs none.

        Args:
            prefill: The request to P.
            response: The response of P.

        Raises:
            HandoverError: P computed the prompt, but D cannot find its KV cache.
            WrongHandoverError: P names KV cache that is not its own.
        """


_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_Size = Annotated[int, msgspec.Meta(ge=1, le=4096)]
_Port = Annotated[int, msgspec.Meta(ge=1024, le=65535)]


class _NixlParams(msgspec.Struct):
    """What P returns (vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_scheduler.py, request_finished)."""

    remote_engine_id: _Id
    remote_block_ids: list[list[_Count]]
    remote_host: Annotated[str, msgspec.Meta(max_length=64)]
    remote_port: _Port
    remote_request_id: _Id
    tp_size: _Size
    do_remote_prefill: bool
    do_remote_decode: bool = False
    dcp_size: _Size | msgspec.UnsetType = msgspec.UNSET
    pp_size: _Size | msgspec.UnsetType = msgspec.UNSET
    remote_block_size: _Size | msgspec.UnsetType | None = msgspec.UNSET
    remote_num_tokens: _Count | msgspec.UnsetType = msgspec.UNSET
    remote_blocks_expiry_time: float | msgspec.UnsetType | None = msgspec.UNSET
    transfer_mode: Annotated[str, msgspec.Meta(max_length=32)] | msgspec.UnsetType = msgspec.UNSET
    remote_prefill_cached_tokens: _Count | msgspec.UnsetType = msgspec.UNSET
    remote_registration_generation: _Count | msgspec.UnsetType = msgspec.UNSET


class NixlHandover(Handover):
    """D gets the engine, address, blocks and number of stages from the response of P.

    The same parameters serve NixlConnector, which pulls, and NixlPushConnector. P releases the blocks once D has read
    them, so a response of P serves one request to one D (vllm/distributed/kv_transfer/kv_connector/v1/nixl).
    """

    name = "nixl"
    counters = MappingProxyType(
        {  # vllm/distributed/kv_transfer/kv_connector/v1/nixl/stats.py. D counts what it pulls, P what it pushes.
            b"vllm:nixl_bytes_transferred_count": (METRIC_KV_TRANSFERS, TransferResult.COMPLETE),
            b"vllm:nixl_num_failed_transfers_total": (METRIC_KV_TRANSFERS, TransferResult.FAILED),
            b"vllm:nixl_num_kv_expired_reqs_total": (METRIC_KV_TRANSFERS, TransferResult.EXPIRED),
            b"vllm:nixl_bytes_transferred_sum": (METRIC_KV_BYTES, ""),
            b"vllm:nixl_xfer_time_seconds_sum": (METRIC_KV_TRANSFER_SECONDS, ""),
        }
    )

    def to_prefill(self, _prefill: Prefill) -> TransferParams:
        """P keeps its blocks until D has read them."""
        return {
            "do_remote_decode": True,
            "do_remote_prefill": False,
            "remote_engine_id": None,
            "remote_block_ids": None,
            "remote_host": None,
            "remote_port": None,
        }

    def to_decode(self, prefill: Prefill, response: Mapping[str, Any]) -> TransferParams:
        """What P returned. D connects to the address in it, so it has to be one of P."""
        found = response.get(MEMBER)
        if not isinstance(found, dict) or not found.get("remote_engine_id"):
            raise HandoverError("the response of P has no kv_transfer_params")
        try:
            given = msgspec.convert(found, _NixlParams)
        except msgspec.ValidationError as error:
            raise WrongHandoverError(f"the kv_transfer_params of P are malformed: {error}") from None
        if given.do_remote_decode or not given.do_remote_prefill:
            raise WrongHandoverError("P has not computed the prompt for a remote decode")
        if not any(_is_same(given.remote_host, host) for host in (prefill.host, *prefill.further_hosts)):
            raise WrongHandoverError("P names another host than its own")
        params: TransferParams = msgspec.to_builtins(given)
        return params


def _is_same(named: str, host: str) -> bool:
    """Whether the address that P names is its own. A server that was given by a name may have any address."""
    try:
        own = ip_address(host)
    except ValueError:
        return True
    try:
        return ip_address(named) == own
    except ValueError:
        return False


class MooncakeHandover(Handover):
    """P and D know a transfer by its id; D finds the engine by the bootstrap server of P.

    P keeps the blocks only of a request that ends by its length, not of one whose first token ends the answer
    (vllm/distributed/kv_transfer/kv_connector/v1/mooncake/mooncake_connector.py, request_finished).
    """

    name = "mooncake"
    bootstrap_port = MOONCAKE_BOOTSTRAP_PORT
    members = MappingProxyType({"ignore_eos": True, "stop": None, "stop_sequences": None, "stop_token_ids": None})

    def to_prefill(self, prefill: Prefill) -> TransferParams:
        """P keeps its blocks until D has them."""
        return {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": prefill.transfer}

    def to_decode(self, prefill: Prefill, _response: Mapping[str, Any]) -> TransferParams:
        """Where the blocks are."""
        if not prefill.engine:
            raise HandoverError("the bootstrap server of P named no engine")
        return {
            "do_remote_decode": False,
            "do_remote_prefill": True,
            "transfer_id": prefill.transfer,
            "remote_engine_id": prefill.engine,
            "remote_bootstrap_addr": prefill.bootstrap,
        }


class PromptHandover(Handover):
    """D finds the KV cache by the tokens of the prompt: SharedStorage, LMCache."""

    name = "prompt"
    chunk = 256  # LMCache's default

    def to_prefill(self, _prefill: Prefill) -> None:
        """P stores the KV cache of every prompt."""

    def to_decode(self, _prefill: Prefill, _response: Mapping[str, Any]) -> None:
        """D looks up every prompt."""


WHOLE_REQUESTS: Final = "none"
"""Value of `--handover` of a router without P: D gets whole requests."""
