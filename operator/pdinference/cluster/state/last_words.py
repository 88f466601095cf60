"""The lines at the end of a container's log that say why it stopped.

The kubelet keeps the last 2,048 bytes or 80 lines of the log of a container that failed. These may begin within a line,
and may hold several exceptions, the later ones caused by the earlier ones: Python prints the one that ended the process
last, and vLLM's API server reports after the cause that its engine process has failed.

Tests: tests/cluster/test_last_words.py
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pdinference.planning.pod_diagnosis import is_pointer
from pdinference.planning.reported import plain

LONGEST: Final = 400
"""Maximum length of a quote in a condition."""

_CUT: Final = 2000
"""Bytes from which on the first line may be cut. Of the kubelet's 2,048 a cut character may be missing."""

_TIME: Final = r"(?:\d{4}-)?\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_MARK: Final = re.compile(
    rf"\[rank\d+\]: ?|\([\w-]+(?: [\w-]+)? pid=\d+\) ?|{_TIME} ?|\[[\w./-]+:\d+\] |"
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)(?=[: ]):? {0,5}",
    re.ASCII,
)
"""What precedes the text of a log line: rank, process, time, place in the source, level."""
_EXCEPTION: Final = re.compile(r"(?:[A-Za-z_]\w*\.)*(?P<name>[A-Za-z_]\w*)(?:: (?P<text>.*)|:)?", re.ASCII)
_NAMED_AS_ERROR: Final = re.compile(
    r"Error|(Error|Exception|Interrupt|Exit|Iteration|Timeout|Expired|Failure)$", re.ASCII
)
_USAGE: Final = re.compile(r"(?:[\w./-]+ ){0,3}[\w./-]+: error: .+|error: .+", re.ASCII)
_INLINE: Final = re.compile(r"\w*(?:Error|Exception)\b|\berror:", re.ASCII)
_ABRUPT: Final = re.compile(
    r"Fatal Python error: .+|terminate called .+|  what\(\): .+|.*: not found|Illegal instruction.*"
)
_BOUNDARY: Final = re.compile(
    r"Traceback \(most recent call last\)|During handling of the above|The above exception was|Exception ignored in"
    r"| +File \"|/\S+\.py:\d+: \w*Warning: |\[W\d",
    re.ASCII,
)
_NOISE: Final = re.compile(
    r"/\S+\.py:\d+: \w*Warning: |\s+warnings\.warn\(|\[W\d|.*\d%\||usage: | +\[-|\s*\^+\s*$", re.ASCII
)
_INPUT: Final = re.compile(r" *\[type=\w+, input_value=(?P<value>.*?)(?:, input_type=\w+\].*)?$", re.ASCII)
"""Pydantic's description of the input, behind each of its errors. Often it is the whole input."""
_SHORT_INPUT: Final = 60
_ADVERTISED: Final = "    For further information visit "
"""Begins Pydantic's line with a link, behind each of its errors."""
_CALM: Final = frozenset({"DEBUG", "INFO", "WARNING"})


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of a log without its marks; the level is empty for a line that no logger wrote."""

    level: str
    text: str

    @property
    def indented(self) -> bool:
        return self.text.startswith((" ", "\t"))


def last_words(log: str) -> str:
    """Why the container stopped, in one line; empty if the log does not say.

    Args:
        log: The end of its log.
    """
    raw = [line.rstrip() for line in _COLOUR.sub("", log).splitlines() if line.strip()]
    raw = [line for line in raw if not line.startswith(_ADVERTISED)]
    if len(log.encode(errors="replace")) >= _CUT and len(raw) > 1:
        del raw[0]
    lines = [_without_marks(line) for line in raw]
    found = _of_exceptions(lines) or _of_usage(lines) or _of_a_logger(lines) or _last_line(lines)
    return plain(" ".join(found.split()), LONGEST)


def _without_marks(line: str) -> _Line:
    level = ""
    while (mark := _MARK.match(line)) is not None:
        level = mark["level"] or level
        line = line[mark.end() :]
    return _Line(level, line)


def _of_exceptions(lines: Sequence[_Line]) -> str:
    """The last exception; not one that only refers to another one, if that stands in the log too."""
    found = [said for said in _exceptions(lines) if said]
    causes = [said for said in found if not is_pointer(said)]
    return next(reversed(causes or found), "")


def _exceptions(lines: Sequence[_Line]) -> Iterator[str]:
    ignored = False
    for number, line in enumerate(lines):
        if line.text.startswith("Exception ignored in"):
            ignored = True
        header = _header(lines, number)
        if header is None:
            continue
        if not ignored and line.level not in _CALM:
            yield _said(header, lines, number)
        ignored = False


def _header(lines: Sequence[_Line], number: int) -> re.Match[str] | None:
    """The first line of an exception, as Python prints it."""
    found = _EXCEPTION.fullmatch(lines[number].text)
    if found is None:
        return None
    before = lines[number - 1] if number else None
    ends_traceback = before is not None and before.text.startswith("    ") and " " not in found["name"]
    return found if _NAMED_AS_ERROR.search(found["name"]) or ends_traceback else None


def _said(header: re.Match[str], lines: Sequence[_Line], number: int) -> str:
    """Name and message of an exception, whose message may have several lines."""
    text = _joined([header["text"] or "", *_continued(lines, number)])
    if not text and number and lines[number - 1].text.startswith("    "):
        text = next((line.text.strip() for line in reversed(lines[:number]) if set(line.text) - set(" ^~")), "")
    return f"{header['name']}: {text}" if text else header["name"]


def _continued(lines: Sequence[_Line], number: int) -> Iterator[str]:
    level = lines[number].level
    for later in range(number + 1, len(lines)):
        line = lines[later]
        if line.level != level or _BOUNDARY.match(line.text):
            return
        if _header(lines, later) is not None:
            return
        yield line.text


def _of_usage(lines: Sequence[_Line]) -> str:
    """What a parser of command lines refuses, or what ended the process without an exception."""
    for number in reversed(range(len(lines))):
        text = lines[number].text
        if _USAGE.fullmatch(text):
            return _joined([text, *_continued(lines, number)])
        if _ABRUPT.fullmatch(text):
            return text
    return ""


def _joined(parts: Iterable[str]) -> str:
    """The lines of a message in one, without long descriptions of an input."""
    return " ".join(_INPUT.sub(_given, part).strip() for part in parts).strip()


def _given(found: re.Match[str]) -> str:
    value = found["value"]
    return f" (given: {value})" if len(value) <= _SHORT_INPUT and not value.startswith(("ArgsKwargs", "{")) else ""


def _of_a_logger(lines: Iterable[_Line]) -> str:
    """The last error that a logger wrote, or the last line that mentions one."""
    outer = [line for line in lines if not line.indented and not _NOISE.match(line.text) and line.level not in _CALM]
    errors = [line for line in outer if line.level or _INLINE.search(line.text)]
    causes = [line.text for line in errors if not is_pointer(line.text)]
    return next(reversed(causes or [line.text for line in errors]), "")


def _last_line(lines: Iterable[_Line]) -> str:
    """The last line that no logger wrote. Access logs and progress say nothing about the end."""
    return next((line.text for line in reversed([*lines]) if not line.level and not _NOISE.match(line.text)), "")
