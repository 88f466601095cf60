"""Reads logs of containers, line by line, also as they are written.

Tests: tests/cli/test_logs.py
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from pdinference.api import names
from pdinference.api.pod_owner import is_of_workload
from pdinference.cli.logs.sources import LogSource
from pdinference.cli.watching import looks
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import POD

_LONGEST_LINE: Final = 2**20
_AGAIN_S: Final = 2
"""Age of the lines with which a log goes on whose connection broke off: the time until the next look."""

Write = Callable[[LogSource, bytes], None]


class LogReader:
    """Logs of one resource.

    Args:
        api: The API server.
        namespace: Namespace of the resource.
        query: Query parameters of a log, such as `tailLines`.
        write: Called with each line.
        warn: Called with why a log cannot be read.
    """

    def __init__(
        self, api: ApiServer, namespace: str, query: Mapping[str, str], write: Write, warn: Callable[[str], None]
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._query = query
        self._write = write
        self._warn = warn
        self._begun: set[LogSource] = set()
        self._warned: set[str] = set()

    async def pods(self, name: str) -> list[Json]:
        """The pods of the resource."""
        path, selector = POD.path(self._namespace), f"{names.LABEL_NAME}={name}"
        found: list[Json] = (await self._api.get(path, labelSelector=selector)).get("items") or []
        return [pod for pod in found if is_of_workload(pod)]

    async def print(self, found: Sequence[LogSource]) -> None:
        """Print the logs one after the other."""
        for source in found:
            if await self._read(source, self._query) and source not in self._begun:
                self._warn(f"{source.pod}: the log of the container {source.container} has no lines.")

    async def follow(self, look: Callable[[], Awaitable[Sequence[LogSource]]]) -> None:
        """Print the logs as they are written, those of new pods and of restarted containers too; never ends.

        Args:
            look: Finds the containers that there are now.
        """
        reading: dict[LogSource, asyncio.Task[bool]] = {}
        try:
            async for found, lost in looks(look):
                if lost:
                    self._warn_once(lost)
                for source in found or ():
                    if (task := reading.get(source)) is None or (task.done() and not task.result()):
                        query = {"follow": "true", **self._from_where(source, reading)}
                        reading[source] = asyncio.create_task(self._read(source, query))
        finally:
            for task in reading.values():
                task.cancel()
            await asyncio.gather(*reading.values(), return_exceptions=True)

    def _from_where(self, source: LogSource, reading: Collection[LogSource]) -> Mapping[str, str]:
        if source in self._begun:  # the connection broke off
            return {"sinceSeconds": str(_AGAIN_S)}
        restarted = any((source.pod, source.container) == (other.pod, other.container) for other in reading)
        return {} if restarted and source not in reading else self._query

    async def _read(self, source: LogSource, query: Mapping[str, str]) -> bool:
        """Print one log; False if it could not be read to its end."""
        path = f"{POD.path(self._namespace, source.pod)}/log"
        rest = b""
        try:
            async for chunk in self._api.chunks(path, container=source.container, **query):
                self._begun.add(source)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._write(source, line)
                if len(rest) > _LONGEST_LINE:
                    self._write(source, rest)
                    rest = b""
        except ApiError as error:
            self._warn_once(f"{source.pod}: {error.message}")
            return False
        if rest:
            self._write(source, rest)
        return True

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            self._warn(message)
