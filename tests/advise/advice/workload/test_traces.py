"""Traces in files: the formats, what is skipped, what is refused, how long it takes."""

import io
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference_advise.advice.workload import traces
from pdinference_advise.advice.workload.bounds import MOST_TOKENS, WorkloadError
from pdinference_advise.advice.workload.summary import summarise
from pdinference_advise.advice.workload.trace import Trace
from pdinference_advise.advice.workload.traces import azure, lines, mooncake, vllm_bench
from pdinference_advise.advice.workload.traces.mooncake import TimeUnit
from pdinference_advise.simulation.arrivals import Arrival

SAMPLES = Path(__file__).parent / "samples"
AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROWS = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(0, MOST_TOKENS), st.integers(0, MOST_TOKENS)), min_size=1, max_size=20
)


def sample(name: str, unit: TimeUnit | None = None) -> Trace:
    with (SAMPLES / name).open("rb") as stream:
        return traces.read(stream, name, unit=unit)


def read(content: bytes, unit: TimeUnit | None = None) -> Trace:
    return traces.read(io.BytesIO(content), "f", unit=unit)


def refusal(content: bytes, unit: TimeUnit | None = None) -> str:
    with pytest.raises(WorkloadError) as error:
        read(content, unit)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 1000
    return str(error.value)


def expected(rows: list[tuple[int, int, int]]) -> list[tuple[float, int, int]]:
    """Rows of times in milliseconds, as arrivals."""
    served = sorted(row for row in rows if row[1] and row[2])
    return [((at - served[0][0]) / 1000, prompt, answer) for at, prompt, answer in served]


def found(trace: Trace) -> list[tuple[float, int, int]]:
    return sorted((round(arrival.at, 3), arrival.prompt, arrival.answer) for arrival in trace.arrivals)


def test_azure_of_2023_is_sorted_and_empty_rows_are_skipped() -> None:
    trace = sample("azure_2023.csv")
    assert [(round(arrival.at, 6), arrival.prompt, arrival.answer) for arrival in trace.arrivals] == [
        (0, 374, 44),
        (2, 879, 55),
        (4, 396, 109),
        (10, 1313, 142),
    ]
    assert trace.source == "Azure's trace azure_2023.csv"
    assert trace.notes == (
        "Rows without prompt or answer tokens were skipped: 1.",
        "Rows that were not in order of time were sorted: 1.",
    )


def test_azure_of_2024_has_offsets_and_whole_seconds() -> None:
    assert [round(arrival.at, 6) for arrival in sample("azure_2024.csv").arrivals] == [0, 0.75, 2]


def test_azure_of_2025_has_a_column_more() -> None:
    trace = sample("azure_2025_multimodal.csv")
    assert found(trace) == [(0, 1024, 38), (1.5, 642, 120)]
    assert trace.notes == ("Only the tokens are used, not the number of images.",)


def test_mooncake_has_milliseconds_and_whole_blocks_in_common() -> None:
    trace = sample("mooncake.jsonl")
    assert trace.arrivals == (
        Arrival(0.0, 1100, 52, (46, 47)),
        Arrival(0.5, 1536, 26, (46, 47, 49)),
        Arrival(3.0, 200, 7),
    )
    assert trace.notes == (
        "Time stamps are read as milliseconds.",
        "Rows without prompt or answer tokens were skipped: 1.",
    )
    assert summarise(trace).repeated == 1024 / (1100 + 1536 + 200)


def test_a_timed_trace_of_vllm_has_smaller_blocks_and_needs_its_unit() -> None:
    trace = sample("vllm_timed_trace.jsonl", "s")
    assert [arrival.at for arrival in trace.arrivals] == [0, 1.5, 2]
    assert [len(arrival.prefix) for arrival in trace.arrivals] == [0, 1, 1]
    assert trace.arrivals[1].prefix == trace.arrivals[2].prefix
    assert refusal((SAMPLES / "vllm_timed_trace.jsonl").read_bytes()) == (
        "f, line 1: the time stamp 0.25 has a fraction, so it may be in seconds or in milliseconds (Mooncake's are "
        "whole milliseconds). Give the unit: --trace-unit s or --trace-unit ms."
    )


