"""Stores for output lines: a folder, or a ConfigMap.

Tests: tests/runner/test_run.py, tests/runner/test_suspects.py, tests/integration/test_batch_output.py
"""

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
    """The output of one batch.

    Attributes:
        done: The requests that had an output line when the store was opened.
    """

    done: Done

    async def append(self, lines: Sequence[BatchRequestOutput]) -> None:
        """Write lines. Returns when they are stored durably."""

    async def strike(self, custom_id: str) -> None:
        """Write that the service stopped while it had this request. Returns when that is stored durably."""


class _FolderStore:
    """A folder, written in threads."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self.done = results.done

    async def append(self, lines: Sequence[BatchRequestOutput]) -> None:
        await asyncio.to_thread(self._results.append, lines)

    async def strike(self, custom_id: str) -> None:
        await asyncio.to_thread(self._results.strike, custom_id)


@asynccontextmanager
async def opened(
    output: Path | ConfigMapName, identity: str, requests: int, *, within: Path | None = None
) -> AsyncIterator[Store]:
    """Open the store of an output.

    Args:
        output: A folder, or a ConfigMap.
        identity: Identity of the input and the model.
        requests: Number of expected output lines.
        within: Folder that must contain the output folder after links are resolved.

    Raises:
        UnfitOutputError: The output belongs to another batch, or the lines cannot fit.
        OutputAwayError: The output is temporarily unavailable.
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
