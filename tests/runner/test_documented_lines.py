"""docs/batch.md explains all fields and codes of the runner's output lines, and no others."""

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from pdinference.engine.batch import ERRORS, OUTPUT
from pdinference.runner.lines import BatchRequestError, BatchRequestOutput, BatchResponseData, ErrorCode

_PAGE = (Path(__file__).parents[2] / "docs" / "batch.md").read_text(encoding="utf-8")
_SECTION = _PAGE.split("### A line of the output")[1].split("### Limits")[0]
_BLOCKS = re.findall(r"^```(?:json)?\n(.*?)^```$", _SECTION, re.DOTALL | re.MULTILINE)
_ANSWER, _ERRORS = _BLOCKS[0], _BLOCKS[1].splitlines()


def first_column(heading: str) -> list[str]:
    """What the table of that first heading explains."""
    rows = _SECTION.split(f"| {heading} | meaning |\n")[1].split("\n\n")[0].splitlines()[1:]
    return [re.findall(r"`([^`]+)`", row)[0] for row in rows]


def members(struct: type[msgspec.Struct], prefix: str = "") -> set[str]:
    return {prefix + field.encode_name for field in msgspec.structs.fields(struct)}


def test_all_fields_of_a_line_are_explained_and_no_others() -> None:
    written = members(BatchRequestOutput)
    written |= members(BatchResponseData, "response.") | members(BatchRequestError, "error.")
    assert set(first_column("field")) == written


def test_all_codes_of_errors_are_explained_and_no_others() -> None:
    assert set(first_column("`error.code`")) == set(get_args(ErrorCode))


@pytest.mark.parametrize(("line", "file"), [(_ANSWER, OUTPUT), *((line, ERRORS) for line in _ERRORS)])
def test_the_lines_shown_are_lines_of_the_runner(line: str, file: str) -> None:
    shown = msgspec.json.decode(line, type=BatchRequestOutput)
    assert msgspec.json.decode(shown.as_line()) == msgspec.json.decode(line), "nothing is left out or added"
    assert shown.answered is (file == OUTPUT)
