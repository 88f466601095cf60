"""The metrics of a pod, read through a port-forward. NetworkPolicies do not apply to it.

Tests: tests/cli/test_top.py, tests/cli/test_status_ways.py
"""

from typing import Final

import aiohttp

from pdinference.cli.requests.forward import Forward
from pdinference.cluster.client import ApiServer
from pdinference.loadmetrics.scraping.http_answer import LONGEST_BODY

MOST_ROUTERS: Final = 16
"""Router pods whose metrics are read. They share the requests alike."""
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10)


class UnansweredError(Exception):
    """A pod does not give its metrics."""


async def metrics_page(api: ApiServer, namespace: str, pod: str, port: int) -> bytes:
    """The response of /metrics.

    Raises:
        UnansweredError: The pod does not give it, or it is too long.
    """
    forward = Forward(api, namespace, pod, port)
    async with forward.listening() as local, aiohttp.ClientSession(timeout=_TIMEOUT) as session:
        try:
            async with session.get(f"http://127.0.0.1:{local}/metrics", allow_redirects=False) as response:
                response.raise_for_status()
                page = await response.content.read(LONGEST_BODY + 1)
                while len(page) <= LONGEST_BODY and (more := await response.content.read(LONGEST_BODY)):
                    page += more
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnansweredError(forward.error or f"no metrics: {error or type(error).__name__}") from None
    if len(page) > LONGEST_BODY:
        raise UnansweredError(f"its metrics are longer than {LONGEST_BODY:,} bytes")
    return page
