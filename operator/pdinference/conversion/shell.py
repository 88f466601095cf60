"""Parses a shell script into simple commands. Nothing is executed.

`shlex` is not sufficient: it does not distinguish `'$A'` from `"$A"`, and treats a `#` within a word as a comment.
conversion/expansion.py expands words, conversion/script.py follows the variables of a script.
"""

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pdinference.api.bounds import MAX_RAW_SPEC_BYTES, MAX_VALUES
from pdinference.conversion.launch import ConversionError

_DEPTH = 24
"""Maximum nesting of quotes, expansions and arrays."""
_BLANKS = " \t\r"
_SEPARATOR = re.compile(r";;&?|;&|&&|\|\||\|&?|[;&\n()]")
_REDIRECTION = re.compile(r"&>>?|<<<|<<-?|[<>]&|>\||<>|>>|[<>]")
_PLAIN = re.compile(r"""[^\s;&|()<>'"\\$`]+""")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?!$-]", re.ASCII)
_ARRAY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", re.ASCII)
_ESCAPED_IN_QUOTES = '"\\$`'


class Text(NamedTuple):
    """Literal text of a word."""

    value: str
    quoted: bool = False


class Reference(NamedTuple):
    """An expansion of a word: a parameter (`$A`, `${A:-b}`), an arithmetic expression, or the output of a command."""

    kind: Literal["parameter", "arithmetic", "command"]
    body: str
    source: str
    quoted: bool = False


Part = Text | Reference
Word = tuple[Part, ...]


class ArrayWord(NamedTuple):
    """An assignment of an array: `NAME=(...)` or `NAME+=(...)`."""

    name: str
    append: bool
    words: tuple[Word, ...]


class HereDocument(NamedTuple):
    """Text that a script passes to a command."""

    text: str
    literal: bool


@dataclass
class SimpleCommand:
    """A command without redirections, and the separator that follows it (`;`, `&&`, `)`, ...)."""

    words: list[Word | ArrayWord] = field(default_factory=list)
    documents: list[HereDocument] = field(default_factory=list)
    end: str = ""


def parse(text: str) -> list[SimpleCommand]:
    """The simple commands of a script, in order.

    Raises:
        ConversionError: The script is too large, or has an unclosed quote or bracket.
    """
    if len(text) > MAX_RAW_SPEC_BYTES:
        raise ConversionError(
            f"This has more than {MAX_RAW_SPEC_BYTES} characters. Give the command line that starts vLLM alone."
        )
    return _Parser(text).commands()


def parse_word(text: str) -> Word:
    """A text as one word: the operand of an expansion, in which blanks are literal."""
    return _Parser(text).word(whole=True)


