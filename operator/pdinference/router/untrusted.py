"""JSON of pods and clients.

Everything that they send is read here, into forms that skip members without a name in them: small values take thirty
times the memory of their text as objects. What is passed on stays text (`msgspec.Raw`).
"""

import asyncio
import re
from typing import Any, Final, TypeVar

import msgspec

from pdinference.api.bounded_json import BoundedJsonError, JsonLimits, measured

_T = TypeVar("_T")
PIECE: Final = 2**20
"""Bytes that may be read without a pause."""
_CONTAINER: Final = re.compile(rb"\s*+[\[{]")
_MOST_STRINGS: Final = 100_000
_LIMITS: Final = JsonLimits(size=2**63, depth=256, values=3_000_000, members=1_000_000, spaces=8_000_000)
"""Of a text longer than a piece. The decoder cannot be interrupted. With 16 MiB of brackets, it takes 0.1 s."""
_TOGETHER: Final = 2
"""Parts of 64 KiB that are checked without a pause."""


class NotJsonError(Exception):
    """The bytes are no JSON of the expected form."""


def decoded(data: bytes | msgspec.Raw, form: type[_T] | Any) -> _T:
    """A value of the expected form.

    Raises:
        NotJsonError: There is none. For text that is not UTF-8 and deep nesting, msgspec has no error of its own.
    """
    if len(view := memoryview(data)) > PIECE and not _CONTAINER.match(view):
        raise NotJsonError("a text or a number of such a length is never expected")  # the decoder would read all of it
    try:
        value: _T = msgspec.json.decode(data, type=form)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise NotJsonError(str(error)) from None
    return value


async def check_text(data: bytes) -> None:
    """Check a text of a client that is not decoded as a whole. Other requests go on between its pieces.

    Raises:
        NotJsonError: It is not UTF-8, or has too many values, or too many strings, so possibly too many members.
    """
    strings = 0
    for start in range(0, len(data), PIECE):
        # Each member has a quote that opens its name, and such a quote does not follow a backslash.
        strings += data.count(b'"', start, start + PIECE) - data.count(b'\\"', start, start + PIECE)
        if strings > _MOST_STRINGS:
            raise NotJsonError(f"more than {_MOST_STRINGS} strings")
        if len(data) > PIECE:
            await asyncio.sleep(0)
    await check_values(data)


async def check_values(data: bytes) -> None:
    """Check that a text can be decoded in a short time, however it is written, and that it is UTF-8.

    Raises:
        NotJsonError: It is not so.
    """
    try:
        if len(data) <= PIECE:
            data.decode()
            return
        for number, _ in enumerate(measured(data, _LIMITS)):
            if number % _TOGETHER == 0:
                await asyncio.sleep(0)
    except (BoundedJsonError, UnicodeDecodeError) as error:
        raise NotJsonError(str(error)) from None