@pytest.mark.parametrize("block", [16, 64, 512])
def test_blocks_of_any_size_give_the_same_common_tokens(block: int) -> None:
    def row(at: int, begin: int, length: int) -> bytes:
        ids = [begin * 10_000 + n for n in range(1024 // block)]
        ids += [at * 100_000 + n for n in range(-(-length // block) - len(ids))]
        fields = {"timestamp": at, "input_length": length, "output_length": 5, "hash_ids": ids}
        return json.dumps(fields).encode() + b"\n"

    trace = read(row(1, 7, 2000) + row(2, 7, 1500) + row(3, 8, 1500))
    assert summarise(trace).repeated == 1024 / 5000


def test_hashes_that_fit_no_block_are_not_used() -> None:
    line = b'{"timestamp": 1, "input_length": 5000, "output_length": 5, "hash_ids": [1, 2]}\n'
    trace = read(line * 3)
    assert {arrival.prefix for arrival in trace.arrivals} == {()}
    assert "The prompts' hashes do not fit blocks of 16 to 512 tokens, and are not used." in trace.notes


def test_a_result_of_vllm_bench_is_a_trace_without_its_failed_requests() -> None:
    trace = sample("vllm_bench.json")
    assert found(trace) == [(0, 100, 3), (1, 200, 4), (3, 300, 1)]
    assert trace.source == "`vllm bench serve` result vllm_bench.json"
    assert trace.notes == ("Rows without prompt or answer tokens were skipped: 1.",)


def test_a_result_that_was_formatted_is_read_too() -> None:
    content = json.loads((SAMPLES / "vllm_bench.json").read_text())
    assert found(read(json.dumps(content, indent=2).encode())) == found(sample("vllm_bench.json"))


@given(ROWS, st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_rows_written_as_azure_does_are_read_as_they_are(
    rows: list[tuple[int, int, int]], end: bytes, mark: bool
) -> None:
    begin = datetime(2024, 5, 10, tzinfo=UTC)
    text = [f"{begin + timedelta(milliseconds=at)},{prompt},{answer}".encode() for at, prompt, answer in rows]
    content = b"\xef\xbb\xbf" * mark + end.join([AZURE.strip(), *text])
    if expected(rows):
        assert found(read(content)) == expected(rows)
    else:
        assert (
            refusal(content) == f"f has no requests. No row has both prompt and answer tokens ({len(rows)} were read)."
        )


def test_seconds_are_read_as_seconds() -> None:
    assert [arrival.at for arrival in read(line(timestamp=3) + line(timestamp=5.5), "s").arrivals] == [0, 2.5]


@given(ROWS)
def test_rows_written_as_mooncake_does_are_read_as_they_are(rows: list[tuple[int, int, int]]) -> None:
    content = "\n\n".join(
        json.dumps({"timestamp": at, "input_length": prompt, "output_length": answer, "hash_ids": []})
        for at, prompt, answer in rows
    ).encode()
    if expected(rows):
        assert found(read(content)) == expected(rows)
    else:
        assert refusal(content).startswith("f has no requests.")


class Trickle(io.RawIOBase):
    """A stream that gives some bytes at a time, as a pipe does, and cannot be read twice."""

    def __init__(self, content: bytes, size: int) -> None:
        self._rest, self._size = content, size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        most = min(size, self._size) if size >= 0 else self._size
        given, self._rest = self._rest[:most], self._rest[most:]
        return given


@pytest.mark.parametrize("name", ["azure_2023.csv", "mooncake.jsonl", "vllm_bench.json"])
@pytest.mark.parametrize("size", [1, 7, 10**6])
def test_a_pipe_is_read_as_a_file(name: str, size: int) -> None:
    stream = Trickle(b"\n\n" + (SAMPLES / name).read_bytes(), size)
    assert traces.read(stream, name) == sample(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            AZURE + b"yesterday,1,2",
            'f, line 2: "yesterday" in TIMESTAMP is no time. It must be as in 2023-11-16 18:15:46.6805900.',
        ),
        (AZURE + b"2024-05-10 00:00:00,-1,2", 'f, line 2: "-1" in ContextTokens is no whole number of tokens.'),
        (
            AZURE + b"2024-05-10 00:00:00,1000000000000,2",
            "f, line 2: 1000000000000 tokens are not between 0 and 10,000,000.",
        ),
        (AZURE + b"2024-05-10 00:00:00,1,nan", 'f, line 2: "nan" in GeneratedTokens is no whole number of tokens.'),
        (AZURE + b"\n\n2024-05-10 00:00:00,1,1e9", 'f, line 4: "1e9" in GeneratedTokens is no whole number of tokens.'),
        (AZURE + b"2024-05-10 00:00:00,1000000000,2", "f, line 2: 1000000000 tokens are not between 0 and 10,000,000."),
        (AZURE + b"2024-05-10 00:00:00,1" + b"0" * 5000 + b",2", None),
        (AZURE + b"2024-05-10 00:00:00,1", "f, line 2: 2 fields, and the header has 3."),
        (AZURE + b"2024-05-10 00:00:00,\xff,2", "f, line 2: it is not UTF-8 text."),
        (AZURE, "f has no requests."),
        (
            AZURE + b"0001-01-01 00:00:00,1,1\n2024-05-10 00:00:00,1,1",
            "f is 739,015 days long, more than 366. Check its time stamps.",
        ),
        (
            b"TIMESTAMP,Tokens\n",
            (
                "f, line 1: the column ContextTokens is missing. The header must have TIMESTAMP,ContextTokens,"
                "GeneratedTokens."
            ),
        ),
    ],
)
def test_a_wrong_row_of_azure_is_refused_with_its_line(content: bytes, message: str | None) -> None:
    assert refusal(content).startswith(message or "f, line 2: ")


def line(**fields: object) -> bytes:
    row = {"timestamp": 1, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]} | fields
    return json.dumps(row).encode() + b"\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (line(input_length=-1), "f, line 1: -1 tokens are not between 0 and 10,000,000."),
        (line(input_length=10**9), "f, line 1: 1000000000 tokens are not between 0 and 10,000,000."),
        (
            line() + line(input_length="7"),
            "f, line 2: it is no request of a Mooncake trace: Expected `int`, got `str` - at `$.input_length`.",
        ),
        (
            line() + line(output_length=float("nan")),
            "f, line 2: it is no request of a Mooncake trace: JSON is malformed: invalid character",
        ),
        (line() + b'{"timestamp": 1e999, "input_length": 1, "output_length": 1}', None),
        (line(timestamp=10**30), "f, line 1: the time stamp is out of bounds."),
        (line(timestamp=10**300), "f, line 1: the time stamp is out of bounds."),
        (line() + b"\n" + line()[:-5], None),
        (line() + b"\xff\xfe\n", None),
        (
            line() + b'{"timestamp": 1, "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
            (
                "f, line 2: it is no request of a Mooncake trace: maximum recursion depth exceeded while deserializing "
                "an object."
            ),
        ),
        (line() + line(hash_ids="x" * lines.LONGEST_LINE), "f, line 2 has more than 1,048,576 bytes."),
        (line() + b"1" * 10 * lines.LONGEST_LINE, "f, line 2 has more than 1,048,576 bytes."),
    ],
)
def test_a_wrong_line_of_mooncake_is_refused_with_its_number(content: bytes, message: str | None) -> None:
    assert refusal(content).startswith(message or "f, line ")


@pytest.mark.parametrize("digits", [100, 4000, 6000, 60_000])
def test_numbers_of_many_digits_are_refused(digits: int) -> None:
    number = b"9" * digits
    for name in (b"timestamp", b"input_length"):
        content = line().replace(b'"' + name + b'": ', b'"' + name + b'": ' + number)
        assert refusal(content).startswith("f, line 1: ")
    assert refusal(line().replace(b"[1, 2]", b"[" + number + b", 2" * 50 + b"]") * 3 + b"}").startswith("f, line")


def result(**fields: object) -> bytes:
    content = json.loads((SAMPLES / "vllm_bench.json").read_text()) | fields
    return json.dumps({name: value for name, value in content.items() if value is not None}).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            result(input_lens=None),
            (
                "f has no input_lens, so it does not say when which requests came. Run `vllm bench serve` again with "
                "--save-result --save-detailed."
            ),
        ),
        (
            result(start_times=[1.0]),
            "f: input_lens, output_lens and start_times have 4, 4 and 1 entries. They must have one for each request.",
        ),
        (
            result(output_lens=["a"]),
            "f: output_lens is no list of numbers: Expected `int`, got `str` - at `$[0]`.",
        ),
        (result(input_lens={"a": 1}), "f: input_lens is no list of numbers: Expected `array`, got `object`."),
        (result(input_lens=[10**9, 1, 1, 1]), "f, request 1: 1000000000 tokens are not between 0 and 10,000,000."),
        (result(input_lens=[1, 1, 1, -1]), "f, request 4: -1 tokens are not between 0 and 10,000,000."),
        (
            result() + b"\n" + result(),
            "f has several results (--append-result). Give one of its lines, for example with tail -n 1.",
        ),
        (
            result()[:-1] + b', "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
            "f is no result of `vllm bench serve`: maximum recursion depth exceeded while deserializing an object.",
        ),
        (result()[:500], None),
        (result(start_times=[1e300, 0, 0, 0]), "f, request 1: the time stamp 1e+300 s is out of bounds."),
    ],
)
def test_a_wrong_result_of_vllm_bench_is_refused(content: bytes, message: str | None) -> None:
    assert refusal(content).startswith(message or "f is no result of `vllm bench serve`: ")


