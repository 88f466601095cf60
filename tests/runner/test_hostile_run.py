"""The runner as a process with a hostile input, a hostile service and a hostile folder, and little memory."""

import asyncio
import gzip
import json
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pdinference.engine.batch import ENVIRONMENT, ERRORS, IDENTITY, OUTPUT
from pdinference.runner.ids import IdSet
from pdinference.runner.lines import BatchRequestOutput, BatchResponseData
from pdinference.runner.requests import InvalidInputError, survey
from pdinference.runner.results import Results, UnfitOutputError
from pdinference.runner.run import Exit
from tests.hostile.batch_inputs import WRONG
from tests.runner.service import FakeService, line, read_lines, write_lines

MIB = 1 << 20
RESIDENT = 256 * MIB
"""What the runner's pod asks for by default; it never needs more (besides 10 to 24 bytes for each request)."""
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


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def outside(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def a_folder(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


KINDS = (device, fifo, outside, a_folder, loop, nowhere)


@pytest.mark.parametrize("make", KINDS)
def test_what_is_no_file_of_the_volume_is_no_input(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "in.jsonl")
    with pytest.raises(InvalidInputError, match="The input cannot be read"):
        survey(tmp_path / "in.jsonl", within=tmp_path)


def test_a_link_within_the_volume_is_followed_as_in_a_configmap(tmp_path: Path) -> None:
    (tmp_path / "..2026").mkdir()
    write_lines(tmp_path / "..2026" / "input.jsonl", [line(1)])
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "input.jsonl").symlink_to("..data/input.jsonl")
    assert survey(tmp_path / "input.jsonl", within=tmp_path).total == 1


def test_a_sparse_file_of_terabytes_is_refused_at_once(tmp_path: Path) -> None:
    with (tmp_path / "in.jsonl").open("wb") as file:
        file.truncate(10 << 40)
    with pytest.raises(InvalidInputError, match="Split it"):
        survey(tmp_path / "in.jsonl")


@pytest.mark.parametrize("name", [OUTPUT, ERRORS, IDENTITY])
@pytest.mark.parametrize("make", KINDS)
def test_what_is_no_file_in_the_output_is_never_written(
    tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    make(tmp_path / name)
    with pytest.raises(UnfitOutputError, match=f"{name} in the output folder is a link, a folder or a device"):
        Results(tmp_path, "a")


def test_a_link_does_not_lead_answers_into_another_file(tmp_path: Path) -> None:
    precious, folder = tmp_path / "precious", tmp_path / "folder"
    precious.write_text("mine")
    folder.mkdir()
    for name in (OUTPUT, "batch.new"):
        (folder / name).symlink_to(precious)
        try:
            Results(folder, "a").close()
        except UnfitOutputError:
            (folder / name).unlink()
    assert precious.read_text() == "mine"


def test_a_link_does_not_lead_the_folder_out_of_the_volume(tmp_path: Path) -> None:
    volume, elsewhere = tmp_path / "volume", tmp_path / "elsewhere"
    volume.mkdir()
    elsewhere.mkdir()
    (volume / "inner").mkdir()
    (volume / "out").symlink_to(elsewhere)
    (volume / "in").symlink_to("inner")
    with pytest.raises(UnfitOutputError, match=r"a link leads out.*spec\.output\.persistentVolumeClaim\.path"):
        Results(volume / "out", "a", within=volume)
    assert list(elsewhere.iterdir()) == []
    Results(volume / "in", "a", within=volume).close()


HOSTILE_OUTPUT = {
    "levels without end": b"[" * 1_000_000 + b"\n",
    "levels within": b'{"custom_id":"x","a":' + b"[" * 100_000 + b"\n",
    "invalid UTF-8": b'{"custom_id":"\xff"}\n',
    "NUL": b"\0\n",
    "a line for text": b'{"custom_id":null,"line":"7"}\n',
    "a huge number": b'{"custom_id":null,"line":' + b"9" * 10_000 + b"}\n",
    "neither": b'{"custom_id":null}\n',
    "a list": b'["custom_id"]\n',
    "a number": b'{"custom_id":7}\n',
}


@pytest.mark.parametrize("name", HOSTILE_OUTPUT)
def test_output_that_no_runner_wrote_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    Results(tmp_path, "a").close()
    whole = written(1) + HOSTILE_OUTPUT[name]
    (tmp_path / OUTPUT).write_bytes(whole)
    with pytest.raises(UnfitOutputError, match="no batch output"):
        Results(tmp_path, "a")
    assert (tmp_path / OUTPUT).read_bytes() == whole


@pytest.mark.parametrize("torn", [b"\0" * 5_000_000, b"[" * 100_000, b'{"custom_id":"request-2"', b"\xff\xfe"])
def test_a_torn_end_of_any_bytes_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    Results(tmp_path, "a").close()
    (tmp_path / OUTPUT).write_bytes(written(1) + torn)
    Results(tmp_path, "a").close()
    assert (tmp_path / OUTPUT).read_bytes() == written(1)


@pytest.mark.parametrize("note", [b"[" * 10_000, b'{"identity": 7}', b"null", b'{"identity": "a"', b"x" * 100_000])
def test_a_note_that_makes_no_sense_claims_the_folder(tmp_path: Path, note: bytes) -> None:
    (tmp_path / IDENTITY).write_bytes(note)
    with pytest.raises(UnfitOutputError, match="another input"):
        Results(tmp_path, "a")


def written(number: int) -> bytes:
    response = BatchResponseData(status_code=200, request_id="r", body={})
    return BatchRequestOutput(id="i", custom_id=f"request-{number}", response=response, error=None).as_line()


def test_names_of_512_characters_need_no_more_than_short_ones() -> None:
    """As text they would be 170 MB."""
    usage = partial(resource.getrusage, resource.RUSAGE_SELF)
    before, ids = usage().ru_maxrss, IdSet()
    for number in range(300_000):
        assert ids.add(f"{number:0512}")
    assert not ids.add(f"{7:0512}")
    assert len(ids) == 300_000
    assert f"{299_999:0512}" in ids
    assert f"{300_000:0512}" not in ids
    assert (usage().ru_maxrss - before) * 1024 < 24 * MIB
