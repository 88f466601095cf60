"""Wraps text at words while it is streamed.

Tests: tests/cli/test_chat.py
"""

import re
from typing import Final

from rich.cells import cell_len

_IDEOGRAPH: Final = r"\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
"""Characters of Chinese and Japanese: a line may end after each."""
_WORDS: Final = re.compile(rf"\n| +|[{_IDEOGRAPH}]|[^\n {_IDEOGRAPH}]+")
_ONE_WORD: Final = re.compile(f"[{_IDEOGRAPH}]")
_FENCE: Final = "```"


class WordWrap:
    """Gives each word out when it is complete, on a line of its own if the present one has no room.

    Code between fences keeps its lines, because a person copies it.
    """

    def __init__(self, width: int | None) -> None:
        """Start at the beginning of a line.

        Args:
            width: Columns of the terminal; None to pass all text through as it comes.
        """
        self._passes, self._width = width is None, width or 0
        self._word = self._spaces = ""
        self._column = 0
        self._code = False

    def add(self, text: str) -> str:
        """What to print, now that this text has come."""
        if self._passes:
            return text
        printed = ""
        for part in _WORDS.findall(text):
            if part == "\n":
                printed += self._flushed() + part
                self._column, self._spaces = 0, ""
            elif part[0] == " ":
                printed += self._flushed()
                self._spaces += part
            elif _ONE_WORD.match(part):
                printed += self._flushed()
                self._word = part
                printed += self._flushed()
            else:
                self._word += part
        return printed

    def end(self) -> str:
        """The rest."""
        return self._flushed()

    def _flushed(self) -> str:
        if not self._word:
            return ""
        word, spaces = self._word, self._spaces
        self._word = self._spaces = ""
        if not self._column and word.startswith(_FENCE):
            self._code = not self._code
        needed = cell_len(spaces + word)
        if self._column and self._column + needed > self._width and not self._code:
            self._column = cell_len(word) % self._width
            return f"\n{word}"
        self._column += needed
        return spaces + word