class _Parser:
    """A position in a script."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._count = 0
        self._depth = 0
        self._pending: list[tuple[SimpleCommand, str, bool, bool]] = []

    def commands(self) -> list[SimpleCommand]:
        found = [SimpleCommand()]
        while self._at < len(self._text):
            if self._skip_blanks():
                continue
            if (redirection := self._match(_REDIRECTION)) and not self._process_substitution():
                self._redirect(found[-1], redirection)
            elif separator := self._match(_SEPARATOR):
                self._at += len(separator)
                found[-1].end = separator
                found.append(SimpleCommand())
                if separator == "\n":
                    self._here_documents()
            else:
                self._take_word(found[-1])
        return [command for command in found if command.words or command.end]

    def _take_word(self, command: SimpleCommand) -> None:
        start = self._at
        word = self._array() or self.word()
        descriptor = self._text[start : self._at].isdecimal() and self._match(re.compile("[<>]"))
        if not descriptor:  # in `2> file`, 2 is not a word
            command.words.append(word)

    def _skip_blanks(self) -> bool:
        """Skip blanks, joined lines, and a comment."""
        start = self._at
        text = self._text
        while self._at < len(text) and text[self._at] in _BLANKS:
            self._at += 1
        for joined in ("\\\n", "\\\r\n"):
            if text.startswith(joined, self._at):
                self._at += len(joined)
        if text.startswith("#", self._at) and (self._at == 0 or text[self._at - 1] in f"{_BLANKS}\n;&|()"):
            end = text.find("\n", self._at)
            self._at = len(text) if end < 0 else end
        return self._at > start

    def _process_substitution(self) -> bool:
        return self._text.startswith(("<(", ">("), self._at)

    def _redirect(self, command: SimpleCommand, redirection: str) -> None:
        self._at += len(redirection)
        while self._skip_blanks():
            continue
        start = self._at
        target = self.word()
        if redirection in {"<<", "<<-"}:
            written = self._text[start : self._at]
            delimiter = "".join(part.value if isinstance(part, Text) else part.source for part in target)
            literal = any(mark in written for mark in "'\"\\")
            self._pending.append((command, delimiter, literal, redirection == "<<-"))

    def _here_documents(self) -> None:
        for command, delimiter, literal, tabs in self._pending:
            lines: list[str] = []
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end].rstrip("\r")
                self._at = min(end + 1, len(self._text))
                line = line.lstrip("\t") if tabs else line
                if line == delimiter:
                    break
                lines.append(line)
            command.documents.append(HereDocument("\n".join(lines), literal))
        self._pending = []

    def _array(self) -> ArrayWord | None:
        match = _ARRAY.match(self._text, self._at)
        if match is None or not self._text.startswith("(", match.end()):
            return None
        opened = self._at
        self._at = match.end() + 1
        words: list[Word] = []
        self._enter(opened)
        while not self._text.startswith(")", self._at):
            if self._at >= len(self._text):
                raise self._unclosed(opened)
            if self._text[self._at] in "\n;&|<>(":
                self._at += 1
            elif not self._skip_blanks():
                words.append(self.word())
        self._depth -= 1
        self._at += 1
        return ArrayWord(match[1], append=match[2] == "+", words=tuple(words))

    def word(self, *, whole: bool = False) -> Word:
        """The next word; with `whole`, all of the text."""
        self._count += 1
        if self._count > MAX_VALUES:
            raise ConversionError(f"This has more than {MAX_VALUES} words. Give the command line that starts vLLM.")
        parts: list[Part] = []
        while self._at < len(self._text):
            character = self._text[self._at]
            if character in "'\"":
                parts += self._quoted(character)
            elif character == "\\":
                self._escape(parts)
            elif character in "$`":
                parts.append(self._reference(quoted=False))
            elif plain := self._match(_PLAIN):
                parts.append(Text(plain))
                self._at += len(plain)
            elif self._process_substitution():
                parts.append(self._substitution(2, quoted=False))
            elif whole:
                parts.append(Text(character))
                self._at += 1
            else:
                break
        return tuple(parts)

    def _escape(self, parts: list[Part]) -> None:
        if self._at + 1 >= len(self._text):
            raise self._unclosed(self._at)
        escaped = self._text[self._at + 1]
        joined = 3 if self._text.startswith("\\\r\n", self._at) else 2
        self._at += joined
        if escaped != "\n" and joined != 3:
            parts.append(Text(escaped, quoted=True))

    def _quoted(self, quote: str) -> list[Part]:
        opened = self._at
        self._at += 1
        if quote == "'":
            end = self._text.find("'", self._at)
            if end < 0:
                raise self._unclosed(opened)
            value, self._at = self._text[self._at : end], end + 1
            return [Text(value, quoted=True)]
        return self._double_quoted(opened)

    def _double_quoted(self, opened: int) -> list[Part]:
        parts: list[Part] = []
        buffer: list[str] = []
        self._enter(opened)
        while not self._text.startswith('"', self._at):
            if self._at >= len(self._text):
                raise self._unclosed(opened)
            character = self._text[self._at]
            following = self._text[self._at + 1 : self._at + 2]
            if character == "\\" and following and following in f"{_ESCAPED_IN_QUOTES}\n":
                buffer.append("" if following == "\n" else following)
                self._at += 2
            elif character in "$`":
                parts += self._text_of(buffer)
                parts.append(self._reference(quoted=True))
                buffer = []
            else:
                buffer.append(character)
                self._at += 1
        self._depth -= 1
        self._at += 1
        # Empty quotes are an empty word, but quotes around an empty array are none.
        return [*parts, *(self._text_of(buffer) if parts else [Text("".join(buffer), quoted=True)])]

    @staticmethod
    def _text_of(buffer: list[str]) -> list[Part]:
        return [Text("".join(buffer), quoted=True)] if buffer else []

    def _reference(self, *, quoted: bool) -> Part:
        start, text = self._at, self._text
        if text.startswith("$((", start) and (end := self._arithmetic_end(start)) is not None:
            self._at = end
            return Reference("arithmetic", text[start + 3 : end - 2], text[start:end], quoted)
        if text.startswith("$(", start):
            return self._substitution(2, quoted=quoted)
        if text.startswith("`", start):
            return self._backquoted(quoted=quoted)
        braces = 2 if text.startswith("${", start) else 1
        name = _NAME.match(text, start + 1)
        if braces == 2 or name is not None:
            # `$10` is `$1` followed by 0.
            after_name = start + 2 if name is None or name[0].isdecimal() else name.end()
            self._at = after_name if braces == 1 else self._closing("}", start + 2, start)
            body = text[start + braces : self._at - braces + 1]
            return Reference("parameter", body, text[start : self._at], quoted)
        self._at += 1
        if not quoted and text.startswith("'", self._at):  # $'...'
            return Text(self._ansi(), quoted=True)
        return Text("$", quoted)

    def _backquoted(self, *, quoted: bool) -> Reference:
        start, text = self._at, self._text
        match = re.compile(r"`(?:[^`\\]|\\.)*`", re.DOTALL).match(text, start)
        if match is None:
            raise self._unclosed(start)
        self._at = match.end()
        return Reference("command", match[0][1:-1], match[0], quoted)

    def _ansi(self) -> str:
        match = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL).match(self._text, self._at)
        if match is None:
            raise self._unclosed(self._at)
        self._at = match.end()
        return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), match[1], flags=re.DOTALL)

    def _substitution(self, opening: int, *, quoted: bool) -> Reference:
        start = self._at
        self._at = self._closing(")", start + opening, start)
        return Reference("command", self._text[start + opening : self._at - 1], self._text[start : self._at], quoted)

    def _arithmetic_end(self, start: int) -> int | None:
        """The position after `$((...))`; None if it is the output of a command that begins with a bracket."""
        open_ = 0
        for at in range(start + 1, len(self._text)):
            open_ += {"(": 1, ")": -1}.get(self._text[at], 0)
            if open_ == 0:
                return at + 1 if self._text[at - 1] == ")" else None
            if self._text[at] in "'\"\n":
                return None
        return None

    def _closing(self, bracket: str, start: int, opened: int) -> int:
        """The position after the bracket that closes an expansion."""
        self._enter(opened)
        self._at = start
        text = self._text
        while not text.startswith(bracket, self._at):
            if self._at >= len(text):
                raise self._unclosed(opened)
            character = text[self._at]
            if character == "\\":
                self._at += 2
            elif character in "'\"":
                self._quoted(character)
            elif character in "$`":
                self._reference(quoted=True)
            elif character == "(" and bracket == ")":
                self._at = self._closing(")", self._at + 1, self._at)
            elif not self._skip_comment(bracket):
                self._at += 1
        self._depth -= 1
        return self._at + 1

    def _skip_comment(self, bracket: str) -> bool:
        return bracket == ")" and self._text[self._at] == "#" and self._skip_blanks()

    def _enter(self, opened: int) -> None:
        self._depth += 1
        if self._depth > _DEPTH:
            raise ConversionError(f"Line {self._line(opened)}: Quotes and brackets are nested too deeply.")

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        return match[0] if match else ""

    def _unclosed(self, at: int) -> ConversionError:
        return ConversionError(f"Line {self._line(at)}: {self._text[at]!r} is not closed, or not supported.")

    def _line(self, at: int) -> int:
        return self._text.count("\n", 0, at) + 1
