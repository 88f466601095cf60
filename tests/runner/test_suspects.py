"""A request during which the service stops is sent alone, and not for ever, whichever runner sends it."""

import asyncio
import json
from pathlib import Path

from aiohttp import web

from pdinference.runner.run import Exit, Task, run
from pdinference.runner.sending import Service
from tests.runner.service import FakeService, Reply, line, read_lines, write_lines

KILLER = "prompt 3"


def task(folder: Path, service: FakeService, patience_s: float) -> Task:
    source = write_lines(folder / "in.jsonl", [line(number) for number in range(6)])
    target = Service(service.url, None, "llama", max_retries=0, timeout_s=20, patience_s=patience_s, first_pause_s=0.01)
    return Task(source, folder / "out", target, concurrency=6, metrics_port=0, report=None)


class Down:
    """Stops when it has the request, and is up again for the next runner, or at once.

    Args:
        service: The service.
        lasts: Numbers of times that it is asked for its health until it is up.
    """

    def __init__(self, service: FakeService, *lasts: int) -> None:
        self.lasts = iter(lasts)
        self.left = 0
        self.alone: list[bool] = []
        self.service = service
        service.fault, service.is_ready = self.fault, self.ready

    def fault(self, prompt: str, _times: int) -> Reply:
        if prompt == KILLER:
            self.left = next(self.lasts)
            self.alone.append(self.service._under_way == 1)
        return web.Response(status=502) if self.left else None

    def ready(self) -> bool:
        self.left = max(0, self.left - 1)
        return not self.left


async def test_the_request_that_stops_the_service_fails_and_the_others_are_answered(tmp_path: Path) -> None:
    async with FakeService().serve() as service:
        down = Down(service, 8, 2)  # each of six requests asks once
        status = await asyncio.wait_for(run(task(tmp_path, service, 50)), 60)
        assert status is Exit.DONE
        assert service.asked[KILLER] == 2
        assert down.alone[-1]
    (failed,) = read_lines(tmp_path / "out" / "errors.jsonl")
    assert (failed["custom_id"], failed["error"]["code"]) == ("request-3", "service_stopped")
    assert len(read_lines(tmp_path / "out" / "output.jsonl")) == 5


async def test_runners_do_not_repeat_it_for_ever(tmp_path: Path) -> None:
    async with FakeService().serve() as service:
        down = Down(service, 10**9, 10**9)
        found = []
        for _ in range(4):
            down.left = 0  # another D pod is up
            found.append(await asyncio.wait_for(run(task(tmp_path, service, 0.2)), 60))
        assert found[-1] is Exit.DONE
        assert service.asked[KILLER] == 2
    assert [json.loads(one)["custom_id"] for one in (tmp_path / "out" / "errors.jsonl").read_text().splitlines()] == [
        "request-3"
    ]
