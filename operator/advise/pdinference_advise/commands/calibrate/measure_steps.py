"""Measure how long steps of vLLM take on this machine: `pdinference calibrate measure`.

It runs where vLLM is, and needs nothing else. It starts `vllm serve` with random weights, or asks a server that runs
already (--url). Times of steps are the engine's own, from /metrics, so they do not depend on HTTP. The result is one
line of JSON, the last one of standard output; progress goes to standard error.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

KIND = "pdinference.io/measurement-v1"
PROMPTS = (128, 256, 512, 1024, 2048, 3072, 4096, 8192, 12288, 16384)
CONTEXTS = (500, 2000, 8000)
RUNNING = (128, 64, 32, 16, 8, 4, 1)
JOINING = (250, 440, 1000, 4000)
BESIDE = (64, 16, 1)
STREAMS = (256, 192, 160, 128, 96, 64, 32)
ANSWERS = (8, 64)
_QUICK_REPEATS, _REPEATS = 3, 5
_JOINS = 4
_PARTS = 8
"""Prompts of a full step in the backlog."""
_STEPS_OF_BACKLOG = 8
_WINDOWS = 3
_WINDOW_S, _QUICK_WINDOW_S = 0.8, 0.4
_CPU_WINDOW_S, _QUICK_CPU_WINDOW_S = 3.0, 1.5
"""The kernel counts CPU time in hundredths of a second."""
_SHORT = 64
"""Prompt tokens of requests that only the API server's time is measured with."""
_AT_ONCE = 4
"""Requests with short answers: so few that the API server keeps up."""
_SPARE_TOKENS = 400
"""Tokens that a running request generates at least before it has to end."""
_KV_SHARE = 0.9
_POLL_S = 0.02
_SETTLE_S = 0.2
_START_S = 900
_STAGE_S = 120
_CHUNK = 65536
_ITL = "vllm:inter_token_latency_seconds"
_PREFILL = "vllm:request_prefill_time_seconds"
_QUEUE = "vllm:request_queue_time_seconds"
_FIRST = "vllm:time_to_first_token_seconds_count"
_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
_GENERATED = "vllm:generation_tokens_total"
_STEPS = "vllm:iteration_tokens_total_count"
_ENDED = "vllm:request_success_total"

Json = dict[str, Any]
Metrics = dict[str, float]


class OverError(Exception):
    """The time is over, or a stage did not come to its end."""


class Answer:
    """A streamed request.

    Attributes:
        sent: When it was sent.
        first: When its first token came; 0 before.
        chunks: Events of the stream so far.
    """

    def __init__(self) -> None:
        self.sent = time.monotonic()
        self.first = 0.0
        self.chunks = 0


class Server:
    """A vLLM that is measured.

    Attributes:
        url: Its address.
        model: Name of the model in requests.
        longest: Tokens of the longest request.
        kv_tokens: Tokens of its KV cache.
        pid: Process of its API server; 0 if it is not known.
        events: Events of all streams so far.
    """

    def __init__(self, url: str, pid: int, vocabulary: int) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self.url, self._vocabulary = url.rstrip("/"), vocabulary
        self._random = random.Random(1)  # noqa: S311 - prompts
        self.pid, self.events = pid, 0
        model = json.loads(self._get("/v1/models"))["data"][0]
        self.model, self.longest = model["id"], int(model["max_model_len"])
        self.kv_tokens = _kv_tokens(self._get("/metrics"))

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:  # noqa: S310 - an address of the user
            text: str = answer.read().decode()
        return text

    @property
    def version(self) -> str:
        """Version of vLLM."""
        return str(json.loads(self._get("/version"))["version"])

    def metrics(self) -> Metrics:
        """All metrics, each as the sum over its labels."""
        return sums(self._get("/metrics"))

    async def ask(self, prompt: int, answer: int, state: Answer) -> None:
        """Send a prompt of random tokens, and read its stream.

        Raises:
            OverError: The server refuses it.
        """
        body = json.dumps(
            {
                "model": self.model,
                "prompt": [self._random.randrange(3, self._vocabulary) for _ in range(prompt)],
                "max_tokens": answer,
                "ignore_eos": True,
                "temperature": 0,
                "stream": True,
            }
        ).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            state.sent = time.monotonic()
            writer.write(head.encode() + body)
            await writer.drain()
            status = await reader.readline()
            if b" 200 " not in status:
                raise OverError(f"vLLM refused a request of {prompt} tokens: {(await reader.read(2000))!r}")
            while chunk := await reader.read(_CHUNK):
                if events := chunk.count(b"data: {"):
                    state.first = state.first or time.monotonic()
                    state.chunks += events
                    self.events += events
        finally:
            writer.close()

    def cpu_seconds(self) -> float:
        """CPU time of the API server's process so far; 0 if it is not known."""
        if not self.pid:
            return 0.0
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sums(text: str) -> Metrics:
    """Metrics in Prometheus' text format, each as the sum over its labels; buckets are left out."""
    found: Metrics = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            key = name.partition("{")[0]
            if not key.endswith("_bucket"):
                found[key] = found.get(key, 0.0) + float(value)
    return found


