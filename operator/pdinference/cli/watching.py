"""Looks at the cluster again and again, for commands that show its present state."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

_SECONDS: Final = 2.0
"""Time between two looks."""

StateT = TypeVar("StateT")


async def looks(read: Callable[[], Awaitable[StateT]]) -> AsyncIterator[tuple[StateT | None, str]]:
    """The present state and an empty text; or None, and why the API server cannot answer now. Without end.

    Raises:
        ApiError: The API server returned an error that another try will not mend.
    """
    while True:
        yield await _looked(read)
        await asyncio.sleep(_SECONDS)


async def _looked(read: Callable[[], Awaitable[StateT]]) -> tuple[StateT | None, str]:
    from pdinference.cluster.errors import ApiError  # noqa: PLC0415 - the client takes a second to import

    try:
        return await read(), ""
    except ApiError as error:
        if not error.transient:
            raise
        return None, f"{error.message}. Trying again every {_SECONDS:g} s."
