"""Expands words of a shell script by the variables that are known. The rest is kept as written, and marked.

Tests: tests/conversion/test_shell.py
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import translate

from pdinference.conversion.arithmetic import evaluated
from pdinference.conversion.launch import ConversionError, Remark, Unresolved
from pdinference.conversion.shell import ArrayWord, Reference, Text, Word, parse_word

Value = str | tuple[str, ...]
"""A variable: text, which may be `Unresolved`, or an array."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*]", re.ASCII)
_INDEX = re.compile(r"\[([@*]|\d{1,5})\]", re.ASCII)
_OPERATION = re.compile(r":?[-=+?]|##?|%%?")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})", re.ASCII)
_MOST_CHARACTERS = 4 * 2**20
"""Characters of all expansions of a script together."""
_OF_A_WORD = 64
"""Characters that a word counts as besides its own: arrays of empty words take time and memory, too."""
_LONGEST_PATTERN = 64
_LONGEST_CUT = 4096


@dataclass
class Variables:
    """The variables of a script, and what its expansions used.

    Attributes:
        values: Values of the variables that the script or its container sets.
        used: Names that words referred to.
        remarks: Remarks on defaults that were used.
    """

    values: dict[str, Value] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    remarks: list[Remark] = field(default_factory=list)
    _characters: int = 0

    def fields(self, word: Word) -> list[str]:
        """The words that a shell makes of one word: an unquoted variable or an array gives several."""
        fields = [_Field()]
        for part in word:
            if isinstance(part, Text):
                fields[-1].add(part.value, quoted=part.quoted)
                continue
            value = self._value(part)
            if value is None:
                fields[-1].add(part.source, unresolved=True)
            else:
                _add(fields, value, quoted=part.quoted)
        found = [each.text for each in fields if each.exists]
        self._count(found)
        return found

    def text(self, word: Word) -> str:
        """A word as one text, as in an assignment."""
        return _joined(self.fields(tuple(part._replace(quoted=True) for part in word)))

    def assign_array(self, word: ArrayWord) -> None:
        """Set an array, or append to it."""
        items = tuple(item for each in word.words for item in self.fields(each))
        before = self.values.get(word.name, ()) if word.append else ()
        kept = (before,) if isinstance(before, str) else before
        self._spend(len(kept))  # copying them takes time, if no text
        self.values[word.name] = (*kept, *items)

    def _count(self, words: Sequence[str]) -> None:
        self._spend(sum(map(len, words)) + _OF_A_WORD * len(words))

    def _spend(self, characters: int) -> None:
        self._characters += characters
        if self._characters > _MOST_CHARACTERS:
            raise ConversionError("The variables of this script expand to too much text. Give the command line alone.")

    def _value(self, part: Reference) -> Value | None:
        """What an expansion gives; None if that is not known."""
        if part.kind == "arithmetic":
            number = evaluated(re.sub(r"\$\{?([A-Za-z_]\w*)\}?", r"\1", part.body), self._number)
            return None if number is None else str(number)
        return self._parameter(part) if part.kind == "parameter" else None

    def _number(self, name: str) -> int | None:
        value = self._get(name)
        if value is None or isinstance(value, Unresolved | tuple) or not _NUMBER.fullmatch(value):
            return None
        return int(value)

    def _get(self, name: str) -> Value | None:
        self.used.add(name)
        return self.values.get(name)

    def _parameter(self, part: Reference) -> Value | None:
        match = _NAME.match(part.body)
        if match is None:
            return None
        name, rest = match[0], part.body[match.end() :]
        value = self._get(name)
        if (index := _INDEX.match(rest)) is not None:
            rest = rest[index.end() :]
            value = _item(value, index[1])
        elif isinstance(value, tuple) and name not in {"@", "*"}:
            value = _item(value, "0")
        if index is not None and index[1] == "*" and part.quoted and isinstance(value, tuple):
            value = _joined(value)
        if not rest:
            return value
        operation = _OPERATION.match(rest)
        if operation is None or isinstance(value, tuple):
            return None
        return self._operation(part, name, value, operation[0], rest[operation.end() :])

    def _operation(self, part: Reference, name: str, value: str | None, operation: str, operand: str) -> str | None:
        if operation[0] in "#%":
            return None if value is None or isinstance(value, Unresolved) else _cut(value, operation, operand)
        empty = value == "" and operation.startswith(":")
        kind = operation[-1]
        if value is not None and not empty:
            return self.text(parse_word(operand)) if kind == "+" else value
        if kind in "-=":
            default = self.text(parse_word(operand))
            if value is None and name not in self.values:
                text = f"{name} is not set here, so its default is used: {default or 'nothing'}."
                self.remarks.append(Remark(part.source, text, left_out=False))
            if kind == "=":
                self.values[name] = default
            return default
        return "" if kind == "+" and empty else None


class _Field:
    """A word that is built from parts."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._unresolved = False
        self.exists = False

    def add(self, text: str, *, quoted: bool = False, unresolved: bool = False) -> None:
        self._parts.append(text)
        self._unresolved |= unresolved or isinstance(text, Unresolved)
        self.exists |= bool(text) or quoted

    @property
    def text(self) -> str:
        text = "".join(self._parts)
        return Unresolved(text) if self._unresolved else text


def _add(fields: list[_Field], value: Value, *, quoted: bool) -> None:
    items = (value,) if isinstance(value, str) else value
    if quoted:
        pieces = list(items)
    else:
        pieces = [piece for item in items for piece in _split(item)]
        if pieces and items[0][:1].isspace() and fields[-1].exists:
            fields.append(_Field())
    for at, piece in enumerate(pieces):
        if at:
            fields.append(_Field())
        fields[-1].add(piece, quoted=quoted)


def _split(value: str) -> Iterator[str]:
    for piece in value.split():
        yield Unresolved(piece) if isinstance(value, Unresolved) else piece


def _joined(values: Sequence[str]) -> str:
    text = " ".join(values)
    return Unresolved(text) if any(isinstance(value, Unresolved) for value in values) else text


def _item(value: Value | None, index: str) -> Value | None:
    """An item of an array, or all of them. A variable that is no array is its own first item."""
    if value is None:
        return None
    items = (value,) if isinstance(value, str) else value
    if index in {"@", "*"}:
        return items
    return items[int(index)] if int(index) < len(items) else None


def _cut(value: str, operation: str, pattern: str) -> str | None:
    """`${A##*/}` and the like: a text without the shortest or longest prefix or suffix that matches."""
    if len(pattern) > _LONGEST_PATTERN or len(value) > _LONGEST_CUT or pattern.count("*") > 1 or "$" in pattern:
        return None
    matches = re.compile(translate(pattern)).match
    cuts = range(len(value) + 1)
    if operation[0] == "#":
        cuts = cuts if operation == "#" else cuts[::-1]
        return next((value[at:] for at in cuts if matches(value[:at])), value)
    cuts = cuts[::-1] if operation == "%" else cuts
    return next((value[:at] for at in cuts if matches(value[at:])), value)
