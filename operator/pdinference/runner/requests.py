"""Reads the input line by line. It is untrusted and may be larger than memory."""

import os
from codecs import BOM_UTF8
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import BinaryIO, NamedTuple, Protocol

from pdinference.api.plain_text import plain
from pdinference.regular_files import open_regular
from pdinference.runner.ids import IdSet
from pdinference.runner.lines import LONGEST_LINE, BatchRequestInput, InvalidLineError, custom_id_in, parsed

MOST_LINES = 5_000_000
MOST_WRONG = 10_000
"""Maximum number of lines that are not requests. A file with more is not a batch file."""
_MOST_BYTES = 256 << 30
_ENDLESS = 1 << 30
"""Maximum number of bytes to skip in search of the end of a line."""
_PIECE = 1 << 20
_PROBLEMS_NAMED = 10
_LONGEST_PROBLEM = 300


class InvalidInputError(Exception):
    """The input is not a batch file. A retry does not help. The message names the lines and their problems."""


@dataclass(frozen=True, slots=True)
class WrongLine:
    """A line of the input that is not a request.

    Attributes:
        custom_id: The custom_id; None if it cannot be read.
    """

    number: int
    custom_id: str | None
    problem: str


@dataclass(frozen=True)
class Survey:
    """Result of reading the complete input.

    Attributes:
        total: Number of lines that are not blank: requests and invalid lines.
        digest: SHA-256 of the file.
        wrong: Lines that are not requests, by their number.
    """

    total: int
    digest: str
    wrong: Mapping[int, WrongLine] = field(default_factory=dict)


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


class _Line(NamedTuple):
    number: int
    text: bytes
    too_long: bool


def survey(path: Path, *, within: Path | None = None, stopped: Event | None = None) -> Survey:
    """Check every line before the first request is sent.

    Args:
        path: The file.
        within: Folder that must contain the file after links are resolved.
        stopped: Ends the check early.

    Raises:
        InvalidInputError: The file cannot be read, has no requests, or is not a batch file.
    """
    digest, seen, wrong = sha256(), IdSet(), dict[int, WrongLine]()
    with _opened(path, within) as file:
        for line in _lines(file, digest):
            if stopped is not None and stopped.is_set():
                raise InvalidInputError("Stopped while the input was read.")
            found = _judged(line, seen)
            if isinstance(found, WrongLine):
                wrong[line.number] = found
                if len(wrong) > MOST_WRONG:
                    raise InvalidInputError(f"More than {MOST_WRONG:,} lines are not requests. {_named(wrong)}")
    if not seen:
        raise InvalidInputError(f"The input holds no requests. {_named(wrong)}".rstrip())
    return Survey(len(seen) + len(wrong), digest.hexdigest(), wrong)


def requests(
    path: Path, found: Survey, *, ids: Container[str], lines: Container[int], within: Path | None = None
) -> Iterator[BatchRequestInput | WrongLine]:
    """The remaining requests of a file.

    Args:
        path: The file.
        found: Its survey.
        ids: custom_ids to skip.
        lines: Numbers of invalid lines to skip.
        within: Folder that must contain the file after links are resolved.

    Raises:
        InvalidInputError: The file has changed since the survey.
    """
    digest = sha256()
    with _opened(path, within) as file:
        for line in _lines(file, digest):
            wrong = found.wrong.get(line.number)
            if wrong is None:
                request = _unchanged(line)
                if request.custom_id not in ids:
                    yield request
            elif line.number not in lines:
                yield wrong
    if digest.hexdigest() != found.digest:
        raise _changed()


def _judged(line: _Line, seen: IdSet) -> BatchRequestInput | WrongLine:
    if line.too_long:
        return WrongLine(line.number, None, f"line {line.number}: it is longer than {LONGEST_LINE:,} bytes")
    try:
        request = parsed(line.text)
    except InvalidLineError as error:
        return WrongLine(line.number, custom_id_in(line.text), _problem(line.number, str(error)))
    if not seen.add(request.custom_id):
        problem = f"custom_id {plain(request.custom_id, 100)!r} was used before; each must be unique"
        return WrongLine(line.number, request.custom_id, _problem(line.number, problem))
    return request


def _unchanged(line: _Line) -> BatchRequestInput:
    try:
        if not line.too_long:
            return parsed(line.text)
    except InvalidLineError:
        pass
    raise _changed()


def _changed() -> InvalidInputError:
    return InvalidInputError(
        "The input was changed while the batch ran. Create the PDBatch again, with another spec.output: some responses "
        "here may belong to the earlier input."
    )


def _problem(number: int, text: str) -> str:
    return f"line {number}: {plain(text, _LONGEST_PROBLEM)}"


def _named(wrong: Mapping[int, WrongLine]) -> str:
    """The first problems, and the number of the others."""
    if not wrong:
        return ""
    first = "; ".join(line.problem for line in list(wrong.values())[:_PROBLEMS_NAMED])
    return first + (f"; and {len(wrong) - _PROBLEMS_NAMED} more." if len(wrong) > _PROBLEMS_NAMED else ".")


def _opened(path: Path, within: Path | None) -> BinaryIO:
    try:
        return open_regular(path, within=within)
    except OSError as error:
        raise InvalidInputError(f"The input cannot be read: {error.strerror}: {path}.") from error


def _lines(file: BinaryIO, digest: _Digest) -> Iterator[_Line]:
    """Lines that are not blank, up to the size of the file at the start."""
    left = os.fstat(file.fileno()).st_size
    if left > _MOST_BYTES:
        raise InvalidInputError(f"The input has {left:,} bytes; a batch takes {_MOST_BYTES:,}. Split it.")
    number = 0
    while left > 0 and (text := file.readline(min(left, LONGEST_LINE + 1))):
        number += 1
        if number > MOST_LINES:
            raise InvalidInputError(f"The input has more than {MOST_LINES:,} lines. Split it.")
        digest.update(text)
        left -= len(text)
        too_long = len(text) > LONGEST_LINE and not text.endswith(b"\n")
        if too_long:
            left -= _skipped(file, left, digest, number)
        if number == 1:
            text = text.removeprefix(BOM_UTF8)  # of editors on Windows
        if too_long or text.strip():
            yield _Line(number, b"" if too_long else text, too_long)


def _skipped(file: BinaryIO, left: int, digest: _Digest, number: int) -> int:
    """Skip to the end of a line and return the number of skipped bytes."""
    skipped = 0
    while skipped < left and (text := file.readline(min(left - skipped, _PIECE))):
        digest.update(text)
        skipped += len(text)
        if text.endswith(b"\n"):
            break
        if skipped > _ENDLESS:
            raise InvalidInputError(f"line {number} exceeds {_ENDLESS:,} bytes, so this is not a batch file.")
    return skipped
