r"""Objects as the API server sends them, cut to what can be read before anything parses them.

Whoever may write a resource decides how large and how deep it is. Parsers recurse, and fail for all objects of a list
when one is too deep. Input here is JSON that the API server wrote, so it is valid.
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
"""What an object raises that is not as its API type promises."""
OBJECT_EVENTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
"""Types of watch events that bring an object; the others are bookmarks and errors."""
UNREADABLE: Final = "unreadable"
"""Member of an object of ours whose spec was cut off: why. The CRD has no such field, so no user can set it."""
LARGE: Final = 256 * 1024
"""Bytes above which an object is cut before it is parsed."""
_LEVELS: Final = 128
"""What is deeper is cut off. Every API type of Kubernetes is flatter, and so is every spec within its bounds."""
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_TOKEN: Final = re.compile(_STRING.pattern + rb"|[\[\]{}]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEPS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class _Event(msgspec.Struct):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


def shallow(data: bytes) -> bytes:
    """The same JSON, with null in the place of everything that is too deep to be parsed."""
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
    """The type of an event of a watch, and its object; empty for types that bring no object of the watched kind.

    Args:
        line: One event.
        own: Whether it is of a PDInference or a PDBatch.
    """
    event = msgspec.json.decode(shallow(line), type=_Event)
    return event.type, parsed(event.object, own) if event.type in OBJECT_EVENTS else {}


def parsed(data: msgspec.Raw, own: bool) -> Json:
    """An object of a list or of a watch."""
    if len(data) > LARGE:
        found: Json = msgspec.json.decode(msgspec.json.encode(_cut(data, own)))
    else:
        found = msgspec.json.decode(data)
    return found


def _cut(data: msgspec.Raw, own: bool) -> Json:
    """Without managedFields, which are as large as all else together, and without a spec that is too large."""
    members: Json = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    metadata = msgspec.json.decode(members["metadata"], type=dict[str, msgspec.Raw])
    metadata.pop("managedFields", None)
    members["metadata"] = metadata
    if own and (size := len(members.get("spec", b""))) > MAX_RAW_SPEC_BYTES:
        members["spec"] = None
        members[UNREADABLE] = f"spec: {too_large(size)}"
    return members


def why_unreadable(body: Mapping[str, Any]) -> str:
    """Why the spec of an object of ours is not read; empty when it is."""
    if UNREADABLE in body:
        return str(body[UNREADABLE])
    broken = broken_bound({"spec": body.get("spec")})
    return "" if broken is None else f"{broken[0]}: {broken[1]}"
