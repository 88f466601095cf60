"""JSON of pods and clients."""

from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")


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
