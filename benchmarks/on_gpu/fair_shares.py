"""A client with a queue, and one beside it: `python3 -m benchmarks.on_gpu.fair_shares OUT` (a GPU, vLLM, no root).

One client sends 300 prompts of 4,000 tokens at once, another one a prompt of 500 tokens every half second, through our
router and P and D on one GPU: in the order of arrival, with fair shares, and with a low priority of the first. Then
both send 300 prompts at once, the one two seconds after the other, with equal shares and with 3 to 1. OUT gets a line
of JSON for each, with the seconds until first tokens, and the times at which the requests of both ended.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from benchmarks.on_gpu import servers
from benchmarks.processes import ports

_KEYS: Final = {"batch": "batch-0123456789abcdef", "chat": "chat-0123456789abcdef"}
_FAIR: Final = "--fair-shares"
_BESIDE: Final = {
    "Arrival": (),
    "FairShares": (_FAIR,),
    "FairShares, batch Low": (_FAIR, "--standing=batch=Low:"),
}
_BOTH: Final = {"Arrival": (), "FairShares": (_FAIR,), "FairShares, chat 3": (_FAIR, "--standing=chat=:3")}
_PARTS: Final = {"beside": _BESIDE, "both": _BOTH}
_QUEUE: Final = (300, 4000, 16)
_ALONE: Final = (20, 500, 16)
_PAUSE_S: Final = 0.5
_LATER_S: Final = 2.0


@contextmanager
def _router(folder: Path, options: tuple[str, ...]) -> Iterator[str]:
    port, state = ports(2)
    line = [sys.executable, "-c", "from pdinference.cli import main; main()", "router", "run", f"--host={servers.HOST}"]
    line += [f"--port={port}", f"--state-port={state}", f"--api-keys-folder={folder / 'keys'}", "--no-log-requests"]
    line += [f"--parameter={servers.HOST}:{servers.PORTS['p']}", f"--decode={servers.HOST}:{servers.PORTS['d1']}"]
    with (folder / "router.log").open("ab") as log:
        process = subprocess.Popen([*line, *options], stdout=log, stderr=log)
    try:
        end = time.monotonic() + 60
        while not servers.answers(f"http://{servers.HOST}:{state}/readyz"):
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit("the router is not ready: " + (folder / "router.log").read_text()[-2000:])
            time.sleep(0.1)
        yield f"http://{servers.HOST}:{port}/v1/completions"
    finally:
        process.kill()
        process.wait()


class _Run:
    """Requests of both clients at one router."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._began = time.monotonic()
        self.first: dict[str, list[float]] = {name: [] for name in _KEYS}
        self.ended: dict[str, list[float]] = {name: [] for name in _KEYS}

    async def send(self, client: str, prompt: int, answer: int) -> None:
        """Send a request, and keep when its first token came and when it ended."""
        words = [random.randrange(3, 30_000) for _ in range(prompt)]
        body = {"model": servers.MODEL, "prompt": words, "max_tokens": answer, "ignore_eos": True, "stream": True}
        sent, first = time.monotonic(), 0.0
        async with self._session.post(
            self._url, json=body, headers={"Authorization": f"Bearer {_KEYS[client]}"}
        ) as response:
            response.raise_for_status()
            async for line in response.content:
                if line.startswith(b"data:") and not first:
                    first = time.monotonic()
        self.first[client].append(round(first - sent, 4))
        self.ended[client].append(round(time.monotonic() - self._began, 4))

    async def queue(self, client: str) -> None:
        """Send many requests at once."""
        number, prompt, answer = _QUEUE
        await asyncio.gather(*(self.send(client, prompt, answer) for _ in range(number)))

    async def alone(self, client: str) -> None:
        """Send one request after another pause, whether the last one has ended or not."""
        number, prompt, answer = _ALONE
        async with asyncio.TaskGroup() as group:
            for _ in range(number):
                group.create_task(self.send(client, prompt, answer))
                await asyncio.sleep(_PAUSE_S)


async def _measured(url: str, *, both: bool) -> dict[str, Any]:
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        run = _Run(session, url)
        await asyncio.gather(*(run.send(name, 500, 16) for name in _KEYS))  # both are known, and the way is warm
        run = _Run(session, url)
        async with asyncio.TaskGroup() as group:
            group.create_task(run.queue("batch"))
            await asyncio.sleep(_LATER_S)
            group.create_task(run.queue("chat") if both else run.alone("chat"))
    return {"first": run.first, "ended": run.ended}


def main() -> None:
    """Start the engines, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", choices=_PARTS, action="append", help="default: all")
    options = parser.parse_args()
    servers.write_model(servers.FOLDER / "model")
    keys = servers.FOLDER / "keys"
    keys.mkdir(exist_ok=True)
    for name, key in _KEYS.items():
        (keys / name).write_text(key, encoding="ascii")
    engines = ("p", "d1")
    for engine in engines:
        servers.start(engine, "--scheduling-policy=priority")
    try:
        for engine in engines:
            servers.wait_until_ready(engine)
        for part in options.part or _PARTS:
            for case, settings in _PARTS[part].items():
                both = part == "both"
                with _router(servers.FOLDER, settings) as url:
                    found = {"both": both, "case": case} | asyncio.run(_measured(url, both=both))
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(found) + "\n")
                print(case, part, flush=True)
    finally:
        for engine in engines:
            servers.kill(engine)


if __name__ == "__main__":
    main()
