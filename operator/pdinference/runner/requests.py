"""Reading the input, line by line: it may be larger than memory, and anybody may have written it."""

import os
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
"""Lines that are no requests; with more, this is no batch file."""
_MOST_BYTES = 256 << 30
_ENDLESS = 1 << 30
"""Bytes of a line after which nobody looks for its end any more."""
_PIECE = 1 << 20
_PROBLEMS_NAMED = 10
_LONGEST_PROBLEM = 300


class InvalidInputError(Exception):
    """The input is not a batch file; only a person can mend that. The message names lines and what is wrong."""


@dataclass(frozen=True, slots=True)
class WrongLine:
    """A line of the input that is no request.

    Attributes:
        custom_id: As far as it could be read.
    """

    number: int
    custom_id: str | None
    problem: str


@dataclass(frozen=True)
class Survey:
    """What the input holds.

    Attributes:
        total: Requests, and lines that are none; blank ones do not count.
        digest: SHA-256 of the file.
        wrong: Lines that are no requests, by their number.
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
    """Look at every line before anything is sent.

    Args:
        path: The file.
        within: Folder that it has to be in, wherever links lead.
        stopped: Ends it early.

    Raises:
        InvalidInputError: The file cannot be read, holds no request, or is no batch file.
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
                    raise InvalidInputError(f"More than {MOST_WRONG:,} lines are no requests. {_named(wrong)}")
    if not seen:
        raise InvalidInputError(f"The input holds no requests. {_named(wrong)}".rstrip())
    return Survey(len(seen) + len(wrong), digest.hexdigest(), wrong)


def requests(
    path: Path, found: Survey, *, ids: Container[str], lines: Container[int], within: Path | None = None
) -> Iterator[BatchRequestInput | WrongLine]:
    """What is to be done of a file that was surveyed.

    Args:
        path: The file.
        found: The survey of it.
        ids: custom_ids to pass over.
        lines: Numbers of wrong lines to pass over.
        within: As for the survey.

    Raises:
        InvalidInputError: The file was changed meanwhile.
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
        "The input was changed while the batch ran. Create the PDBatch anew, with another spec.output; some answers "
        "here may belong to the earlier input."
    )


def _problem(number: int, text: str) -> str:
    return f"line {number}: {plain(text, _LONGEST_PROBLEM)}"


def _named(wrong: Mapping[int, WrongLine]) -> str:
    """The first problems, and how many more there are."""
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
    """Lines that are not blank, of the file as long as it is now."""
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
        if too_long or text.strip():
            yield _Line(number, b"" if too_long else text, too_long)


def _skipped(file: BinaryIO, left: int, digest: _Digest, number: int) -> int:
    """Read to the end of a line; how many bytes that were."""
    skipped = 0
    while skipped < left and (text := file.readline(min(left - skipped, _PIECE))):
        digest.update(text)
        skipped += len(text)
        if text.endswith(b"\n"):
            break
        if skipped > _ENDLESS:
            raise InvalidInputError(f"line {number} does not end within {_ENDLESS:,} bytes, so this is no batch file.")
    return skipped
