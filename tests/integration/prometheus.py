"""A real Prometheus, and pods whose metrics move steadily, so that it does not matter when they are read."""

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from e2e.cluster import build
from tests.integration.operator_process import free_port
from tests.integration.world import until

_SAMPLE = re.compile(r"^(?P<name>[^\s{]+)(?P<labels>\{.*\})? (?P<value>\S+)$")
_STOP_S = 10
_START_S = 180
_MEMORY = Path("/dev/shm")  # noqa: S108 - it syncs what it stores, and a disk that is busy holds it up for a minute


@dataclass(frozen=True)
class Line:
    """A number that grows at a steady pace."""

    start: float
    each_second: float = 0.0


class MovingPod:
    """A metrics endpoint that answers as a recorded vLLM did, with some of its numbers on the move.

    Args:
        labels: Those that Prometheus gives to all its metrics.
        recorded: The answer of a vLLM.
        numbers: What some samples are instead, by their names.
    """

    def __init__(self, labels: Mapping[str, str], recorded: str, numbers: Mapping[str, Line]) -> None:
        self.labels = dict(labels)
        self.port = free_port()
        self._recorded = recorded
        self._numbers = numbers
        self._began = time.monotonic()
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def text(self) -> str:
        """What it tells now."""
        return "\n".join(map(self._moved, self._recorded.splitlines())) + "\n"

    def _moved(self, line: str) -> str:
        sample = _SAMPLE.match(line)
        if sample is None or (number := self._numbers.get(sample["name"])) is None:
            return line
        value = number.start + number.each_second * (time.monotonic() - self._began)
        return f"{sample['name']}{sample['labels'] or ''} {value}"

    async def start(self) -> None:
        app = web.Application()
        app.add_routes([web.get("/metrics", self._answer)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, _request: web.Request) -> web.Response:
        return web.Response(text=self.text())


class Prometheus:
    """A Prometheus process that scrapes these pods every second."""

    def __init__(self, folder: Path, pods: list[MovingPod]) -> None:
        self._port = free_port()
        self._log = folder / "prometheus.log"
        self._data = tempfile.mkdtemp(prefix="prometheus-", dir=_MEMORY if _MEMORY.is_dir() else folder)
        config = folder / "prometheus.json"
        config.write_text(json.dumps(_config(pods)))
        command = [
            str(build.binary("prometheus")),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._data}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def query(self, promql: str) -> list[float]:
        """The numbers that a query answers."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}/api/v1/query", data={"query": promql}) as response,
        ):
            answer = await response.json()
        assert answer["status"] == "success", answer
        return [float(result["value"][1]) for result in answer["data"]["result"]]

    async def __aenter__(self) -> Self:
        async def ready() -> bool:
            assert self._process.poll() is None, self._log.read_text()
            try:
                async with aiohttp.ClientSession() as session, session.get(f"{self.url}/-/ready") as response:
                    return response.status == 200
            except aiohttp.ClientError:
                return False

        try:
            await until(ready, "Prometheus is ready", within=_START_S)
        except BaseException:
            self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._data)


def _config(pods: list[MovingPod]) -> dict[str, Any]:
    targets = [{"targets": [pod.address], "labels": pod.labels} for pod in pods]
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "vllm", "static_configs": targets}],
    }
