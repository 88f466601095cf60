"""The CRD and the code have the same table of conditions."""

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from pdinference.api.v1alpha1 import conditions
from pdinference.api.v1alpha1.conditions import BY_NAME, TABLE, ConditionType
from tests.api.schemas import ROOT
from tests.conftest import REPOSITORY

SOURCE = REPOSITORY / "operator" / "pdinference"
JUDGING = (
    "planning/status",
    "planning/pod_diagnosis.py",
    "planning/model_report.py",
    "planning/pinning.py",
    "planning/exposure.py",
)
"""Where reasons are made; those of Autoscaling are in planning/scaling/condition.py."""


def test_the_crd_names_every_condition() -> None:
    said = ROOT["properties"]["status"]["properties"]["conditions"]["description"]
    assert said == conditions.description()
    assert all(row.name in said for row in TABLE)


@pytest.mark.parametrize("row", TABLE, ids=[row.name for row in TABLE])
def test_each_status_has_a_meaning_and_reasons(row: ConditionType) -> None:
    assert row.when.keys() == row.reasons.keys()
    assert all(row.reasons.values())
    assert all(text.endswith(".") for text in row.when.values())
    assert find_spec(f"pdinference.planning.{row.module}") is not None


def sources() -> Iterator[Path]:
    """The modules that make reasons."""
    for place in JUDGING:
        path = SOURCE / place
        yield from [path] if path.is_file() else sorted(path.glob("*.py"))


def literals() -> Iterator[tuple[str, str]]:
    """Module and text of every reason that is written out where a condition or an advice is made."""
    position = {"ConditionResult": 1, "Diagnosis": 0}
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in position:
                yield from ((path.name, text) for text in _texts(node.args[position[node.func.id]]))


def _texts(reason: ast.expr) -> Iterator[str]:
    """The texts that an expression may be; none of one that is worked out by a call."""
    match reason:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=one, orelse=other):
            yield from (*_texts(one), *_texts(other))


def test_every_reason_that_the_code_writes_out_is_in_the_table() -> None:
    found = set(literals())
    known = {reason for row in TABLE for reasons in row.reasons.values() for reason in reasons}
    assert len(found) > 5, "the walk finds calls"
    assert {pair for pair in found if pair[1] not in known} == set()


def test_every_reason_of_the_table_is_made_somewhere() -> None:
    """Reasons of the kubelet and of HPAs are listed where they are expected; all others are ours."""
    own = SOURCE / "api/v1alpha1/conditions.py"
    text = "".join(path.read_text() for path in SOURCE.rglob("*.py") if path != own)
    names = own.read_text().split("@dataclass")[0]
    known = {reason for row in TABLE for reasons in row.reasons.values() for reason in reasons}
    constants = {reason for reason in known if f'Final = "{reason}"' in names}
    assert {reason for reason in known - constants if f'"{reason}"' not in text} == set()


def test_kstatus_conditions_are_abnormal_when_true() -> None:
    """The library takes their absence for a resource with which nothing is wrong."""
    for name in ("Reconciling", "Stalled"):
        assert BY_NAME[name].when.keys() == {"True"}
        assert BY_NAME[name].present
        assert BY_NAME[name].good == "False"


def test_a_resource_that_the_operator_has_not_seen_says_so() -> None:
    """Without it, kstatus takes a new resource for a finished one."""
    assert ROOT["properties"]["status"]["default"] == {"observedGeneration": 0}
