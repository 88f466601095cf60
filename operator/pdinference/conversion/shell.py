"""Splits a shell script into words. Nothing is executed or expanded.

`shlex` is not sufficient: it does not distinguish `'$A'` from `"$A"`, and treats a `#` within a word as a comment.
References that a shell would expand are kept as written, and marked (`Unresolved`).
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from pdinference.api.bounds import MAX_RAW_SPEC_BYTES, MAX_VALUES
from pdinference.conversion.launch import ConversionError, Unresolved

_PIECE = re.compile(
    r"""
    (?P<joined>\\\r?\n)
  | (?P<blank>[ \t\r]+)
  | (?P<comment>(?<![^\s;&|()])\#[^\n]*)
  | (?P<redirection>(?:&>>?|[<>]+[&|]?))
  | (?P<end>[;&|\n()])
  | '(?P<literal>[^']*)'
  | "(?P<quoted>[^"\\]*(?:\\.[^"\\]*)*)"
  | \\(?P<escaped>.)
  | (?P<replaced>\$\([^()]*\)|\$\{[^{}]*\}|`[^`]*`|\$\w+|\$(?!\())
  | (?P<plain>[^\s;&|()<>'"\\$`]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPED_IN_QUOTES = re.compile(r'\\(["\\$`])|\\\n', re.DOTALL)
_REPLACED_IN_QUOTES = re.compile(r"\$[\w{(@*#?!$-]|`")
_PASSED_OVER = frozenset({"joined", "comment"})


def commands(text: str) -> list[list[str]]:
    """The simple commands of a script as lists of words, without redirections.

    Raises:
        ConversionError: The script is too large, or has an unclosed quote or bracket.
    """
    if len(text) > MAX_RAW_SPEC_BYTES:
        raise ConversionError(
            f"This has more than {MAX_RAW_SPEC_BYTES} characters. Give the command line that starts vLLM alone."
        )
    found: list[list[str]] = [[]]
    to_file = False
    for count, token in enumerate(_tokens(text)):
        if count > MAX_VALUES:
            raise ConversionError(f"This has more than {MAX_VALUES} words. Give the command line that starts vLLM.")
        if token.kind == "end":
            found.append([])
        elif token.kind == "word" and not to_file:
            found[-1].append(Unresolved(token.text) if token.replaced else token.text)
        to_file = token.kind == "redirection"
    return [words for words in found if words]


class _Token(NamedTuple):
    kind: Literal["word", "redirection", "end"]
    text: str = ""
    replaced: bool = False


def _tokens(text: str) -> Iterator[_Token]:
    word: _Token | None = None
    for kind, piece in _pieces(text):
        if kind in {"blank", "redirection", "end"}:
            # In `2> file`, 2 is not a word of the command.
            if word is not None and not (kind == "redirection" and word.text.isdecimal()):
                yield word
            word = None
            if kind != "blank":
                yield _Token("end" if kind == "end" else "redirection")
        else:
            begun = word or _Token("word")
            quoted = kind == "quoted"
            replaced = begun.replaced or kind == "replaced" or (quoted and _is_replaced(piece))
            plain = _ESCAPED_IN_QUOTES.sub(lambda match: match[1] or "", piece) if quoted else piece
            word = _Token("word", begun.text + plain, replaced)
    if word is not None:
        yield word


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """The tokens of a script: name of the group in `_PIECE`, and text."""
    position = 0
    while position < len(text):
        match = _PIECE.match(text, position)
        if match is None:
            line = text.count("\n", 0, position) + 1
            raise ConversionError(f"Line {line}: {text[position]!r} is not closed, or not supported.")
        position = match.end()
        kind = match.lastgroup or ""
        if kind not in _PASSED_OVER:
            yield kind, match[kind]


def _is_replaced(quoted: str) -> bool:
    return _REPLACED_IN_QUOTES.search(re.sub(r"\\.", "", quoted, flags=re.DOTALL)) is not None