def _kv_tokens(text: str) -> int:
    """Tokens of the KV cache, from the labels of `vllm:cache_config_info`."""
    line = next((line for line in text.splitlines() if line.startswith("vllm:cache_config_info")), "")
    labels = dict(part.split("=", 1) for part in line[line.find("{") + 1 : line.rfind("}")].split(",") if "=" in part)
    try:
        return int(labels["num_gpu_blocks"].strip('"')) * int(labels["block_size"].strip('"'))
    except (KeyError, ValueError):
        return 0


class Measuring:
    """The measurements of one server.

    Attributes:
        points: Times of steps.
        overheads: Seconds of requests beside the engine, by tokens of the prompt.
        notes: What was left out, and why.
        servers: CPU time of the API server, and what it was for.
    """

    def __init__(self, server: Server, step_tokens: int, requests: int, seconds: float, *, quick: bool) -> None:
        self._server, self._step_tokens, self._requests = server, step_tokens, requests
        self._end = time.monotonic() + seconds
        self._repeats = _QUICK_REPEATS if quick else _REPEATS
        self._window = _QUICK_WINDOW_S if quick else _WINDOW_S
        self._cpu_window = _QUICK_CPU_WINDOW_S if quick else _CPU_WINDOW_S
        self.points: list[Json] = []
        self.overheads: list[Json] = []
        self.notes: list[str] = []
        self.servers: list[Json] = []

    async def run(self) -> None:
        """All of them. A stage that fails is noted, and the others go on."""
        await self.api_server()
        await self._stage("prompts", self._prompts())
        for context in self._contexts():
            await self._stage(f"decode, {context} tokens of context", self._decode(context))
        await self._stage("prompts beside running requests", self._mixed())
        await self._stage("backlog", self._backlog())

    async def api_server(self) -> None:
        """Warm up, and measure the CPU time of the API server."""
        await self._stage("warm-up", self._warm_up())
        if self._server.pid:
            await self._stage("API server, running streams", self._streams())
            await self._stage("API server, short answers", self._short_answers())

    async def _stage(self, name: str, work: Any) -> None:
        _tell(f"{name} ...")
        try:
            left = min(_STAGE_S, self._end - time.monotonic())
            await asyncio.wait_for(work, max(0.001, left))
        except (OverError, TimeoutError) as error:
            self.notes.append(f"{name}: {error or 'the time was over'}"[:300])
            _tell(f"{self.notes[-1]}")

    def _contexts(self) -> list[int]:
        fitting = [context for context in CONTEXTS if context + _SPARE_TOKENS < self._server.longest]
        return fitting or [max(16, self._server.longest // 3)]

    async def _warm_up(self) -> None:
        longest = min(self._server.longest - 2, self._step_tokens)
        for length in (16, longest // 2, longest):
            await self._server.ask(length, 2, Answer())
        async with self.held(min(8, self._requests), 64, 64):
            await asyncio.sleep(_SETTLE_S)

    async def _prompts(self) -> None:
        """One prompt at a time."""
        for length in (length for length in PROMPTS if length < self._server.longest - 1):
            times, overheads = [], []
            for number in range(self._repeats + 1):
                engine, queue, total = await self._one(length)
                if number:  # the first one of a length may compile
                    times.append(engine)
                    overheads.append(total - engine - queue)
            self._add("prompt", times, tokens=length, running=0, context=0)
            self.overheads.append({"tokens": length, "seconds": statistics.median(overheads)})

    async def _one(self, length: int) -> tuple[float, float, float]:
        """Seconds of a prompt in the engine, in its queue, and until the client has the token."""
        before, state = self._server.metrics(), Answer()
        await self._server.ask(length, 1, state)
        after = await self._until(lambda now: now[f"{_PREFILL}_count"] > before[f"{_PREFILL}_count"])
        delta = {name: after[f"{name}_sum"] - before[f"{name}_sum"] for name in (_PREFILL, _QUEUE)}
        return delta[_PREFILL], delta[_QUEUE], state.first - state.sent

    async def _decode(self, context: int) -> None:
        """Steps of running requests alone: most of them first, then fewer."""
        most = self._fit(context)
        numbers = [number for number in RUNNING if number <= most] or [1]
        async with self.held(numbers[0], context, self._server.longest - context - 1) as held:
            for number in numbers:
                await self.keep(held, number)
                windows = [await self._window_of(number) for _ in range(_WINDOWS)]
                grown = statistics.mean(state.chunks for _, state in held)
                self._add("decode", windows, tokens=0, running=number, context=round(context + grown))

    def _fit(self, context: int) -> int:
        room = self._server.kv_tokens or 10**9
        return max(1, min(self._requests, int(_KV_SHARE * room / (context + _SPARE_TOKENS))))

    @contextlib.asynccontextmanager
    async def held(self, number: int, context: int, answer: int) -> AsyncIterator[list[tuple[Any, Answer]]]:
        """Requests that generate, all of which have had their first token."""
        before = self._server.metrics().get(_FIRST, 0.0)
        states = [Answer() for _ in range(number)]
        held = [(asyncio.create_task(self._server.ask(context, answer, state)), state) for state in states]
        try:
            await self._until(lambda now: now.get(_FIRST, 0.0) >= before + number)
            yield held
        finally:
            for task, _ in held:
                task.cancel()
            await asyncio.gather(*(task for task, _ in held), return_exceptions=True)
            await self._until(lambda now: now[_RUNNING] + now[_WAITING] == 0)

    async def keep(self, held: list[tuple[Any, Answer]], number: int) -> None:
        """End requests until so many are left."""
        while len(held) > number:
            task, _ = held.pop()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._until(lambda now: now[_RUNNING] <= number)
        await asyncio.sleep(_SETTLE_S)

    async def _window_of(self, number: int) -> float:
        """Seconds of a step of so many requests.

        Raises:
            OverError: Some of them have ended.
        """
        before = self._server.metrics()
        await asyncio.sleep(self._window)
        steps = 10 * number  # slow devices make few in a window
        after = await self._until(lambda now: now[f"{_ITL}_count"] - before[f"{_ITL}_count"] >= steps)
        if after[_RUNNING] != number:
            raise OverError(f"{after[_RUNNING]:.0f} of {number} requests ran at the end of a window")
        return _mean(before, after)

    async def _mixed(self) -> None:
        """A prompt that joins running requests: the step that computes it, and the one after that."""
        context = self._contexts()[0]
        lengths = [each for each in JOINING if each < min(self._step_tokens, self._server.longest) - 64]
        for number in (each for each in BESIDE if each <= self._fit(context)):
            async with self.held(number, context, self._server.longest - context - 1) as held:
                alone = await self._window_of(number)
                for length in lengths or [self._step_tokens // 2]:
                    seconds = [await self._join(length, number, alone) for _ in range(_JOINS)]
                    grown = round(statistics.mean(state.chunks for _, state in held))
                    self._add("mixed", seconds, tokens=length, running=number, context=context + grown)

    async def _join(self, length: int, running: int, alone: float) -> float:
        before = self._server.metrics()
        await self._server.ask(length, 1, Answer())
        await asyncio.sleep(2 * alone + _POLL_S)
        after = self._server.metrics()
        steps = (after[f"{_ITL}_count"] - before[f"{_ITL}_count"]) / running
        total = (after[f"{_ITL}_sum"] - before[f"{_ITL}_sum"]) / running
        return total - (steps - 2) * alone

    async def _backlog(self) -> None:
        """Full steps of prompts, as a running request feels them."""
        context = self._contexts()[0]
        length = min(self._step_tokens // _PARTS, self._server.longest - 2)
        number = _STEPS_OF_BACKLOG * self._step_tokens // length
        async with self.held(1, context, self._server.longest - context - 1) as held:
            tasks = [asyncio.create_task(self._server.ask(length, 1, Answer())) for _ in range(number)]
            try:
                before = await self._until(lambda now: now[_WAITING] >= number / 2)
                after = await self._until(lambda now: now[_WAITING] <= _PARTS)
            finally:
                await asyncio.gather(*tasks, return_exceptions=True)
            if after[f"{_ITL}_count"] - before[f"{_ITL}_count"] < 2:
                raise OverError("too few steps were seen")
            grown = round(statistics.mean(state.chunks for _, state in held))
        self._add("backlog", [_mean(before, after)], tokens=length, running=1, context=context + grown)

    async def _streams(self) -> None:
        """Running streams, most of them first: the API server only writes tokens."""
        most = self._fit(_SHORT)
        numbers = [number for number in STREAMS if number <= most] or [most]
        async with self.held(numbers[0], _SHORT, self._server.longest - _SHORT - 1) as held:
            for number in numbers:
                await self.keep(held, number)
                await self._work(number)

    async def _short_answers(self) -> None:
        """Requests one after the other, some at a time: the API server also reads them."""
        number = min(_AT_ONCE, self._requests)
        for answer in ANSWERS:
            tasks = [asyncio.create_task(self._again(answer)) for _ in range(number)]
            try:
                await asyncio.sleep(_SETTLE_S)
                await self._work(number)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await self._until(lambda now: now[_RUNNING] + now[_WAITING] == 0)

    async def _again(self, answer: int) -> None:
        while True:
            await self._server.ask(_SHORT, answer, Answer())

    async def _work(self, running: int) -> None:
        """What the API server did each second of a window, and the CPU time that it took.

        CPU time is read between two readings of the metrics, so that these do not count as work of the server.
        """
        metrics, counted = await self._counted()
        start, cpu, events = time.monotonic(), self._server.cpu_seconds(), self._server.events
        await asyncio.sleep(self._cpu_window)
        lasted = time.monotonic() - start
        cpu, events = self._server.cpu_seconds() - cpu, self._server.events - events
        after, until = await self._counted()
        rates = {
            name: (after.get(metric, 0.0) - metrics.get(metric, 0.0)) / (until - counted)
            for name, metric in (("steps", _STEPS), ("tokens", _GENERATED), ("requests", _ENDED))
        }
        self.servers.append({"running": running, "cores": cpu / lasted, "events": events / lasted, **rates})
        _tell(f"  {running} running: {json.dumps({name: round(rate, 3) for name, rate in self.servers[-1].items()})}")

    async def _counted(self) -> tuple[Metrics, float]:
        """The metrics, and about when they were counted."""
        asked = time.monotonic()
        metrics = await asyncio.to_thread(self._server.metrics)
        return metrics, (asked + time.monotonic()) / 2

    def _add(self, kind: str, seconds: list[float], **what: int) -> None:
        median = statistics.median(seconds)
        _tell(f"  {kind} {what}: {1000 * median:.2f} ms")
        if median > 0:
            self.points.append({"kind": kind, **what, "seconds": median})
        else:
            self.notes.append(f"{kind} {what}: other work on this machine was larger than the time itself")

    async def _until(self, holds: Any) -> Metrics:
        """The metrics, once a condition holds.

        Raises:
            OverError: The time is over.
        """
        while True:
            now = await asyncio.to_thread(self._server.metrics)
            if holds(now):
                return now
            if time.monotonic() > self._end:
                raise OverError("the time was over")
            await asyncio.sleep(_POLL_S)


def _mean(before: Metrics, after: Metrics) -> float:
    """Mean gap between tokens."""
    return (after[f"{_ITL}_sum"] - before[f"{_ITL}_sum"]) / (after[f"{_ITL}_count"] - before[f"{_ITL}_count"])


def write_model(folder: Path, config: Json) -> None:
    """Write a config.json, and a tokenizer of one token a word."""
    words = ["<unk>", "<s>", "</s>", *(f"w{number}" for number in range(3, vocabulary_of(config)))]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    special = [{"id": n, "content": word, "special": True, **flags} for n, word in enumerate(words[:3])]
    model = {"type": "WordLevel", "vocab": {word: n for n, word in enumerate(words)}, "unk_token": "<unk>"}
    unused = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    tokenizer = {"version": "1.0", "added_tokens": special, "pre_tokenizer": {"type": "WhitespaceSplit"}, **unused}
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    files = {
        "config.json": config,
        "tokenizer.json": {**tokenizer, "model": model},
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **names},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


def vocabulary_of(config: Json) -> int:
    """Tokens of a model's vocabulary."""
    return int(config.get("vocab_size") or config.get("text_config", {}).get("vocab_size") or 1000)


@contextlib.contextmanager
def started(arguments: list[str], config: Json | None, model: str, step_tokens: int, port: int) -> Iterator[int]:
    """A server of random weights, while the block runs; its process id.

    Raises:
        SystemExit: It does not start.
    """
    with tempfile.TemporaryDirectory() as folder:
        if config is not None:
            write_model(Path(folder), config)
            model = folder
        line = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model, *arguments, "--load-format=dummy"]
        line += ["--host=127.0.0.1", f"--port={port}", "--no-enable-prefix-caching", "--disable-uvicorn-access-log"]
        line += [f"--max-num-batched-tokens={step_tokens}", "--served-model-name=measured"]
        log = Path(folder, "vllm.log")
        with log.open("wb") as output:
            process = subprocess.Popen(line, stdout=output, stderr=output, start_new_session=True)  # noqa: S603
        try:
            _wait(process, port, log)
            yield process.pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return
        time.sleep(0.5)
    raise SystemExit("vLLM did not start. The end of its log:\n" + log.read_text(errors="replace")[-6000:])


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="", help="The model's config.json, as text. Weights are random.")
    parser.add_argument("--model", default="", help="Folder with a config.json and a tokenizer, instead.")
    parser.add_argument("--url", default="", help="A server that runs already, without prefix caching, unused.")
    parser.add_argument("--pid", type=int, default=0, help="Process of that server, for its CPU time.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--step-tokens", type=int, default=8192, help="max-num-batched-tokens.")
    parser.add_argument("--requests", type=int, default=128, help="Most requests at once; at most max-num-seqs.")
    parser.add_argument("--seconds", type=float, default=300, help="Longest duration, without the start of vLLM.")
    parser.add_argument("--quick", action="store_true", help="Shorter windows and fewer repetitions.")
    parser.add_argument("--servers-only", action="store_true", help="CPU time of the API server alone, no steps.")
    parser.add_argument("--about", default="{}", help="JSON that is passed on.")
    parser.add_argument("-o", "--output", default="", help="File for the result, besides standard output.")
    parser.add_argument("arguments", nargs="*", help="After --: arguments of vllm serve.")
    return parser.parse_args(words)


def measured(options: argparse.Namespace, config: Json | None, url: str, pid: int) -> Json:
    """Measure a server that runs."""
    server = Server(url, pid, vocabulary_of(config or {}))
    measuring = Measuring(server, options.step_tokens, options.requests, options.seconds, quick=options.quick)
    asyncio.run(measuring.api_server() if options.servers_only else measuring.run())
    return {
        "apiVersion": KIND,
        "about": json.loads(options.about),
        "config": config,
        "vllm": server.version,
        "date": datetime.now(UTC).date().isoformat(),
        "stepTokens": options.step_tokens,
        "points": measuring.points,
        "overheads": measuring.overheads,
        "servers": measuring.servers,
        "notes": measuring.notes,
    }


def main(words: list[str]) -> None:
    """Measure, and print the result."""
    options = _options(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that vLLM, which has a session of its own, ends too
    if not (options.config or options.model or options.url):
        raise SystemExit("Write --config, --model or --url.")
    text = options.config or (Path(options.model, "config.json").read_text(encoding="utf-8") if options.model else "")
    config = json.loads(text) if text else None
    if options.url:
        result = measured(options, config, options.url, options.pid)
    else:
        own = config if options.config else None
        with started(options.arguments, own, options.model, options.step_tokens, options.port) as pid:
            result = measured(options, config, f"http://127.0.0.1:{options.port}", pid)
    line = json.dumps(result, separators=(",", ":"))
    if options.output:
        Path(options.output).write_text(line + "\n", encoding="utf-8")
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
