"""The generated CRD: structural, described, small, and equal to the file in the repository."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from pdinference.api.crd import (
    custom_resource_definition,
    definitions,
    model_schema,
)
from pdinference.api.v1alpha1 import BatchSpec, BatchStatus, ScalerStatus, Spec, Status
from tests.api.schemas import BATCH_ROOT, ROOT, SCALER_ROOT, SCALER_VERSION, VERSION
from tests.conftest import REPOSITORY

each_root = pytest.mark.parametrize("root", [ROOT, BATCH_ROOT, SCALER_ROOT], ids=["PDInference", "PDBatch", "PDScaler"])


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, member in schema.get("properties", {}).items():
        yield from nodes(member, f"{path}.{name}" if path else name)
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            yield from nodes(schema[keyword], f"{path}[]")


def members(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((path, node) for path, node in nodes(schema) if path and not path.endswith("[]"))


@pytest.mark.parametrize(("name", "crd"), definitions().items(), ids=definitions().keys())
def test_the_file_in_the_repository_is_the_generated_one(name: str, crd: dict[str, Any]) -> None:
    assert yaml.safe_load((REPOSITORY / f"crds/{name}.yaml").read_text()) == crd, "run `make generate`"


@each_root
def test_every_field_has_a_description(root: dict[str, Any]) -> None:
    undescribed = [path for path, node in members(root) if path != "metadata" and not node.get("description")]
    assert undescribed == []


@each_root
def test_descriptions_are_sentences(root: dict[str, Any]) -> None:
    unfinished = [
        path for path, node in members(root) if "description" in node and not node["description"].endswith(".")
    ]
    assert unfinished == []


@each_root
def test_it_is_structural(root: dict[str, Any]) -> None:
    forbidden = {"$ref", "$defs", "title", "allOf", "oneOf", "not", "const", "exclusiveMinimum", "patternProperties"}
    for path, node in nodes(root):
        assert not forbidden & node.keys(), path
        assert "type" in node or any(key.startswith("x-kubernetes-") for key in node), path
        assert node.get("additionalProperties") is not False, path


def test_they_stay_small() -> None:
    """`kubectl apply` sends JSON; a person reads the file."""
    for name, crd in definitions().items():
        assert len(json.dumps(crd)) < 184_000
        assert (REPOSITORY / f"crds/{name}.yaml").stat().st_size < 234_000


@each_root
def test_text_and_lists_are_bounded_so_that_rules_have_a_bounded_cost(root: dict[str, Any]) -> None:
    unbounded = [
        path
        for path, node in nodes(root["properties"]["spec"])
        if (node.get("type") == "string" and not {"maxLength", "enum"} & node.keys())
        or (node.get("type") == "array" and "maxItems" not in node)
        or ("additionalProperties" in node and "maxProperties" not in node)
    ]
    assert unbounded == []


def test_defaults_of_objects_are_complete() -> None:
    """The API server checks the rules of an object against its default as it is written here."""
    spec = ROOT["properties"]["spec"]["properties"]
    assert spec["decode"]["default"]["parallelism"]["tensor"] == 1
    assert spec["decode"]["default"]["accelerator"]["resourceName"] == "nvidia.com/gpu"
    assert spec["decode"]["properties"]["parallelism"]["properties"]["tensor"]["default"] == 1
    assert spec["router"]["default"]["service"]["type"] == "ClusterIP"


def test_defaults_are_those_of_the_models() -> None:
    def check(schema: dict[str, Any], model: type[BaseModel]) -> None:
        for field in model.model_fields.values():
            default = field.get_default(call_default_factory=True, validated_data={})
            node = schema["properties"][field.alias or ""]
            if isinstance(default, BaseModel):
                check(node, type(default))
            elif isinstance(default, str | int):
                assert node["default"] == default

    check(model_schema(Spec), Spec)
    check(model_schema(BatchSpec), BatchSpec)


@pytest.mark.parametrize("version", [VERSION, SCALER_VERSION], ids=["PDInference", "PDScaler"])
@pytest.mark.parametrize("path", ["specReplicasPath", "statusReplicasPath", "labelSelectorPath"])
def test_the_scale_subresource_points_at_fields_that_exist(path: str, version: dict[str, Any]) -> None:
    node = version["schema"]["openAPIV3Schema"]
    for step in version["subresources"]["scale"][path].strip(".").split("."):
        node = node["properties"][step]
    assert node["type"] in {"integer", "string"}


def test_a_recommendation_is_bounded_and_has_no_default() -> None:
    """A default would look like a recommendation of a scaler that has not acted yet."""
    replicas = SCALER_ROOT["properties"]["spec"]["properties"]["replicas"]
    assert (replicas["minimum"], replicas["maximum"]) == (0, 1000)
    assert "default" not in replicas


@pytest.mark.parametrize("model", [Status, BatchStatus, ScalerStatus])
def test_conditions_merge_by_type(model: type[BaseModel]) -> None:
    conditions = model_schema(model)["properties"]["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_a_quantity_has_its_pattern_in_the_schema() -> None:
    spec = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    limits = spec["properties"]["decode"]["properties"]["resources"]["properties"]["limits"]
    quantity = limits["additionalProperties"]
    assert re.fullmatch(quantity["pattern"], "16Gi")
    assert not re.fullmatch(quantity["pattern"], "4 GB")
