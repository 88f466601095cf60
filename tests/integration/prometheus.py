"""A real Prometheus, and targets for it."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from e2e.cluster import build
from tests.http_server import served
from tests.ports import free_port
from tests.waiting import until

_STOP_S = 10
_START_S = 180
_MEMORY = Path("/dev/shm")  # noqa: S108 - it syncs what it stores, and a disk that is busy holds it up for a minute


@dataclass(frozen=True)
class Target:
    """What to scrape, and the labels that Prometheus gives to all of its metrics."""

    address: str
    labels: Mapping[str, str]


@asynccontextmanager
async def page(text: str) -> AsyncIterator[str]:
    """The address of a /metrics of a pod that is no operator."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=text)

    async with served([web.get("/metrics", answer)]) as port:
        yield f"127.0.0.1:{port}"


class Prometheus:
    """A Prometheus process that scrapes these targets every second."""

    def __init__(self, folder: Path, targets: Iterable[Target], *, port: int | None = None) -> None:
        self._port = port or free_port()
        self._log = folder / "prometheus.log"
        self._data = tempfile.mkdtemp(prefix="prometheus-", dir=_MEMORY if _MEMORY.is_dir() else folder)
        config = folder / "prometheus.json"
        config.write_text(json.dumps(_config(targets)))
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


def _config(targets: Iterable[Target]) -> dict[str, Any]:
    found = [{"targets": [target.address], "labels": dict(target.labels)} for target in targets]
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "pods", "static_configs": found}],
    }
