"""For any bytes of a pod: a reading of sound numbers or `UnreadableError`, and sound signals in both cases."""

import math
import random
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from pdinference.loadmetrics.latencies import measure_latency
from pdinference.loadmetrics.scraping.exposition import PREFIX, Exposition, Reading
from pdinference.loadmetrics.scraping.http_answer import HttpAnswer
from pdinference.loadmetrics.scraping.unreadable import UnreadableError
from pdinference.loadmetrics.scraping.window import TimedReading, Window
from pdinference.loadmetrics.signals import LoadUnavailableError, PodLoad, Upstream, measure
from pdinference.planning.scaling.signals import LATENCY_METRICS, Signal
from pdinference.planning.scaling.vllm_metrics import VllmMetric
from tests.examples import MORE
from tests.loadmetrics.readings import RECORDED, START, is_sound

FILES = [path.read_bytes() for path in sorted(RECORDED.glob("*.txt"))]
NAMES = [name + part for name in VllmMetric for part in ("", "_sum", "_count", "_bucket")]
NUMBERS = ["NaN", "+Inf", "-Inf", "-1", "0", "1", "1e308", "1e-320", "1e15", "1e999", "9" * 400, "0x1", "1_0", "٣", "x"]
NUMBERS += ["1e", "0.e"]
LABELS = ['le="1"', 'le="+Inf"', 'le="NaN"', 'le=""', 'stage="in_progress"', 'num_gpu_blocks="24"', 'block_size="16"']
LABELS += ['num_gpu_blocks="-1"', f'block_size="{"9" * 400}"', 'a="\\"', 'a="}"', "=", 'engine="0"', "le"]
NASTY = [b"\x00", b"\xff", b"{", b"}", b'"', b"\\", b"\n", b"\r", b",", b"=", b" ", b"#", b"NaN", b"1e308", b"_bucket"]

lines = st.builds(
    lambda name, labels, number, end: f"{name}{{{','.join(labels)}}} {number}{end}".encode(),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(LABELS), max_size=4),
    st.sampled_from(NUMBERS),
    st.sampled_from(["", " 5", " x", "\r"]),
)
plain_lines = st.builds(lambda name, number: f"{name} {number}".encode(), st.sampled_from(NAMES), st.floats(width=64))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A recorded answer with some of its bytes replaced, removed or repeated."""
    body = bytearray(draw(st.sampled_from(FILES)))
    chance = random.Random(draw(st.integers(0, 2**32)))  # noqa: S311 - no secret
    for _ in range(draw(st.integers(1, 20))):
        at = chance.randrange(len(body))
        match chance.randrange(4):
            case 0:
                body[at : at + 1] = chance.choice(NASTY)
            case 1:
                del body[at : at + chance.randrange(200)]
            case 2:
                body[at:at] = body[at : at + chance.randrange(200)] * chance.randrange(4)
            case _:
                body[at] = chance.randrange(256)
    return bytes(body)


def read(body: bytes) -> Reading | None:
    found = Exposition()
    try:
        for line in body.split(b"\n"):
            found.take(line)
    except UnreadableError:
        return None
    return found.reading()


def judge(*bodies: bytes) -> None:
    """Read bodies as successive responses of a pod, and compute every signal."""
    readings = [reading for body in bodies if (reading := read(body)) is not None]
    assert all(is_sound(reading) for reading in readings)
    window = Window()
    for number, reading in enumerate(readings):
        at = 60.0 + 6 * number
        window.add(TimedReading(at, START + timedelta(seconds=at), reading))
    pods = [PodLoad(window, expected=True, counted=True)]
    now = 60.0 + 6 * max(0, len(readings) - 1)
    for idle in (None, 1e-6, 0.01):
        for signal in Signal:
            try:
                value = measure(signal, pods, target=0.8, now=now, upstream=Upstream(pods, idle)).value
            except LoadUnavailableError:
                continue
            assert math.isfinite(value)
            assert value >= 0
    for metric in LATENCY_METRICS:
        try:
            value = measure_latency(metric, pods, now=now).value
        except LoadUnavailableError:
            continue
        assert math.isfinite(value)
        assert value >= 0


@settings(max_examples=150 * MORE)
@given(mutated(), mutated())
def test_mutations_of_what_vllm_wrote(first: bytes, second: bytes) -> None:
    judge(first, second)


@settings(max_examples=150 * MORE)
@given(*[st.lists(lines, max_size=12)] * 2, st.booleans())
def test_lines_of_odd_parts(first: list[bytes], second: list[bytes], more: bool) -> None:
    before = FILES[0] if more else b""
    judge(before + b"\n".join(first), before + b"\n".join(second))


@settings(max_examples=150 * MORE)
@given(*[st.lists(plain_lines, max_size=30)] * 3)
def test_numbers_of_any_size(first: list[bytes], second: list[bytes], third: list[bytes]) -> None:
    judge(b"\n".join(first), b"\n".join(second), b"\n".join(third))


@settings(max_examples=150 * MORE)
@given(st.binary(max_size=3000))
def test_any_bytes(body: bytes) -> None:
    judge(body)


HEADS = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 500 x\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"Content-Length: 20\r\n",
    b"Content-Length: 99999999\r\n",
    b"Content-Length: -1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Encoding: gzip\r\n",
    b"\r\n",
    b"5\r\nvllm:\r\n",
    b"0\r\n\r\n",
    b"ffffffff\r\n",
    b"vllm:num_requests_waiting 1\n",
]


@settings(max_examples=150 * MORE)
@given(st.lists(st.one_of(st.sampled_from(HEADS), st.binary(max_size=30)), max_size=12), st.integers(1, 200))
def test_any_http(parts: list[bytes], piece: int) -> None:
    """However it is cut into pieces."""
    raw = b"".join((b"HTTP/1.1 200 OK\r\n" if parts and parts[0] == b"\r\n" else b"", *parts))

    def taken(size: int) -> list[bytes] | None:
        answer = HttpAnswer(PREFIX)
        found: list[bytes] = []
        try:
            for at in range(0, len(raw), size):
                if not answer.complete:
                    found += answer.feed(raw[at : at + size])
            found += [] if answer.complete else answer.end()
        except UnreadableError:
            return None
        return found

    assert taken(piece) == taken(max(1, len(raw)))


@settings(max_examples=100 * MORE)
@given(st.lists(st.binary(min_size=1, max_size=50), max_size=20), st.integers(1, 100))
def test_a_chunked_answer_is_what_was_sent(chunks: list[bytes], piece: int) -> None:
    body = b"".join(chunks)
    raw = b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"
    raw += b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    answer = HttpAnswer(b"")
    found: list[bytes] = []
    for at in range(0, len(raw), piece):
        if not answer.complete:
            found += answer.feed(raw[at : at + piece])
    assert answer.complete
    assert b"\n".join(found).rstrip(b"\n") == body.rstrip(b"\n")
