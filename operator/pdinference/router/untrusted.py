"""JSON of pods and clients.

Everything that they send is read here, into forms that skip members without a name in them: small values take thirty
times the memory of their text as objects. What is passed on stays text (`msgspec.Raw`).
"""

import asyncio
import codecs
from typing import Any, Final, TypeVar

import msgspec

_T = TypeVar("_T")
_PIECE: Final = 2**20
_MOST_STRINGS: Final = 100_000


class NotJsonError(Exception):
    """The bytes are no JSON of the expected form."""


def decoded(data: bytes | msgspec.Raw, form: type[_T] | Any) -> _T:
    """A value of the expected form.

    Raises:
        NotJsonError: There is none. For text that is not UTF-8 and deep nesting, msgspec has no error of its own.
    """
    try:
        value: _T = msgspec.json.decode(data, type=form)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise NotJsonError(str(error)) from None
    return value


async def check_text(data: bytes) -> None:
    """Check a text that is not decoded as a whole. Other requests go on between its pieces.

    Raises:
        NotJsonError: It is not UTF-8, or has too many strings, so possibly too many members.
    """
    decoder, strings = codecs.getincrementaldecoder("utf-8")(), 0
    for start in range(0, len(data), _PIECE):
        piece = data[start : start + _PIECE]
        try:
            decoder.decode(piece, final=start + _PIECE >= len(data))
        except UnicodeDecodeError as error:
            raise NotJsonError(str(error)) from None
        # Each member has a quote that opens its name, and such a quote does not follow a backslash.
        strings += piece.count(b'"') - piece.count(b'\\"')
        if strings > _MOST_STRINGS:
            raise NotJsonError(f"more than {_MOST_STRINGS} strings")
        if len(data) > _PIECE:
            await asyncio.sleep(0)
