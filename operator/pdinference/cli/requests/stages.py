"""How long the stages of a request took, from the router's log.

The router writes a line of JSON for each request, with its id, pods and stages. The response itself has no room for
them: when its headers go out, the stages are not over.

Tests: tests/cli/test_chat.py
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pdinference.api.names import ROUTER_CONTAINER
from pdinference.cli.requests.why import why_in
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import POD
from pdinference.router.why import Why

STAGES: Final[Mapping[str, str]] = {
    "queue": "waited for a ready pod",
    "prefill": "P computed the prompt",
    "first_token": "D fetched the KV cache and computed the first token",
    "alone": "one pod computed the prompt and the first token",
    "tokens": "D generated the rest",
}
"""The stages in their order, with what happens in them."""
_TRIES: Final = 5
_PAUSE_S: Final = 0.4
_LINES: Final = "2000"
_LONGEST_LOG: Final = 2**24


@dataclass(frozen=True, slots=True)
class Stages:
    """One request, as its router saw it.

    Attributes:
        seconds: Duration of each stage that it had.
        prefill, decode: The pods; empty for none.
        fallback: Why D computed the prompt; empty if P did.
        why: Why it went its way; None if it had no other one.
    """

    seconds: Mapping[str, float]
    prefill: str = ""
    decode: str = ""
    fallback: str = ""
    retries: int = 0
    why: Why | None = None


async def stages_of(api: ApiServer, namespace: str, pod: str, request_id: str, *, seconds: float) -> Stages | str:
    """The stages of a request that has ended, or why they are not known.

    Args:
        api: The API server.
        namespace: Namespace of the router pod.
        pod: The router pod.
        request_id: Id of the request.
        seconds: How long ago the request began.
    """
    path = f"{POD.path(namespace, pod)}/log"
    query = {"container": ROUTER_CONTAINER, "sinceSeconds": str(int(seconds) + 5), "tailLines": _LINES}
    for number in range(_TRIES):
        if number:
            await asyncio.sleep(_PAUSE_S)  # the line is written when the request ends
        try:
            log = await _read(api, path, query)
        except ApiError as error:
            return error.message
        if (found := in_log(log, request_id)) is not None:
            return found
    return f"The log of {pod} has no line for the request {request_id}."


async def _read(api: ApiServer, path: str, query: Mapping[str, str]) -> bytes:
    log = bytearray()
    async for chunk in api.chunks(path, **query):
        log += chunk
        if len(log) > _LONGEST_LOG:
            break
    return bytes(log)


def in_log(log: bytes, request_id: str) -> Stages | None:
    """The stages of a request in a router's log."""
    for line in reversed(log.splitlines()):
        if request_id.encode() not in line:
            continue
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        if isinstance(fields, dict) and fields.get("request_id") == request_id:
            return _stages(fields)
    return None


def _stages(fields: Mapping[str, Any]) -> Stages:
    return Stages(
        seconds={name: float(fields[f"{name}_seconds"]) for name in STAGES if f"{name}_seconds" in fields},
        prefill=str(fields.get("prefill") or ""),
        decode=str(fields.get("decode") or ""),
        fallback=str(fields.get("fallback") or ""),
        retries=int(fields.get("retries") or 0),
        why=why_in(fields),
    )
