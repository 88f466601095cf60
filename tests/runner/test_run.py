"""The runner as a process: every request has exactly one output line, whatever happens."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from pdinference.api.names import METRIC_BATCH_REQUESTS
from pdinference.runner.progress import RunProgress
from pdinference.runner.run import Exit, Task, run
from pdinference.runner.sending import Service
from tests.runner.service import FakeService, Reply, line, read_lines, write_lines
from tests.waiting import ended, until

COUNT = 60


@pytest.fixture
async def service() -> AsyncIterator[FakeService]:
    async with FakeService().serve() as service:
        yield service


class Batch:
    """A batch in a folder, run by processes.

    Attributes:
        service: Gets the requests of the processes that are started from now on.
    """

    def __init__(self, folder: Path, service: FakeService, lines: list[dict[str, Any]]) -> None:
        self.input = write_lines(folder / "input.jsonl", lines)
        self.output = folder / "output"
        self.report = folder / "report"
        self.service = service

    async def start(self) -> asyncio.subprocess.Process:
        """A process of its own, as in the Job's container."""
        return await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("pdinference"),
            *("batch", "run", f"--input={self.input}", f"--output={self.output}", f"--url={self.service.url}"),
            *("--metrics-port=0", f"--report={self.report}", "--concurrency=8"),
            stderr=subprocess.PIPE,
        )

    async def finish(self, *, model: str | None = None, max_retries: int = 5, patience_s: float = 300) -> int:
        """From here to the end; the exit status comes back."""
        service = Service(
            url=self.service.url,
            model=model,
            default_model=None,
            max_retries=max_retries,
            timeout_s=600,
            patience_s=patience_s,
        )
        return await run(Task(self.input, self.output, service, concurrency=8, metrics_port=0, report=self.report))

    @property
    def last_words(self) -> dict[str, Any]:
        words: dict[str, Any] = json.loads(self.report.read_text())
        return words

    def lines_on_disk(self) -> int:
        output = self.output / "output.jsonl"
        return output.read_bytes().count(b"\n") if output.exists() else 0

    def has_lines(self, count: int) -> bool:
        return self.lines_on_disk() >= count

    def ids(self, name: str = "output.jsonl") -> list[str]:
        return sorted(item["custom_id"] for item in read_lines(self.output / name))


def ids(count: int) -> list[str]:
    return sorted(f"request-{number}" for number in range(count))


async def test_every_request_is_answered_once_and_no_more_than_wanted_at_a_time(
    service: FakeService, tmp_path: Path
) -> None:
    batch = Batch(tmp_path, service, [line(number) for number in range(COUNT)])
    service.hold.clear()
    process = await batch.start()
    try:
        await until(lambda: service.most_at_once == 8, "eight requests are under way at once")
    finally:
        service.hold.set()
        await ended(process, "the runner")
    assert process.returncode == Exit.DONE
    assert batch.ids() == ids(COUNT)
    assert service.answered.total() == COUNT
    assert service.most_at_once == 8
    counts = {"total": COUNT, "completed": COUNT, "failed": 0}
    assert batch.last_words == {**counts, "message": f"{COUNT} of {COUNT} requests answered."}


async def test_each_answer_stands_by_its_own_request(service: FakeService, tmp_path: Path) -> None:
    batch = Batch(tmp_path, service, [line(number) for number in range(COUNT)])
    await batch.finish()
    for item in read_lines(batch.output / "output.jsonl"):
        number = item["custom_id"].removeprefix("request-")
        assert item["response"]["body"]["choices"][0]["message"]["content"] == f"echo prompt {number}"


async def test_faults_in_between_cost_nothing_but_time(service: FakeService, tmp_path: Path) -> None:
    def fault(prompt: str, times: int) -> Reply:
        number = int(prompt.split()[1])
        if times == 1 and number % 3 == 0:
            return web.Response(status=500)
        if times == 1 and number % 3 == 1:
            raise ConnectionAbortedError
        return None

    service.fault = fault
    batch = Batch(tmp_path, service, [line(number) for number in range(24)])
    assert await batch.finish() == Exit.DONE
    assert batch.ids() == ids(24)
    assert set(service.answered.values()) == {1}


