"""Follows the variables of a shell script, and lists the commands with their words. Nothing is executed.

A value that a script sets in one branch only (`if`, `case`, a loop, `test && ...`) is known in that branch. After it,
the variable is unknown.

Tests: tests/conversion/test_shell.py
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pdinference.conversion.expansion import Value, Variables
from pdinference.conversion.launch import Remark, Unresolved
from pdinference.conversion.shell import ArrayWord, HereDocument, SimpleCommand, Text, Word, parse

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OPENS = frozenset({"if", "for", "while", "until", "case", "select"})
_BRANCHES = frozenset({"else", "elif"})
_CLOSES = frozenset({"fi", "done", "esac"})
_PASSED_OVER = frozenset({"then", "do", "{", "}", "!", "time", "function"})
_EXPORTS = frozenset({"export", "declare", "typeset", "readonly", "local"})
_READS = frozenset({"read", "mapfile", "readarray", "getopts"})
_TESTS = frozenset({"[", "[[", "test", "grep", "command", "which", "type", "hash"})
_NOT_EXPORTED = "The script does not export it, so vLLM does not get it. For vLLM, set it in env of the role."


class Document(NamedTuple):
    """Text that a script passes to a command, and the variables that it may refer to."""

    text: str
    variables: Mapping[str, Value]


@dataclass
class ScriptCommand:
    """A command of a script.

    Attributes:
        words: The program and its arguments, expanded as far as is known.
        environment: Variables that the script exports to it, or sets for it.
        documents: Texts that the script passes to it.
    """

    words: list[str]
    environment: dict[str, str]
    documents: list[Document] = field(default_factory=list)


@dataclass
class _Branch:
    """A part of a script that may not run, with the values before it."""

    before: dict[str, Value]
    assigned: set[str] = field(default_factory=set)
    after: dict[str, Value] = field(default_factory=dict)
    chain: bool = False

    def end(self, values: Mapping[str, Value]) -> None:
        """Note the values at the end of the part. What it only appends is known to be possible."""
        for name in self.assigned:
            known = self.after.get(name, self.before.get(name))
            added = _appended(self.before.get(name), values.get(name))
            if values.get(name) == self.before.get(name):
                continue
            if added is None or known is None:
                self.after[name] = Unresolved(f"${name}")
            elif isinstance(known, tuple):
                self.after[name] = (*known, *map(Unresolved, added))
            else:
                self.after[name] = Unresolved(" ".join(filter(None, (known, *added))))


class Script:
    """A script that is followed from its first command to its last."""

    def __init__(self, environment: Mapping[str, Value], positional: Sequence[str] | None = None) -> None:
        self.variables = Variables(dict(environment))
        self._given = frozenset(environment)
        self._exported = dict.fromkeys(environment)
        self._assigned: dict[str, None] = {}
        self._branches: list[_Branch] = []
        self._export_all = False
        self._set_positional(positional)

    def commands(self, text: str) -> Iterator[ScriptCommand]:
        """The commands of the script, except assignments and keywords.

        Raises:
            ConversionError: The script cannot be parsed.
        """
        continued = False
        for command in parse(text):
            if not command.words and continued and command.end == "\n":
                continue
            yield from self._command(command)
            self._after(command)
            continued = command.end in {"&&", "||", "|"}

    def remarks(self) -> Iterator[Remark]:
        """Remarks on defaults that were used, and on variables that nothing uses."""
        yield from self.variables.remarks
        for name in self._assigned:
            if name not in self._exported and name not in self.variables.used:
                yield Remark(name, _NOT_EXPORTED)

    def _command(self, command: SimpleCommand) -> Iterator[ScriptCommand]:
        words = self._without_keywords(command.words)
        own = list(_leading_assignments(words))
        rest = words[len(own) :]
        if not rest:
            for word in own:
                self._assign(word)
            return
        name = _plain(rest[0])
        if name in _EXPORTS:
            self._declare(name, rest[1:])
        elif name in _READS or name == "unset":
            self._forget(rest[1:], known=name == "unset")
        elif name == "set":
            self._set(rest[1:])
        else:
            environment = self._environment() | dict(self._prefix(own))
            expanded = [
                text for word in rest if not isinstance(word, ArrayWord) for text in self.variables.fields(word)
            ]
            if expanded:
                yield ScriptCommand(expanded, environment, [self._document(document) for document in command.documents])

    def _without_keywords(self, words: list[Word | ArrayWord]) -> list[Word | ArrayWord]:
        at = 0
        while at < len(words):
            word = _plain(words[at])
            if word in _OPENS:
                self._open(_Branch(dict(self.variables.values)))
                if word in {"for", "select", "case"}:
                    self._loop_variable(words[at + 1 :], loop=word != "case")
                    return []
            elif word in _BRANCHES:
                self._next_branch()
            elif word in _CLOSES:
                self._close()
            elif word not in _PASSED_OVER:
                return words[at:]
            at += 1
        return []

    def _loop_variable(self, words: list[Word | ArrayWord], *, loop: bool) -> None:
        if loop and words and (name := _plain(words[0])):
            self._put(name, Unresolved(f"${name}"))

    def _open(self, branch: _Branch) -> None:
        self._branches.append(branch)

    def _next_branch(self) -> None:
        if self._branches:
            self._branches[-1].end(self.variables.values)
            self.variables.values = dict(self._branches[-1].before)

    def _close(self) -> None:
        if self._branches:
            branch = self._branches.pop()
            branch.end(self.variables.values)
            self.variables.values = branch.before | branch.after

    def _after(self, command: SimpleCommand) -> None:
        """Begin, switch or end the branches that a separator stands for."""
        in_chain = bool(self._branches) and self._branches[-1].chain
        if command.end in {";;", ";&", ";;&"}:
            self._next_branch()
        elif command.end in {"&&", "||"}:
            tests = bool(command.words) and _plain(command.words[0]) in _TESTS
            if not in_chain and (tests or command.end == "||"):
                self._open(_Branch(dict(self.variables.values), chain=True))
            elif in_chain and command.end == "||":
                self._next_branch()
        elif in_chain and command.end != "|":
            self._close()

    def _declare(self, name: str, words: list[Word | ArrayWord]) -> None:
        exports = name == "export"
        for word in words:
            if not isinstance(word, ArrayWord) and (_plain(word) or "").startswith("-"):
                exports = exports or "x" in (_plain(word) or "")
                continue
            assigned = self._assign(word) or _plain(word) or ""
            if exports and _NAME.fullmatch(assigned):
                self._exported[assigned] = None

    def _forget(self, words: list[Word | ArrayWord], *, known: bool) -> None:
        for word in words:
            name = _plain(word) or ""
            if _NAME.fullmatch(name):
                if known:
                    self.variables.values.pop(name, None)
                    self._exported.pop(name, None)
                else:
                    self._put(name, Unresolved(f"${name}"))

    def _set(self, words: list[Word | ArrayWord]) -> None:
        options = [_plain(word) or "" for word in words]
        if "--" in options:
            rest = [word for word in words[options.index("--") + 1 :] if not isinstance(word, ArrayWord)]
            self._set_positional([text for word in rest for text in self.variables.fields(word)])
        elif any(re.fullmatch("-[a-z]*a[a-z]*", option) for option in options):
            self._export_all = True

    def _set_positional(self, positional: Sequence[str] | None) -> None:
        if positional is not None:
            self.variables.values |= {"@": tuple(positional), "*": tuple(positional)}
            self.variables.values |= {str(at): value for at, value in enumerate(positional[:9], 1)}

    def _assign(self, word: Word | ArrayWord) -> str:
        """Assign a variable; returns its name, or nothing for another word."""
        if isinstance(word, ArrayWord):
            before = self.variables.values.get(word.name)
            self.variables.assign_array(word)
            value = self.variables.values.pop(word.name)
            if before is not None:
                self.variables.values[word.name] = before
            self._put(word.name, value)
            return word.name
        match = _assignment(word)
        if match is None:
            return ""
        name, value = match[1], self.variables.text(_after_equals(word, match.end()))
        before = self.variables.values.get(name, "")
        if match[2] and isinstance(before, str):
            joined = f"{before}{value}"
            value = Unresolved(joined) if isinstance(before, Unresolved) or isinstance(value, Unresolved) else joined
        self._put(name, value)
        return name

    def _put(self, name: str, value: Value) -> None:
        self.variables.values[name] = value
        self._assigned[name] = None
        if self._export_all:
            self._exported[name] = None
        for branch in self._branches:
            branch.assigned.add(name)

    def _prefix(self, words: Sequence[Word | ArrayWord]) -> Iterator[tuple[str, str]]:
        for word in words:
            if not isinstance(word, ArrayWord) and (match := _assignment(word)) is not None:
                yield match[1], self.variables.text(_after_equals(word, match.end()))

    def _environment(self) -> dict[str, str]:
        """Variables that the script exports, except those of its container that it does not change."""
        values = {name: self.variables.values.get(name) for name in self._exported}
        return {
            name: value
            for name, value in values.items()
            if isinstance(value, str) and (name in self._assigned or name not in self._given)
        }

    def _document(self, document: HereDocument) -> Document:
        """A text that a script passes on: with its own variables in place already, unless the delimiter is quoted."""
        return Document(document.text, self._environment() if document.literal else dict(self.variables.values))


def _appended(before: Value | None, after: Value | None) -> tuple[str, ...] | None:
    """What a value has more than another one; None if it does not begin with that."""
    if isinstance(before, tuple) and isinstance(after, tuple) and after[: len(before)] == before:
        return after[len(before) :]
    if (
        isinstance(before, str)
        and isinstance(after, str)
        and not isinstance(before, Unresolved)
        and after.startswith(before)
    ):
        return (after[len(before) :].strip(),)
    return None


def _leading_assignments(words: Sequence[Word | ArrayWord]) -> Iterator[Word | ArrayWord]:
    for word in words:
        if not isinstance(word, ArrayWord) and _assignment(word) is None:
            return
        yield word


def _assignment(word: Word) -> re.Match[str] | None:
    """The match of `NAME=` at the beginning of a word, without quotes."""
    first = word[0] if word else None
    return _ASSIGNMENT.match(first.value) if isinstance(first, Text) and not first.quoted else None


def _after_equals(word: Word, length: int) -> Word:
    first = word[0]
    return (Text(first.value[length:]), *word[1:]) if isinstance(first, Text) else word


def _plain(word: Word | ArrayWord) -> str | None:
    """The text of a word without quotes and expansions."""
    if isinstance(word, ArrayWord) or not all(isinstance(part, Text) and not part.quoted for part in word):
        return None
    return "".join(part.value for part in word if isinstance(part, Text))
