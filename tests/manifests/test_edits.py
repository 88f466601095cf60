"""An edit of any field changes a child, and an edit without effect changes none.

`every_field.yaml` holds specs that together set every field of the CRD; a field that is new and not there fails a test.
"""

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from pdinference.api.validation import InvalidResourceError, validated
from pdinference.manifests import RenderSettings, render
from tests.conftest import allowing
from tests.manifests.every_field import SCHEMA, SPECS

Json = dict[str, Any]
Step = str | int
Leaf = tuple[Step, ...]

POLICY = allowing(
    "/data",
    writable=["/kv", "/kvx", "/models", "/modelsx"],
    code={"/compiled": "models", "/compiledx": "models"},
    routerImages=["registry.example/*"],
    capabilities=["IPC_LOCK"],
    runtimeClasses=["*"],
)
SETTINGS = RenderSettings(router_image="registry.example/router:1", policy=POLICY)

OF_NO_CHILD = {"rollout.strategy", "memoryPolicy", "engine.version", "transfer.repair"} | {
    *(f"model.architecture.{member}" for member in ("config", "draftConfig")),
    *(f"{role}.accelerator.memory" for role in ("parameter", "decode")),
    *(f"{role}.autoscaling.lookAhead" for role in ("parameter", "decode")),  # tests/loadmetrics/test_rises.py
    # The bounds that HPAs get, from all that is there: tests/planning/scaling/test_coordination.py.
    *(f"autoscaling.ratio.{end}.{role}" for end in ("min", "max") for role in ("parameter", "decode")),
    "autoscaling.gpuBudget",
    "autoscaling.scaleToZero.afterSeconds",
    "objectives.percentile",  # tests/planning/test_objectives.py; the others choose ways (router.disaggregation)
}
"""Fields that affect the operator and no child."""
OF_ONE_VALUE = {
    "decode.parallelism.pipeline",
}
"""Fields that may say only what they would anyway."""


def rendered(spec: Json) -> dict[tuple[str, str], Json]:
    """The children of a spec, without the revision, which would differ whenever anything in a pod does."""
    document = {
        "apiVersion": "pdinference.io/v1alpha1",
        "kind": "PDInference",
        "metadata": {"name": "llama", "namespace": "models", "uid": "6f1c", "generation": 1},
        "spec": spec,
    }
    found = render(validated(document), SETTINGS)
    return {(child["kind"], child["metadata"]["name"]): child for child in found.objects}


def name_of(leaf: Leaf) -> str:
    """As in the schema: positions in lists left out."""
    return ".".join("[]" if isinstance(step, int) else step for step in leaf)


def schema_leaves(schema: Json, path: tuple[str, ...] = ()) -> Iterator[str]:
    """All fields that hold a value, a map, a list of plain values, or anything at all."""
    if (fields := schema.get("properties")) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        for name, field in fields.items():
            yield from schema_leaves(field, (*path, name))
    elif schema.get("items", {}).get("properties"):
        yield from schema_leaves(schema["items"], (*path, "[]"))
    else:
        yield ".".join(path)


def leaves(schema: Json, value: Any, path: Leaf = ()) -> Iterator[tuple[Leaf, Json]]:
    """The fields that a spec sets, with their schema."""
    if (fields := schema.get("properties")) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        for name, member in value.items():
            yield from leaves(fields[name], member, (*path, name))
    elif schema.get("items", {}).get("properties"):
        for index, item in enumerate(value):
            yield from leaves(schema["items"], item, (*path, index))
    else:
        yield path, schema


FIELDS: dict[str, list[tuple[Json, Leaf, Json]]] = defaultdict(list)
"""Where each field is set: the spec, the place in it, and the field's schema."""
for _spec in SPECS.values():
    for _leaf, _schema in leaves(SCHEMA, _spec):
        FIELDS[name_of(_leaf)].append((_spec, _leaf, _schema))


def others(value: Any, schema: Json) -> Iterator[Any]:
    """Other values of a field; not all need to be valid."""
    yield from (choice for choice in schema.get("enum", ()) if choice != value)
    match value:
        case bool():
            yield not value
        case int() | float():
            yield from (value + 1, value * 2, value // 2, value / 2)
        case str():
            yield from (f"{value}x", f"{value}1", f"1{value}", f"{value}/x")
        case list():
            yield from (value[:-1], [*value, *value], [*value[1:], value[0]])
            yield from ([*value[:-1], other] for other in others(value[-1], {}))
        case Mapping():
            for key, member in value.items():
                yield from ({**value, key: other} for other in others(member, {}))


def edited(spec: Json, leaf: Leaf, value: Any) -> Json:
    """The spec with another value in one place."""
    result = copy.deepcopy(spec)
    place: Any = result
    for step in leaf[:-1]:
        place = place[step]
    place[leaf[-1]] = value
    return result


def valid_edits(spec: Json, leaf: Leaf, schema: Json) -> Iterator[dict[tuple[str, str], Json]]:
    """What the spec becomes with other values of one field."""
    place: Any = spec
    for step in leaf:
        place = place[step]
    for value in others(place, schema):
        try:
            yield rendered(edited(spec, leaf, value))
        except InvalidResourceError:
            continue


def test_the_specs_set_every_field() -> None:
    assert FIELDS.keys() == set(schema_leaves(SCHEMA))


@pytest.mark.parametrize("field", sorted(FIELDS.keys() - OF_NO_CHILD - OF_ONE_VALUE))
def test_an_edit_of_any_field_reaches_a_child(field: str) -> None:
    """In one of the specs at least: in others the role may override the engine, for example."""
    assert any(
        after != rendered(spec) for spec, leaf, schema in FIELDS[field] for after in valid_edits(spec, leaf, schema)
    )


@pytest.mark.parametrize("field", sorted(OF_NO_CHILD))
def test_an_edit_of_what_only_the_operator_reads_touches_no_child(field: str) -> None:
    for spec, leaf, schema in FIELDS[field]:
        edits = list(valid_edits(spec, leaf, schema))
        assert edits
        assert all(after == rendered(spec) for after in edits)


@pytest.mark.parametrize("field", sorted(OF_ONE_VALUE))
def test_nothing_else_is_valid_where_only_one_value_is(field: str) -> None:
    assert not [edit for spec, leaf, schema in FIELDS[field] for edit in valid_edits(spec, leaf, schema)]


@pytest.mark.parametrize("name", SPECS)
def test_order_and_explicit_defaults_do_not_change_the_revision(name: str) -> None:
    spec = SPECS[name]
    reordered = {key: spec[key] for key in reversed(spec)}
    document = {"apiVersion": "pdinference.io/v1alpha1", "kind": "PDInference", "metadata": {"name": "llama"}}
    written_out = validated({**document, "spec": spec}).spec.model_dump(by_alias=True, exclude_none=True, mode="json")
    assert rendered(spec) == rendered(reordered) == rendered(written_out)
