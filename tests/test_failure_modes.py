"""docs/failure-modes.md: each fault has a test, and each named test exists in the named file."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import REPOSITORY

_PAGE = REPOSITORY / "docs" / "failure-modes.md"
_SPAN = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    fault: str
    result: str
    test: str


def rows() -> Iterator[Row]:
    for line in _PAGE.read_text(encoding="utf-8").splitlines():
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
    path = REPOSITORY / Path(file)
    return path.exists() and re.search(rf"def {name}\(", path.read_text(encoding="utf-8")) is not None


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: row.fault)
def test_each_fault_has_tests_that_exist(row: Row) -> None:
    found = list(named_tests(row))
    assert found
    assert [f"{file}::{name}" for file, name in found if not exists(file, name)] == []


def test_the_page_has_rows() -> None:
    assert len(list(rows())) > 40
