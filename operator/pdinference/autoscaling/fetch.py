"""One request for the metrics of a pod."""

from typing import Final

import aiohttp

_LARGEST: Final = 8 * 2**20
_CHUNK: Final = 2**16


async def fetch(session: aiohttp.ClientSession, address: str, port: int) -> str:
    """The text of /metrics; what is too long, or elsewhere, is not read."""
    host = f"[{address}]" if ":" in address else address
    async with session.get(f"http://{host}:{port}/metrics", allow_redirects=False) as response:
        if response.status != 200:
            raise ValueError(f"/metrics answers with status {response.status}")
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > _LARGEST:
                raise ValueError(f"/metrics is longer than {_LARGEST} bytes")
    return body.decode("utf-8", "replace")


def is_down(error: Exception) -> bool:
    """Whether nobody listens: the port is that of the requests, so the process is gone."""
    return isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionRefusedError)
