r"""Truncation of objects that are too large or too deep, before they are parsed.

Users determine the size and depth of a resource. Parsers recurse: one object that is too deep makes the whole list
fail. The input is JSON from the API server, so it is valid.
"""

import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final

import msgspec

from pdinference.api.bounds import MAX_RAW_SPEC_BYTES, broken_bound, too_large

Json = dict[str, Any]

UNREADABLE_ERRORS: Final = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
    msgspec.MsgspecError,
)
"""Errors of reading an object that violates its API type."""
OBJECT_EVENTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
"""Types of watch events with an object. The others are bookmarks and errors."""
UNREADABLE: Final = "unreadable"
"""Field with the reason why a spec was cut off. The CRD does not have this field, so users cannot set it."""
LARGE: Final = 256 * 1024
"""Bytes above which an object is cut before it is parsed."""
_LEVELS: Final = 128
"""Maximum depth; deeper values are cut off. Every API type of Kubernetes and every valid spec is flatter."""
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_TOKEN: Final = re.compile(_STRING.pattern + rb"|[\[\]{}]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEPS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class _Event(msgspec.Struct):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


def shallow(data: bytes) -> bytes:
    """The same JSON, with null in place of values that are too deep to parse."""
    if data.count(b"{") + data.count(b"[") <= _LEVELS or _depth(data) <= _LEVELS:
        return data
    pieces, kept, depth = [], 0, 0
    for token in _TOKEN.finditer(data):
        step = _STEPS.get(data[token.start()], 0)
        if step > 0 and depth == _LEVELS:
            pieces += [data[kept : token.start()], b"null"]
        depth += step
        if step < 0 and depth == _LEVELS:
            kept = token.end()
    return b"".join((*pieces, data[kept:]))


def _depth(data: bytes) -> int:
    brackets = _STRING.sub(b"", data).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def watch_event(line: bytes, own: bool) -> tuple[str, Json]:
    """Type and object of a watch event. The object is empty for bookmarks and errors.

    Args:
        line: The event.
        own: Whether the object is a PDInference or a PDBatch.
    """
    event = msgspec.json.decode(shallow(line), type=_Event)
    return event.type, parsed(event.object, own) if event.type in OBJECT_EVENTS else {}


def parsed(data: msgspec.Raw, own: bool) -> Json:
    """Parse an object of a list or of a watch."""
    if len(data) > LARGE:
        found: Json = msgspec.json.decode(msgspec.json.encode(_cut(data, own)))
    else:
        found = msgspec.json.decode(data)
    return found


def _cut(data: msgspec.Raw, own: bool) -> Json:
    """Parse without managedFields, which take half of an object, and without a spec that is too large."""
    members: Json = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    metadata = msgspec.json.decode(members["metadata"], type=dict[str, msgspec.Raw])
    metadata.pop("managedFields", None)
    members["metadata"] = metadata
    if own and (size := len(members.get("spec", b""))) > MAX_RAW_SPEC_BYTES:
        members["spec"] = None
        members[UNREADABLE] = f"spec: {too_large(size)}"
    return members


def why_unreadable(body: Mapping[str, Any]) -> str:
    """Why the spec of a PDInference or a PDBatch is not read; empty if it is."""
    if UNREADABLE in body:
        return str(body[UNREADABLE])
    broken = broken_bound({"spec": body.get("spec")})
    return "" if broken is None else f"{broken[0]}: {broken[1]}"