async def test_what_fails_is_told_apart_from_what_is_answered(service: FakeService, tmp_path: Path) -> None:
    service.fault = lambda prompt, _: web.Response(status=400, text="no") if prompt == "prompt 1" else None
    batch = Batch(tmp_path, service, [line(number) for number in range(3)])
    assert await batch.finish() == Exit.DONE
    assert batch.ids() == ["request-0", "request-2"]
    assert batch.ids("errors.jsonl") == ["request-1"]
    assert batch.last_words["message"] == "2 of 3 requests answered; 1 failed, see errors.jsonl."


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_new_runner_goes_on_where_one_was_stopped(
    service: FakeService, tmp_path: Path, number: signal.Signals
) -> None:
    """Stopped again and again, with requests under way each time; in the end each has exactly one line."""
    batch = Batch(tmp_path, service, [line(index) for index in range(COUNT)])
    for _ in range(2):
        before = batch.lines_on_disk()
        # A service of its own for each: a runner that is stopped leaves requests in the sockets of its service.
        async with FakeService().serve() as batch.service:
            batch.service.pause_at = 15  # the rest hangs, so that the signal finds requests under way
            process = await batch.start()
            try:
                await until(partial(batch.has_lines, before + 5), f"there are five more lines than {before}")
            finally:
                with suppress(ProcessLookupError):  # it has ended by itself; what follows fails for that
                    process.send_signal(number)
                await ended(process, f"the runner after {number.name}")
            assert process.returncode == (Exit.STOPPED if number == signal.SIGTERM else -signal.SIGKILL)
    batch.service = service
    kept = batch.lines_on_disk()
    assert kept < COUNT
    assert await batch.finish() == Exit.DONE
    assert batch.ids() == ids(COUNT)
    assert service.asked.total() == COUNT - kept, "what was on disk is not asked again"
    assert batch.last_words["completed"] == COUNT


async def test_a_finished_batch_sends_nothing_more(service: FakeService, tmp_path: Path) -> None:
    batch = Batch(tmp_path, service, [line(number) for number in range(5)])
    await batch.finish()
    assert await batch.finish() == Exit.DONE
    assert service.asked.total() == 5
    assert batch.last_words["completed"] == 5


async def test_a_service_that_stays_away_ends_the_run_and_blames_no_request(
    service: FakeService, tmp_path: Path
) -> None:
    def down(prompt: str, _: int) -> Reply:
        service.ready = False
        return web.Response(status=503) if prompt != "prompt 0" else None

    service.fault = down
    batch = Batch(tmp_path, service, [line(number) for number in range(3)])
    assert await batch.finish(max_retries=0, patience_s=0.2) == Exit.TRY_AGAIN
    assert batch.ids() == ["request-0"]
    assert batch.ids("errors.jsonl") == []
    assert "not ready" in batch.last_words["message"]
    service.fault, service.ready = (lambda *_: None), True
    assert await batch.finish() == Exit.DONE
    assert batch.ids() == ids(3)


async def test_an_input_without_requests_is_not_worth_another_attempt(service: FakeService, tmp_path: Path) -> None:
    batch = Batch(tmp_path, service, [{}, {}])
    assert await batch.finish() == Exit.UNFIT
    assert "line 2: custom_id" in batch.last_words["message"]
    assert service.asked.total() == 0


async def test_a_wrong_line_gets_an_error_and_only_one(service: FakeService, tmp_path: Path) -> None:
    batch = Batch(tmp_path, service, [line(1), line(1), {}, line(4)])
    for _ in range(2):
        assert await batch.finish() == Exit.DONE
        assert batch.ids() == ["request-1", "request-4"]
        errors = read_lines(batch.output / "errors.jsonl")
        assert [(item["line"], item["custom_id"], item["error"]["code"]) for item in errors] == [
            (2, "request-1", "invalid_line"),
            (3, None, "invalid_line"),
        ]
        assert batch.last_words["message"] == "2 of 4 requests answered; 2 failed, see errors.jsonl."


async def test_the_same_folder_for_another_model_is_refused(service: FakeService, tmp_path: Path) -> None:
    batch = Batch(tmp_path, service, [line(1)])
    assert await batch.finish() == Exit.DONE
    assert await batch.finish(model="other") == Exit.UNFIT
    assert "another model" in batch.last_words["message"]


async def test_a_folder_that_cannot_be_written_is_told(service: FakeService, tmp_path: Path) -> None:
    batch = Batch(tmp_path, service, [line(1)])
    batch.output.write_text("a file in the way")
    assert await batch.finish() == Exit.TRY_AGAIN
    assert "cannot be read or written" in batch.last_words["message"]


async def test_metrics_tell_the_progress() -> None:
    progress = RunProgress(total=9, completed=4, failed=1)
    async with (
        progress.served("127.0.0.1", 0) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics") as answer,
    ):
        families = text_string_to_metric_families(await answer.text())
    found = {s.labels["state"]: s.value for f in families if f.name == METRIC_BATCH_REQUESTS for s in f.samples}
    assert found == {"total": 9, "completed": 4, "failed": 1}
