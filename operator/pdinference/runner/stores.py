"""Where answers are kept: a folder, or a ConfigMap."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from pdinference.cluster.client import ApiServer, load_configuration
from pdinference.cluster.kinds import CONFIG_MAP
from pdinference.runner.config_map import ConfigMapStore, require_room
from pdinference.runner.done import Done
from pdinference.runner.lines import BatchRequestOutput
from pdinference.runner.results import Results


class ConfigMapName(NamedTuple):
    """Which ConfigMap."""

    namespace: str
    name: str


class Store(Protocol):
    """The answers of one batch.

    Attributes:
        done: The requests that had a line when the store was opened.
    """

    done: Done

    async def append(self, lines: Sequence[BatchRequestOutput]) -> None:
        """Write lines, and return when they will survive this process."""


class _FolderStore:
    """Files, written in threads."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self.done = results.done

    async def append(self, lines: Sequence[BatchRequestOutput]) -> None:
        await asyncio.to_thread(self._results.append, lines)


@asynccontextmanager
async def opened(
    output: Path | ConfigMapName, identity: str, requests: int, *, within: Path | None = None
) -> AsyncIterator[Store]:
    """The answers that are there already, and a place for more.

    Args:
        output: A folder, or a ConfigMap.
        identity: What the answers depend on.
        requests: How many answers there will be.
        within: Folder that the output folder has to be in, wherever links lead.

    Raises:
        UnfitOutputError: The place is another's, or cannot take what there is to write.
        OutputAwayError: It cannot be used now.
        OSError: The folder cannot be written.
    """
    if isinstance(output, Path):
        results = await asyncio.to_thread(Results, output, identity, within=within)
        try:
            yield _FolderStore(results)
        finally:
            results.close()
        return
    require_room(requests)
    api = ApiServer(await load_configuration())
    try:
        yield await ConfigMapStore.opened(api, CONFIG_MAP.path(*output), identity)
    finally:
        await api.close()
