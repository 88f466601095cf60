"""Mooncake's traces (github.com/kvcache-ai/Mooncake, FAST25-release): JSON lines with hashes of the prompts' blocks.

The dataset `timed_trace` of `vllm bench serve` reads the same fields (vllm/benchmarks/datasets/datasets.py); there,
time stamps may be in seconds, and blocks have 16 tokens by default.

Tests: tests/advise/advice/workload/test_traces.py
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from pdinference.api.plain_text import plain
from pdinference_advise.advice.workload.bounds import MOST_REQUESTS
from pdinference_advise.advice.workload.trace import Trace
from pdinference_advise.advice.workload.traces.lines import Lines
from pdinference_advise.advice.workload.traces.rows import Rows, left_out
from pdinference_advise.simulation.arrivals import PREFIX_BLOCK

TimeUnit = Literal["ms", "s"]
_SECONDS: Final[dict[TimeUnit, float]] = {"ms": 0.001, "s": 1.0}
_BLOCKS: Final = (512, 256, 128, 64, 32, 16)
"""Tokens of a block that are possible; each divides `PREFIX_BLOCK`."""
_MATCHING: Final = 0.99
"""Share of the rows whose number of hashes must fit the block size."""
_MOST_HASHES: Final = 10_000_000
"""Hashes of all rows, which take up to 400 MiB."""


_LATEST: Final = 1e16


class _Request(msgspec.Struct):
    """A line. Other fields are ignored."""

    timestamp: int | float
    input_length: int
    output_length: int
    hash_ids: list[int] = []


class _Row(NamedTuple):
    """A line and its number."""

    number: int
    request: _Request


_DECODER: Final = msgspec.json.Decoder(_Request)


def recognises(begin: bytes) -> bool:
    """Whether a file that begins so is in this format."""
    line = begin.split(b"\n", 1)[0]
    return line.startswith(b"{") and b'"timestamp"' in line and b'"input_length"' in line


def read(lines: Lines, unit: TimeUnit | None) -> Trace:
    """Read a trace.

    Args:
        lines: The lines.
        unit: Unit of the time stamps; None is milliseconds if they are whole numbers.

    Raises:
        WorkloadError: A line is wrong, or the unit is needed.
    """
    rows = Rows(lines.name)
    requests, end = _requests(lines, rows)
    factor = _SECONDS[unit or _unit(requests, rows)]
    block = _block([request for _, request in requests])
    prefixes = _Prefixes(block)
    for number, request in requests:
        rows.add(
            number,
            at=request.timestamp * factor,
            prompt=request.input_length,
            answer=request.output_length,
            prefix=prefixes.of(request),
        )
        request.hash_ids = []
    notes = [] if unit else ["Time stamps are read as milliseconds."]
    if block is None:
        notes.append("The prompts' hashes do not fit blocks of 16 to 512 tokens, and are not used.")
    if end is not None:
        notes.append(left_out(end))
    return rows.trace(f"Mooncake's trace {lines.name}", tuple(notes))


def _requests(lines: Lines, rows: Rows) -> tuple[list[_Row], int | None]:
    """The requests, and the line of the first one that is left out."""
    found: list[_Row] = []
    hashes = 0
    for number, line in lines:
        if len(found) >= MOST_REQUESTS or hashes > _MOST_HASHES:
            return found, number
        request = _request(line, number, rows)
        hashes += len(request.hash_ids)
        found.append(_Row(number, request))
    return found, None


def _request(line: bytes, number: int, rows: Rows) -> _Request:
    try:
        request = _DECODER.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise rows.error(number, f"it is no request of a Mooncake trace: {plain(str(error), 200)}.") from None
    if abs(request.timestamp) > _LATEST:
        raise rows.error(number, "the time stamp is out of bounds.")
    return request


def _unit(requests: Sequence[_Row], rows: Rows) -> TimeUnit:
    for number, request in requests:
        if isinstance(request.timestamp, float) and not request.timestamp.is_integer():
            raise rows.error(
                number,
                f"the time stamp {request.timestamp:g} has a fraction, so it may be in seconds or in milliseconds "
                "(Mooncake's are whole milliseconds). Give the unit: --trace-unit s or --trace-unit ms.",
            )
    return "ms"


def _block(requests: Sequence[_Request]) -> int | None:
    """Tokens of the block that each hash is of; None if there is no such size."""
    hashed = [request for request in requests if request.hash_ids]
    if not hashed:
        return PREFIX_BLOCK
    fitting = Counter(
        block for request in hashed for block in _BLOCKS if -(-request.input_length // block) == len(request.hash_ids)
    )
    block, number = max(((block, fitting[block]) for block in _BLOCKS), key=lambda found: found[1])
    return block if number >= _MATCHING * len(hashed) else None


class _Prefixes:
    """Makes one identity of the hashes of each `PREFIX_BLOCK` tokens."""

    def __init__(self, block: int | None) -> None:
        self._hashes = PREFIX_BLOCK // block if block else 0
        self._known: dict[tuple[int, ...], int] = {}

    def of(self, request: _Request) -> tuple[int, ...]:
        """As in `Arrival.prefix`."""
        if not self._hashes:
            return ()
        whole = min(request.input_length // PREFIX_BLOCK, len(request.hash_ids) // self._hashes)
        if self._hashes == 1:
            return tuple(request.hash_ids[:whole])
        parts = (request.hash_ids[n * self._hashes : (n + 1) * self._hashes] for n in range(whole))
        return tuple(self._known.setdefault(tuple(part), len(self._known)) for part in parts)
