"""The pages of docs/reference are what the code says."""

import ast
from collections.abc import Iterator

import pytest

from e2e.reference import pages
from e2e.reference.conditions import known
from e2e.reference.event_reasons import OF_INFERENCE
from e2e.reference.llms import SUMMARIES, llms_text
from e2e.reference.reasons import OF_BATCHES, OF_SCALERS, REASONS
from pdinference.api.v1alpha1.conditions import INVALID
from pdinference.planning.scaling.limited import LimitReason
from tests.conftest import REPOSITORY, Golden

FOLDER = REPOSITORY / "docs" / "reference"
BATCH = REPOSITORY / "operator" / "pdinference" / "planning" / "batch.py"
TRANSITIONS = REPOSITORY / "operator" / "pdinference" / "planning" / "transitions.py"


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return dict(pages())


def test_pages_are_up_to_date(made: dict[str, str], golden: Golden) -> None:
    for name, text in made.items():
        golden(FOLDER / name, text)


def test_the_list_for_programs_is_up_to_date(golden: Golden) -> None:
    golden(REPOSITORY / "docs" / "llms.txt", llms_text())


def test_every_summary_for_programs_is_about_a_listed_page() -> None:
    text = llms_text()
    assert [page for page, summary in SUMMARIES.items() if f"](_sources/{page}): {summary}\n" not in text] == []
    assert "Do not open a public issue" not in text


def test_no_other_page_is_there(made: dict[str, str]) -> None:
    assert {path.name for path in FOLDER.iterdir()} == made.keys()


def test_every_reason_has_a_meaning_and_there_are_no_others() -> None:
    assert known() == REASONS.keys()


def test_every_reason_of_a_scaler_has_a_meaning() -> None:
    assert OF_SCALERS.keys() == {*LimitReason, "AsRecommended"}


def test_every_reason_of_a_batch_has_a_meaning() -> None:
    calls = (node for node in ast.walk(ast.parse(BATCH.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    states = (node.args[1] for node in calls if isinstance(node.func, ast.Name) and node.func.id == "State")
    constants = {found.value for found in states if isinstance(found, ast.Constant)}
    assert OF_BATCHES.keys() == {*constants, "DeadlineExceeded", "Failed", INVALID}  # three by an expression


def written() -> Iterator[tuple[str, str]]:
    """Type and reason of every Event that the code writes out; `...` for the part that is computed."""
    for node in ast.walk(ast.parse(TRANSITIONS.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Transition":
            match node.args:
                case [ast.Constant(value=str(type_)), ast.Constant(value=str(reason)), *_]:
                    yield type_, reason
                case [ast.Constant(value=str(type_)), ast.JoinedStr(values=[ast.Constant(value=str(reason)), *_]), *_]:
                    yield type_, f"{reason}..."


def test_every_event_that_the_code_writes_is_in_the_table() -> None:
    scaled = {("Normal", "ScaledUp"), ("Normal", "ScaledDown")}  # one of them, by an expression
    assert {*written(), *scaled} == {(row.type, row.reason) for row in OF_INFERENCE}
