"""One run of the batch runner, from the input to an exit status."""

import asyncio
import logging
import signal
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import aiohttp

from pdinference.http_connections import Connector
from pdinference.runner.access import Access, AccessError
from pdinference.runner.answers import failed
from pdinference.runner.lines import BatchRequestInput, BatchRequestOutput, PreparedRequest
from pdinference.runner.progress import RunProgress
from pdinference.runner.requests import InvalidInputError, Survey, WrongLine, requests, survey
from pdinference.runner.results import FullOutputError, OutputAwayError, UnfitOutputError
from pdinference.runner.room import Room, Share
from pdinference.runner.sending import KeyRefusedError, Sender, Service, ServiceAwayError
from pdinference.runner.stores import ConfigMapName, Store, opened
from pdinference.runner.suspects import Suspects

_LOG = logging.getLogger(__name__)
_METRICS_HOST = "0.0.0.0"  # noqa: S104 - the operator reads the metrics from outside the pod

_T = TypeVar("_T")
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Exit(IntEnum):
    """Exit statuses. The Job's podFailurePolicy depends on `UNFIT`."""

    DONE = 0
    TRY_AGAIN = 1
    UNFIT = 2
    """A retry does not help: the user must change the input, the output or the API key."""
    STOPPED = 143


@dataclass(frozen=True)
class Task:
    """Parameters of a run.

    Attributes:
        source: Input file.
        output: Output folder, or a ConfigMap.
        service: The service that gets the requests.
        concurrency: Maximum number of concurrent requests.
        metrics_port: Port of /metrics.
        report: File for the termination message; None for none.
        input_root: Folder that must contain the input after links are resolved; None for any folder.
        output_root: The same for the output folder.
        key_file: File with the API key; None for a service without keys.
        certificate_file: File with the only certificate to trust; None for HTTP, or for that of a known authority.
    """

    source: Path
    output: Path | ConfigMapName
    service: Service
    concurrency: int
    metrics_port: int
    report: Path | None
    input_root: Path | None = None
    output_root: Path | None = None
    key_file: Path | None = None
    certificate_file: Path | None = None


async def run(task: Task) -> Exit:
    """Run the batch. SIGTERM stops it gracefully, and another run resumes it."""
    progress = RunProgress()
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


async def _outcome(work: asyncio.Task[None], progress: RunProgress) -> tuple[Exit, str]:
    try:
        await work
    except (InvalidInputError, UnfitOutputError, KeyRefusedError) as error:
        return Exit.UNFIT, str(error)
    except (AccessError, OutputAwayError, ServiceAwayError) as error:
        return Exit.TRY_AGAIN, str(error)
    except OSError as error:
        return Exit.TRY_AGAIN, f"A file cannot be read or written: {error}."
    except asyncio.CancelledError:
        return Exit.STOPPED, "Stopped before the end."
    failed = f"; {progress.failed} failed, see errors.jsonl" if progress.failed else ""
    return Exit.DONE, f"{progress.completed} of {progress.total} requests answered{failed}."


async def _work(task: Task, progress: RunProgress) -> None:
    access = Access(task.key_file, task.certificate_file)
    found = await _surveyed(task)
    progress.total = found.total
    identity = f"sha256:{found.digest} model:{task.service.model or ''}"
    async with opened(task.output, identity, found.total, within=task.output_root) as store:
        done = store.done
        progress.completed, progress.failed = done.completed, done.failed
        _LOG.info("%d requests, %d of them done before", found.total, done.completed + done.failed)
        todo = requests(task.source, found, ids=done.ids, lines=done.lines, within=task.input_root)
        await _send_all(task, access, _Queue(todo, task.service), _Keeper(store, progress), done.strikes)


async def _surveyed(task: Task) -> Survey:
    stopped = Event()
    try:
        return await asyncio.to_thread(survey, task.source, within=task.input_root, stopped=stopped)
    finally:
        stopped.set()  # a thread cannot be cancelled, so it must end by itself


async def _send_all(task: Task, access: Access, queue: "_Queue", keeper: "_Keeper", strikes: Mapping[str, int]) -> None:
    connector = Connector(limit=task.concurrency)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, auto_decompress=False) as session,
            asyncio.TaskGroup() as senders,
        ):
            sender = Sender(session, task.service, access, Suspects(strikes, keeper.strike))
            for _ in range(task.concurrency):
                senders.create_task(_send(sender, queue, keeper))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None  # the first error has stopped the other tasks


async def _send(sender: Sender, queue: "_Queue", keeper: "_Keeper") -> None:
    while await _send_next(sender, queue, keeper):  # all senders share the queue
        pass


async def _send_next(sender: Sender, queue: "_Queue", keeper: "_Keeper") -> bool:
    """Send the next request and store its line; False after the last. Its memory is released afterwards."""
    taken = await queue.take()
    if taken is None:
        return False
    todo, share = taken
    async with share:
        line = _error_of(todo) if isinstance(todo, WrongLine) else await sender.send(todo, share)
        await keeper.keep(line)
    return True


def _error_of(wrong: WrongLine) -> BatchRequestOutput:
    line = failed(wrong.custom_id, "invalid_line", wrong.problem)
    line.line = wrong.number
    return line


class _Queue:
    """The remaining lines. The next line is read when there is room for it."""

    def __init__(self, todo: Iterator[BatchRequestInput | WrongLine], service: Service) -> None:
        self._todo = todo
        self._service = service
        self._room = Room()
        self._reading = asyncio.Lock()

    async def take(self) -> tuple[PreparedRequest | WrongLine, Share] | None:
        """The next line and its share of the memory; None after the last."""
        async with self._reading:
            todo = await _to_its_end(asyncio.to_thread(self._next))
            if todo is None:
                return None
            return todo, await self._room.take(len(todo.payload) if isinstance(todo, PreparedRequest) else 0)

    def _next(self) -> PreparedRequest | WrongLine | None:
        todo = next(self._todo, None)
        if isinstance(todo, BatchRequestInput):
            return todo.prepared(self._service.model, self._service.default_model)
        return todo


class _Keeper:
    """Stores lines, then counts them. Lines that arrive during a write share the next one."""

    def __init__(self, store: Store, progress: RunProgress) -> None:
        self._store = store
        self._progress = progress
        self._waiting: list[BatchRequestOutput] = []
        self._busy = asyncio.Lock()

    async def keep(self, line: BatchRequestOutput) -> None:
        """Store the line. Returns when it is stored."""
        self._waiting.append(line)
        async with self._busy:
            lines, self._waiting = self._waiting, []
            if lines:  # otherwise another task has written the line
                await self._write(lines)

    async def strike(self, custom_id: str) -> None:
        """Store that the service stopped while it had a request. Returns when it is stored."""
        async with self._busy:
            await _to_its_end(self._store.strike(custom_id))

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


async def _to_its_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Wait for this even if cancelled: its thread cannot be cancelled and could write to closed files."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
