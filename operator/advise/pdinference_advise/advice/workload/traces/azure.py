"""Azure's LLM inference traces of 2023 and 2024, and its multimodal one of 2025 (github.com/Azure/AzurePublicDataset).

CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens. Times have up to seven digits of a second
(2023-11-16 18:15:46.6805900), in 2024 an offset (2024-05-10 00:00:00.009930+00:00), and no fraction if it is zero.

Tests: tests/advise/advice/workload/test_traces.py
"""

from datetime import UTC, datetime
from typing import Final

from pdinference.api.words import cut
from pdinference_advise.advice.workload.bounds import MOST_TOKENS
from pdinference_advise.advice.workload.trace import Trace
from pdinference_advise.advice.workload.traces.lines import Lines
from pdinference_advise.advice.workload.traces.rows import Rows, left_out

_TIME: Final = "TIMESTAMP"
_PROMPT: Final = "ContextTokens"
_ANSWER: Final = "GeneratedTokens"
_IMAGES: Final = "NumImages"
_DIGITS: Final = 12


def recognises(begin: bytes) -> bool:
    """Whether a file that begins so is in this format."""
    return _TIME.encode() in begin.split(b"\n", 1)[0].split(b",")[0]


def read(lines: Lines) -> Trace:
    """Read a trace.

    Raises:
        WorkloadError: A line is wrong.
    """
    rows = Rows(lines.name)
    numbered = iter(lines)
    header, first = next(numbered)
    columns = _fields(first, header, rows)
    missing = [name for name in (_TIME, _PROMPT, _ANSWER) if name not in columns]
    if missing:
        raise rows.error(
            header, f"the column {missing[0]} is missing. The header must have {_TIME},{_PROMPT},{_ANSWER}."
        )
    time, prompt, answer = (columns.index(name) for name in (_TIME, _PROMPT, _ANSWER))
    notes = ["Only the tokens are used, not the number of images."] if _IMAGES in columns else []
    for number, line in numbered:
        if rows.full:
            notes.append(left_out(number))
            break
        fields = _fields(line, number, rows)
        if len(fields) != len(columns):
            raise rows.error(number, f"{len(fields)} fields, and the header has {len(columns)}.")
        rows.add(
            number,
            at=_seconds(fields[time], number, rows),
            prompt=_whole(fields[prompt], _PROMPT, number, rows),
            answer=_whole(fields[answer], _ANSWER, number, rows),
        )
    return rows.trace(f"Azure's trace {lines.name}", tuple(notes))


def _fields(line: bytes, number: int, rows: Rows) -> list[str]:
    try:
        return [field.strip(' "') for field in line.decode().rstrip("\r").split(",")]
    except UnicodeDecodeError:
        raise rows.error(number, "it is not UTF-8 text.") from None


def _seconds(text: str, number: int, rows: Rows) -> float:
    """Seconds since 1970; without an offset, the time is UTC."""
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise rows.error(
            number, f'"{cut(text, 40)}" in {_TIME} is no time. It must be as in 2023-11-16 18:15:46.6805900.'
        ) from None


def _whole(text: str, column: str, number: int, rows: Rows) -> int:
    if not (text.isascii() and text.isdigit()):
        raise rows.error(number, f'"{cut(text, 40)}" in {column} is no whole number of tokens.')
    if len(text) > _DIGITS:
        raise rows.error(number, f"{cut(text, 20)} tokens are not between 0 and {MOST_TOKENS:,}.")
    return int(text)
