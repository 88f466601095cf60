"""Plays the metrics endpoints of vLLM pods on loopback addresses."""

import asyncio
import errno
import itertools
import os
import time
from dataclasses import dataclass, field
from typing import Self

from aiohttp import web

from pdinference.api.names import ENGINE_PORT

_LABELS = 'engine="0",model_name="m"'
_NETWORK = f"127.{80 + os.getpid() % 170}"
"""Mostly of this process alone: other tests may run at the same time. An address that is taken is passed over."""
_NUMBERS = itertools.count(2)


@dataclass
class Load:
    """Metrics of a pod."""

    kv_usage: float | None = 0.0
    waiting: int = 0
    running: int = 0

    def text(self) -> str:
        """As vLLM 0.32 writes it."""
        lines = [
            "# TYPE vllm:num_requests_running gauge",
            f"vllm:num_requests_running{{{_LABELS}}} {self.running}.0",
            "# TYPE vllm:num_requests_waiting gauge",
            f"vllm:num_requests_waiting{{{_LABELS}}} {self.waiting}.0",
            "# TYPE vllm:cache_config_info gauge",
            'vllm:cache_config_info{block_size="128",engine="0",num_gpu_blocks="100"} 1.0',
        ]
        if self.kv_usage is not None:
            lines += [
                "# TYPE vllm:kv_cache_usage_perc gauge",
                f"vllm:kv_cache_usage_perc{{{_LABELS}}} {self.kv_usage}",
            ]
        return "\n".join(lines) + "\n"


@dataclass
class Decoding(Load):
    """Metrics of a D pod that generates tokens continuously from now on."""

    token_seconds: float = 0.01
    began: float = field(default_factory=time.monotonic)

    def text(self) -> str:
        """With the counters of a process that began just then."""
        seconds = (time.monotonic() - self.began) * self.running
        tokens = seconds / self.token_seconds
        lines = [
            "# TYPE vllm:generation_tokens counter",
            f"vllm:generation_tokens_total{{{_LABELS}}} {tokens}",
            *_histogram("vllm:inter_token_latency_seconds", seconds, tokens),
            *_histogram("vllm:request_generation_tokens", 0, 0),
        ]
        return super().text() + "\n".join(lines) + "\n"


def _histogram(name: str, total: float, count: float) -> list[str]:
    return [
        f"# TYPE {name} histogram",
        f'{name}_bucket{{{_LABELS},le="+Inf"}} {count}',
        f"{name}_sum{{{_LABELS}}} {total}",
        f"{name}_count{{{_LABELS}}} {count}",
    ]


class FakeVllm:
    """One pod's endpoint, at an address of its own."""

    def __init__(self, load: Load) -> None:
        self.address = ""
        self.load = load
        self._runner: web.AppRunner | None = None
        self._going = asyncio.Event()
        self._going.set()

    async def start(self) -> Self:
        app = web.Application()
        app.add_routes([web.get("/metrics", self._answer)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        while not self.address:
            number = next(_NUMBERS)
            address = f"{_NETWORK}.{number // 250}.{number % 250 + 1}"
            try:
                await web.TCPSite(self._runner, address, ENGINE_PORT).start()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                self.address = address
        return self

    async def stop(self) -> None:
        """Refuse connections from now on."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def freeze(self) -> None:
        """Take connections and never answer, as a process does that was stopped (SIGSTOP)."""
        self._going.clear()

    def thaw(self) -> None:
        """Go on."""
        self._going.set()

    async def _answer(self, _request: web.Request) -> web.Response:
        await self._going.wait()
        return web.Response(text=self.load.text())