def test_lists_of_a_result_are_bounded_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_bench, "MOST_REQUESTS", 3)
    assert refusal(result()) == "f has more than 3 requests."


def test_a_result_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_bench, "_MOST_BYTES", 500)
    assert refusal(result()) == "f is larger than 500 bytes."


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "f is empty. Traces are "),
        (b"\n \n", "f is empty. Traces are "),
        (b"\x1f\x8b\x08rest", "f is compressed. Decompress it first, with gunzip or unzstd."),
        ("TIMESTAMP,ContextTokens".encode("utf-16"), "f is not UTF-8 text. "),
        (b'{"prompt": "Hi", "output_tokens": 10}', "f has prompts as text, without times and token counts "),
        (b"a,b,c\n1,2,3", "f is in no format that is known. Traces are "),
        (b"{}", "f is in no format that is known. Traces are "),
        (b"\x00" * 100, "f is not UTF-8 text. "),
    ],
)
def test_what_is_no_trace_is_refused_with_the_formats(content: bytes, words: str) -> None:
    assert refusal(content).startswith(words)


@pytest.mark.parametrize("begin", [b"", AZURE, line(), result()])
@given(content=st.binary(max_size=300))
def test_any_bytes_are_a_trace_or_refused(begin: bytes, content: bytes) -> None:
    try:
        outcome = str(len(read(begin + content).arrivals))
    except WorkloadError as error:
        outcome = str(error)
    assert outcome.isprintable()
    assert outcome != "0"


