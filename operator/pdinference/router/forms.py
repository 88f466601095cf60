"""Forms with audio. Each is read and written anew, so that D reads in a form what the router has read in it.

Tests: tests/router/test_arguments.py
"""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Final
from uuid import uuid4

import aiohttp
import msgspec
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import BadHttpMessage

from pdinference.router.arguments import ARGUMENTS, ArgumentError, checked, is_internal

FORM: Final = "multipart/form-data"
_MOST_FIELDS: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9_.\[\]-]{1,64}")
_NOT_IN_FILENAMES: Final = re.compile(r"[^A-Za-z0-9_. ()-]")
_MEDIA_TYPE: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}")


class FormError(Exception):
    """The body is no form, or has a field that may not pass."""


async def rewritten(body: bytes, content_type: str, *, custom_arguments: bool) -> tuple[bytes, str]:
    """The same form with the arguments that may pass, and its content type.

    Args:
        body: The form as it came.
        content_type: The header, with the boundary.
        custom_arguments: See `arguments.checked`.

    Raises:
        FormError: There is no form, or one that may not pass. The message is for the client.
    """
    boundary = uuid4().hex
    written: list[bytes] = []
    try:
        async for head, value in _fields(body, content_type, custom_arguments=custom_arguments):
            written += [b"--%b\r\n%b\r\n\r\n" % (boundary.encode(), head), value, b"\r\n"]
    except (ValueError, RuntimeError, AssertionError, BadHttpMessage, LookupError) as error:
        raise FormError(f"The body is not a form: {error or type(error).__name__}") from None
    written.append(b"--%b--\r\n" % boundary.encode())
    return b"".join(written), f"{FORM}; boundary={boundary}"


async def _fields(body: bytes, content_type: str, *, custom_arguments: bool) -> AsyncIterator[tuple[bytes, bytes]]:
    """The headers and value of each field that may pass."""
    count = 0
    async for part in _parts(body, content_type):
        count += 1
        if count > _MOST_FIELDS:
            raise FormError(f"The form has more than {_MOST_FIELDS} fields.")
        if not isinstance(part, aiohttp.BodyPartReader) or part.name is None or not _NAME.fullmatch(part.name):
            raise FormError("The form has a field without a plain name.")
        value = bytes(await part.read())
        if part.name == ARGUMENTS and value:
            value = _arguments(value, custom=custom_arguments)
        if not is_internal(part.name):
            yield _head(part), value


def _parts(body: bytes, content_type: str) -> aiohttp.MultipartReader:
    loop = asyncio.get_running_loop()
    # With a lower limit it would have the protocol read no further, which has no connection and fails.
    stream = aiohttp.StreamReader(BaseProtocol(loop), len(body), loop=loop)
    stream.feed_data(body)
    stream.feed_eof()
    reader = aiohttp.MultipartReader({"Content-Type": content_type}, stream)
    if not body.startswith(reader._boundary + b"\r\n"):
        # It would be looked for line by line, which takes half a minute for 16 MiB of empty ones. No client sends any.
        raise ValueError("it does not begin with its boundary")
    return reader


def _arguments(value: bytes, *, custom: bool) -> bytes:
    try:
        return msgspec.json.encode(checked(value, custom=custom))
    except ArgumentError as error:
        raise FormError(str(error)) from None


def _head(part: aiohttp.BodyPartReader) -> bytes:
    head = f'Content-Disposition: form-data; name="{part.name}"'
    if part.filename is not None:
        head += f'; filename="{_NOT_IN_FILENAMES.sub("_", part.filename)[-128:]}"'
    if _MEDIA_TYPE.fullmatch(media_type := part.headers.get("Content-Type", "")):
        head += f"\r\nContent-Type: {media_type}"
    return head.encode("ascii")
