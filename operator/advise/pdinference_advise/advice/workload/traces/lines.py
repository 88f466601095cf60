"""Lines of a stream, within limits on their size and on that of the whole.

Tests: tests/advise/advice/workload/test_traces.py
"""

import codecs
from collections.abc import Iterator
from typing import BinaryIO, Final

from pdinference_advise.advice.workload.bounds import WorkloadError

LONGEST_LINE: Final = 2**20
"""Bytes of a line. A prompt of 10 million tokens in Mooncake's format has 20,000 hashes, in 160 KB."""
MOST_BYTES: Final = 2**30
"""Bytes of a stream of lines."""
_PIECE: Final = 2**18
_BEGIN: Final = 2**16


class Lines:
    """Reads a stream once.

    Args:
        stream: The stream.
        name: Name of the file, for messages.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.name = name
        self._stream = stream
        self._begin = self._first()

    def begin(self) -> bytes:
        """The first 64 KiB, without a byte order mark and blank lines before them."""
        return self._begin

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, and their numbers from 1 on.

        Raises:
            WorkloadError: A line or the whole is too long.
        """
        rest, number = b"", self._skipped
        for piece in self._pieces():
            first, *others = piece.split(b"\n")
            rest += first
            for following in others:
                number += 1
                if self._is_text(rest, number):
                    yield number, rest
                rest = following
            self._is_text(rest, number + 1)
        if self._is_text(rest, number + 1):
            yield number + 1, rest

    def whole(self, most: int) -> bytes:
        """All bytes.

        Raises:
            WorkloadError: There are more than allowed.
        """
        found = bytearray()
        for piece in self._pieces():
            found += piece
            if len(found) > most:
                raise WorkloadError(f"{self.name} is larger than {most:,} bytes.")
        return bytes(found)

    def _first(self) -> bytes:
        begin = self._stream.read(_BEGIN)
        while len(begin) < _BEGIN and (more := self._stream.read(_BEGIN - len(begin))):  # pipes give less
            begin += more
        text = begin.removeprefix(codecs.BOM_UTF8)
        stripped = text.lstrip(b"\r\n\t ")
        self._skipped = text[: len(text) - len(stripped)].count(b"\n")
        return stripped

    def _pieces(self) -> Iterator[bytes]:
        piece, size = self._begin, 0
        while piece:
            size += len(piece)
            if size > MOST_BYTES:
                raise WorkloadError(f"{self.name} is larger than {MOST_BYTES:,} bytes. Cut it, for example with head.")
            yield piece
            piece = self._stream.read(_PIECE)

    def _is_text(self, line: bytes, number: int) -> bool:
        """Whether a line is not blank."""
        if len(line) > LONGEST_LINE:
            raise WorkloadError(f"{self.name}, line {number} has more than {LONGEST_LINE:,} bytes.")
        return bool(line.strip())