def test_more_rows_than_the_limit_are_left_out_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdinference_advise.advice.workload.traces.rows.MOST_REQUESTS", 2)
    monkeypatch.setattr(mooncake, "MOST_REQUESTS", 2)
    csv = AZURE + b"2024-05-10 00:00:00,1,1\n2024-05-10 00:00:01,1,1\n"
    assert read(csv).notes == ()
    assert read(csv + b"2024-05-10 00:00:02,1,1\n").notes == (
        "Only the rows before line 4 were read. To use others, cut the file, for example with sed.",
    )
    assert len(read(line() * 2).notes) == 1
    assert (
        read(line() * 3).notes[1]
        == "Only the rows before line 3 were read. To use others, cut the file, for example with sed."
    )


def test_hashes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mooncake, "_MOST_HASHES", 3)
    assert len(read(line() * 5).arrivals) == 2


def test_a_stream_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_BYTES", 100_000)
    assert refusal(AZURE + b"2024-05-10 00:00:00,1,1\n" * 10_000) == (
        "f is larger than 100,000 bytes. Cut it, for example with head."
    )


def azure_hour(random: Random) -> bytes:
    begin = datetime(2023, 11, 16, tzinfo=UTC)
    times = sorted(random.uniform(0, 3600) for _ in range(30_000))
    rows = (f"{begin + timedelta(seconds=at):%Y-%m-%d %H:%M:%S.%f}0,{random.randrange(1, 8000)},50" for at in times)
    return AZURE + "\r\n".join(rows).encode()


def mooncake_hour(random: Random) -> bytes:
    rows = []
    for at in range(0, 3_600_000, 150):
        length = random.randrange(1, 17_000)
        ids = [random.randrange(200_000) for _ in range(-(-length // 512))]
        rows.append(line(timestamp=at, input_length=length, hash_ids=ids))
    return b"".join(rows)


@pytest.mark.parametrize("content", [azure_hour, mooncake_hour])
def test_an_hour_is_read_in_less_than_two_seconds(content: Callable[[Random], bytes]) -> None:
    stream = io.BytesIO(content(Random(1)))  # noqa: S311 - no secret
    began = time.process_time()
    trace = traces.read(stream, "hour")
    assert time.process_time() - began < 2
    assert len(trace.arrivals) >= 24_000


def test_the_formats_do_not_claim_each_others_files() -> None:
    recognised = {
        name: [one.__name__.rpartition(".")[2] for one in (azure, mooncake, vllm_bench) if one.recognises(begin)]
        for name in sorted(path.name for path in SAMPLES.iterdir())
        if (begin := (SAMPLES / name).read_bytes()[:65536])
    }
    assert recognised == {
        "azure_2023.csv": ["azure"],
        "azure_2024.csv": ["azure"],
        "azure_2025_multimodal.csv": ["azure"],
        "mooncake.jsonl": ["mooncake"],
        "vllm_bench.json": ["vllm_bench"],
        "vllm_timed_trace.jsonl": ["mooncake"],
    }
