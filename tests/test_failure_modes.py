"""Pages of failure modes: each fault has a test, and each named test exists in the named file."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import REPOSITORY

_PAGES = [REPOSITORY / "docs" / name for name in ("failure-modes.md", "failure-modes-operator.md")]
_SPAN = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    fault: str
    result: str
    test: str


def rows() -> Iterator[Row]:
    for line in chain.from_iterable(page.read_text(encoding="utf-8").splitlines() for page in _PAGES):
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and not line.startswith(("| ---", "| fault |")):
            yield Row(*cells)


def named_tests(row: Row) -> Iterator[tuple[str, str]]:
    """File and test function, for each test of a row."""
    for part in row.test.split("; "):
        file, *names = _SPAN.findall(part)
        assert names, f"{file} without a test"
        yield from ((file, name) for name in names)


def exists(file: str, name: str) -> bool:
    """Whether a file has this test, or this step of a test."""
    path = REPOSITORY / Path(file)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    step = name.startswith("test_") or re.search(rf"await {name}\(", text) is not None
    return step and re.search(rf"def {name}\(", text) is not None


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: row.fault)
def test_each_fault_has_tests_that_exist(row: Row) -> None:
    found = list(named_tests(row))
    assert found
    assert [f"{file}::{name}" for file, name in found if not exists(file, name)] == []


def test_the_pages_have_rows() -> None:
    assert len(list(rows())) > 40
