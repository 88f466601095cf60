"""One run of the batch runner, from the input to an exit status."""

import asyncio
import logging
import signal
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import aiohttp

from pdinference.runner.lines import BatchRequestInput, BatchRequestOutput
from pdinference.runner.progress import Progress
from pdinference.runner.requests import InvalidInputError, requests, survey
from pdinference.runner.results import FullOutputError, OutputAwayError, UnfitOutputError
from pdinference.runner.sending import Sender, Service, ServiceAwayError
from pdinference.runner.stores import ConfigMapName, Store, opened

_LOG = logging.getLogger(__name__)
_METRICS_HOST = "0.0.0.0"  # noqa: S104 - the operator comes from outside the pod

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Exit(IntEnum):
    """Exit statuses; the Job's podFailurePolicy tells `UNFIT` from the rest."""

    DONE = 0
    TRY_AGAIN = 1
    UNFIT = 2
    """Another attempt would end the same: the input or the output folder has to be changed by a person."""
    STOPPED = 143


@dataclass(frozen=True)
class Task:
    """What to do.

    Attributes:
        source: Input file.
        output: Output folder, or a ConfigMap.
        service: Whom to ask.
        concurrency: Requests under way at a time.
        metrics_port: Port of /metrics.
        report: File for the last words; None for none.
    """

    source: Path
    output: Path | ConfigMapName
    service: Service
    concurrency: int
    metrics_port: int
    report: Path | None


async def run(task: Task) -> Exit:
    """Do it; SIGTERM stops it in an orderly way, and another run goes on from there."""
    progress = Progress()
    work = asyncio.create_task(_work(task, progress))
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, work.cancel)
    try:
        async with progress.served(_METRICS_HOST, task.metrics_port):
            status, message = await _outcome(work, progress)
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)
    _LOG.log(logging.INFO if status is Exit.DONE else logging.ERROR, "%s", message)
    if task.report is not None:
        await asyncio.to_thread(task.report.write_text, progress.report(message), encoding="utf-8")
    return status


async def _outcome(work: asyncio.Task[None], progress: Progress) -> tuple[Exit, str]:
    try:
        await work
    except (InvalidInputError, UnfitOutputError) as error:
        return Exit.UNFIT, str(error)
    except (OutputAwayError, ServiceAwayError) as error:
        return Exit.TRY_AGAIN, str(error)
    except OSError as error:
        return Exit.TRY_AGAIN, f"A file cannot be read or written: {error}."
    except asyncio.CancelledError:
        return Exit.STOPPED, "Stopped before the end."
    failed = f"; {progress.failed} failed, see errors.jsonl" if progress.failed else ""
    return Exit.DONE, f"{progress.completed} of {progress.total} requests answered{failed}."


async def _work(task: Task, progress: Progress) -> None:
    found = await asyncio.to_thread(survey, task.source)
    progress.total = found.total
    identity = f"sha256:{found.digest} model:{task.service.model or ''}"
    async with opened(task.output, identity, found.total) as store:
        progress.completed, progress.failed = len(store.answered), len(store.failed)
        known = store.answered | store.failed
        _LOG.info("%d requests, %d of them done before", found.total, len(known))
        await _send_all(task, requests(task.source, without=known), _Keeper(store, progress))


async def _send_all(task: Task, todo: Iterator[BatchRequestInput], keeper: "_Keeper") -> None:
    connector = aiohttp.TCPConnector(limit=task.concurrency)
    try:
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as senders:
            sender = Sender(session, task.service)
            for _ in range(task.concurrency):
                senders.create_task(_send(sender, todo, keeper))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None  # one is enough: it has stopped the others


async def _send(sender: Sender, todo: Iterator[BatchRequestInput], keeper: "_Keeper") -> None:
    for request in todo:  # shared by all: each takes the next one
        await keeper.keep(await sender.send(request))


class _Keeper:
    """Stores lines, then counts them. Those that come while the store is busy share the next write."""

    def __init__(self, store: Store, progress: Progress) -> None:
        self._store = store
        self._progress = progress
        self._waiting: list[BatchRequestOutput] = []
        self._busy = asyncio.Lock()

    async def keep(self, line: BatchRequestOutput) -> None:
        """Return when the line is stored."""
        self._waiting.append(line)
        async with self._busy:
            lines, self._waiting = self._waiting, []
            if lines:  # else somebody took ours along
                await self._write(lines)

    async def _write(self, lines: Sequence[BatchRequestOutput]) -> None:
        try:
            await _to_its_end(self._store.append(lines))
        except FullOutputError as error:
            self._count(error.kept)
            raise
        self._count(lines)

    def _count(self, lines: Sequence[BatchRequestOutput]) -> None:
        answered = sum(line.answered for line in lines)
        self._progress.completed += answered
        self._progress.failed += len(lines) - answered


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait for this even when cancelled meanwhile: a thread cannot be, and would write into closed files."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
