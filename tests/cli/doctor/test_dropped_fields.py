"""What `pdinference doctor` says of CRDs that are older than it. tests/integration/test_rollback.py has a real one."""

from collections.abc import Callable
from copy import deepcopy
from importlib.metadata import version
from typing import Any

import pytest

from pdinference.api import names
from pdinference.api.crd import definitions
from pdinference.cli.doctor.dropped_fields import missing_from
from pdinference.cli.doctor.facts import ClusterFacts
from pdinference.cli.doctor.finding import Finding, FindingResult
from pdinference.cli.doctor.installation import installation
from pdinference.cli.listing import ObjectListing
from pdinference.cluster.client import Json

KINDS = frozenset({names.PLURAL, names.BATCH_PLURAL, names.SCALER_PLURAL})


def served(**changes: Callable[[Any], object]) -> Json:
    """What an API server with our CRDs answers, after changes of the schemas of these kinds."""
    schemas = {}
    for name, crd in deepcopy(definitions()).items():
        kind = crd["spec"]["names"]["kind"]
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        changes.get(kind, lambda _: None)(schema["properties"])
        schemas[name] = {**schema, "x-kubernetes-group-version-kind": [{"group": names.GROUP, "kind": kind}]}
    return {"components": {"schemas": {**schemas, "io.k8s.ObjectMeta": {"properties": {}}}}}


def without(*path: str) -> Callable[[Any], object]:
    """Removes one field. Parts of the path are names of properties, `[]` and `*`."""

    def change(properties: Any) -> None:
        holder: Any = {"properties": properties}
        for part in path[:-1]:
            keyword = {"[]": "items", "*": "additionalProperties"}.get(part)
            holder = holder[keyword] if keyword else holder["properties"][part]
        del holder["properties"][path[-1]]

    return change


def test_of_equal_crds_no_field_is_missing() -> None:
    assert not list(missing_from(served()))


@pytest.mark.parametrize(
    ("kind", "path", "named"),
    [
        (names.KIND, ("spec", "decode", "seed"), "PDInference.spec.decode.seed"),
        (names.KIND, ("spec", "traces"), "PDInference.spec.traces"),
        (names.KIND, ("status", "conditions", "[]", "reason"), "PDInference.status.conditions[].reason"),
        (names.KIND, ("status", "roles", "decode", "selector"), "PDInference.status.roles.decode.selector"),
        (names.BATCH_KIND, ("spec", "suspend"), "PDBatch.spec.suspend"),
    ],
)
def test_a_field_that_is_missing_is_named_without_what_is_below_it(
    kind: str, path: tuple[str, ...], named: str
) -> None:
    assert list(missing_from(served(**{kind: without(*path)}))) == [named]


def test_a_kind_that_is_not_served_and_one_that_keeps_all_fields_lack_none() -> None:
    assert not list(missing_from({}))

    def keep_all(properties: Any) -> None:
        properties["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

    assert not list(missing_from(served(**{names.KIND: keep_all})))


def crds(dropped: tuple[str, ...] | None, operator: str = "") -> Finding:
    """The finding, with an operator of a version."""
    metadata = {"name": "pd", "namespace": "system", "labels": {"app.kubernetes.io/version": operator}}
    operators = ObjectListing(({"metadata": metadata},) if operator else ())
    facts = ClusterFacts(kinds=KINDS, dropped_fields=dropped, operators=operators)
    return next(finding for finding in installation(facts, None) if finding.subject == "CRDs")


def test_older_crds_are_a_problem_of_an_operator_that_has_the_fields() -> None:
    found = crds(("PDInference.spec.traces",), version("pdinference"))
    assert found.result is FindingResult.PROBLEM
    assert found.found.endswith("The API server drops PDInference.spec.traces.")
    assert found.remedy == "Apply `pdinference crd`. The chart does, unless `crds.install=false`."


@pytest.mark.parametrize("operator", ["", "0.0.9"])
def test_they_are_none_of_an_older_operator(operator: str) -> None:
    assert crds(("PDInference.spec.traces",), operator).result is FindingResult.UNKNOWN


def test_a_few_of_many_fields_are_named() -> None:
    assert crds(tuple(f"spec.f{number}" for number in range(10))).found.endswith("spec.f6, spec.f7 and 2 more.")


def test_without_schemas_it_is_not_known() -> None:
    assert crds(None).result is FindingResult.UNKNOWN
    assert crds(()).result is FindingResult.OK
