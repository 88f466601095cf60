"""The runner as a process with a hostile input, a hostile service, and little memory."""

import asyncio
import gzip
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pdinference.engine.batch import ENVIRONMENT, ERRORS, OUTPUT
from pdinference.runner.run import Exit
from tests.hostile.batch_inputs import WRONG
from tests.runner.service import FakeService, line, read_lines, write_lines

MIB = 1 << 20
RESIDENT = 256 * MIB
"""The default memory request of the runner's pod. It is sufficient, plus 10 to 24 bytes for each request."""
_CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from pdinference.cli import main
try:
    main()
finally:
    status = open("/proc/self/status").read()  # ru_maxrss would be that of whoever started this, if it is larger
    sys.stderr.write("peak " + status.split("VmHWM:")[1].split()[0] + "\\n")
"""


@pytest.fixture
async def service() -> AsyncIterator[FakeService]:
    async with FakeService().serve() as service:
        yield service


class Ended:
    """A runner that ended."""

    def __init__(self, code: int, log: str, output: Path, report: Path) -> None:
        self.code, self.log, self.output = code, log, output
        self.words: dict[str, Any] = json.loads(report.read_text())
        self.peak = 1024 * int(log.rsplit("peak ", 1)[1])

    def lines(self, name: str) -> list[dict[str, Any]]:
        return read_lines(self.output / name)


async def ended(service: FakeService, source: Path, folder: Path, *more: str) -> Ended:
    output, report = folder / "output", folder / "report"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _CHILD, "batch", "run", f"--input={source}", f"--output={output}"),
        *(f"--url={service.url}", "--metrics-port=0", f"--report={report}", "--max-retries=0", *more),
        stderr=subprocess.PIPE,
        env={**os.environ, **ENVIRONMENT},
    )
    _, log = await process.communicate()
    assert b"Traceback" not in log, log.decode()
    return Ended(process.returncode or 0, log.decode(), output, report)


async def test_good_lines_are_answered_and_each_bad_one_has_an_error(service: FakeService, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    bad = list(WRONG.values())
    with source.open("wb") as file:
        for number, wrong in enumerate(bad):
            file.write(json.dumps(line(number)).encode() + b"\n" + wrong.replace(b"\n", b" ") + b"\n")
        file.write(b"x" * 100 * MIB)  # a line that is far too long, without an end
    found = await ended(service, source, tmp_path)
    assert found.code == Exit.DONE, found.log
    assert sorted(item["custom_id"] for item in found.lines(OUTPUT)) == sorted(f"request-{n}" for n in range(len(bad)))
    errors = found.lines(ERRORS)
    assert sorted(item["line"] for item in errors) == [*(2 * n + 2 for n in range(len(bad))), 2 * len(bad) + 1]
    assert {item["error"]["code"] for item in errors} == {"invalid_line"}
    assert found.words["total"] == 2 * len(bad) + 1
    assert found.peak < RESIDENT
    again = await ended(service, source, tmp_path)
    assert (again.words["completed"], again.words["failed"]) == (len(bad), len(bad) + 1)
    assert len(again.lines(ERRORS)) == len(errors)
    assert service.asked.total() == len(bad)


async def test_many_large_requests_and_answers_share_little_memory(service: FakeService, tmp_path: Path) -> None:
    text = "x" * (10 * MIB)
    service.fault = lambda *_: web.Response(body=json.dumps({"id": "a", "text": text}).encode())
    source = write_lines(tmp_path / "in.jsonl", [line(number, user=text) for number in range(24)])
    found = await ended(service, source, tmp_path, "--concurrency=24")
    assert found.code == Exit.DONE, found.log
    assert len(found.lines(OUTPUT)) == 24
    assert found.peak < RESIDENT


async def endless(request: web.Request, start: bytes, headers: dict[str, str] | None = None) -> web.StreamResponse:
    answer = web.StreamResponse(headers=headers)
    await answer.prepare(request)
    await answer.write(start)
    try:
        for _ in range(10_000):  # 10 GB
            await answer.write(b"x" * MIB)
    except ConnectionError:
        pass
    return answer


def answers(name: str) -> Callable[[web.Request], Any]:
    """What a service may answer, by name."""
    fixed: dict[str, tuple[int, bytes, dict[str, str]]] = {
        "no JSON": (200, b"<html>", {}),
        "nothing": (200, b"", {}),
        "invalid UTF-8": (200, b'{"a": "\xff"}', {}),
        "lines within text": (200, b'{"a": "b\nc"}', {}),
        "NaN": (200, b'{"a": NaN}', {}),
        "a level too many": (200, b"[" * 129 + b"]" * 129, {}),
        "levels without end": (200, b"[" * 5 * MIB, {}),
        "a bomb": (200, gzip.compress(b"0" * 100 * MIB), {"Content-Encoding": "gzip"}),
        "a lie": (200, b"{}", {"Content-Encoding": "br"}),
        "a refusal without end of levels": (400, b"[" * MIB, {}),
        "a long refusal": (400, b"x" * 20 * MIB, {}),
        "a refusal of control characters": (400, b"\x1b[31m\0\xff\n", {}),
        "a redirect": (307, b"", {"Location": "/elsewhere"}),
    }
    if name in fixed:
        status, body, headers = fixed[name]
        return lambda _: web.Response(status=status, body=body, headers=headers)
    if name == "a refusal without end":
        return lambda request: endless(request, b"x")
    return lambda request: endless(request, b'{"a": "')


NAMES = [
    "no JSON",
    "nothing",
    "invalid UTF-8",
    "lines within text",
    "NaN",
    "a level too many",
    "levels without end",
    "a bomb",
    "a lie",
    "a refusal without end of levels",
    "a long refusal",
    "a refusal of control characters",
    "a redirect",
    "a refusal without end",
    "an answer without end",
]


async def test_no_answer_ends_the_runner_or_fills_its_memory(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        prompt = (await request.json())["messages"][0]["content"]
        found = answers(NAMES[int(prompt.split()[1])])(request)
        return found if isinstance(found, web.StreamResponse) else await found

    async with FakeService().serve(chat=answer) as service:
        source = write_lines(tmp_path / "in.jsonl", [line(number) for number in range(len(NAMES))])
        found = await ended(service, source, tmp_path)
    assert found.code == Exit.DONE, found.log
    assert found.lines(OUTPUT) == []
    errors = found.lines(ERRORS)
    assert sorted(item["custom_id"] for item in errors) == sorted(f"request-{n}" for n in range(len(NAMES)))
    assert max(len(json.dumps(item)) for item in errors) < 70_000
    assert found.peak < RESIDENT


async def test_headers_of_an_answer_are_text_or_left_out(tmp_path: Path) -> None:
    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nX-Request-Id: \xff\xed\xa0\x80\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(odd, "127.0.0.1", 0)
    async with server:
        service = FakeService()
        service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        found = await ended(service, write_lines(tmp_path / "in.jsonl", [line(1)]), tmp_path)
    assert found.code == Exit.DONE, found.log
    assert len(found.lines(OUTPUT)) == 1
