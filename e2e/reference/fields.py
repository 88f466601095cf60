"""Pages with every field of a resource, from its CustomResourceDefinition."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.reference.markdown import code, page, plain, table
from pdinference.api import crd

Schema = Mapping[str, Any]

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_EVERY_FIELD: Final = _REPOSITORY / "tests" / "manifests" / "every_field.yaml"
_BATCH: Final = _REPOSITORY / "examples" / "batch.yaml"
_LONGEST_EXAMPLE: Final = 60
_BOUNDS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} members",
    "maxProperties": "at most {} members",
}


def inference_page() -> str:
    """The page of PDInference."""
    specs = yaml.safe_load(_EVERY_FIELD.read_text(encoding="utf-8")).values()
    return _page(
        crd.custom_resource_definition(),
        "[Writing a PDInference](../resource.md) says which field to use for what.",
        [{"spec": spec} for spec in specs],
    )


def batch_page() -> str:
    """The page of PDBatch."""
    documents = yaml.safe_load_all(_BATCH.read_text(encoding="utf-8"))
    return _page(
        crd.batch_definition(),
        "[Offline work](../batch.md) says how to use it.",
        [document for document in documents if document["kind"] == "PDBatch"],
    )


def scaler_page() -> str:
    """The page of PDScaler."""
    return _page(crd.scaler_definition(), "[Autoscaling](../autoscaling.md) says how it is used.", [])


def _page(definition: Schema, introduction: str, examples: Iterable[Schema]) -> str:
    kind = definition["spec"]["names"]["kind"]
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    short = definition["spec"]["names"]["shortNames"][0]
    words = (
        f"{plain(schema['description'])} `kubectl explain {short}` shows the same. {introduction}\n\n"
        "A field without a default may be left out unless it is *required*. A `[]` stands for each item of a list. "
        "Rules between fields are below the table of the object that has them."
    )
    values = _values(examples)
    objects = (part for name in ("spec", "status") for part in _objects(name, schema["properties"][name]))
    return page(
        f"Fields of {kind}", words, [*_rules(schema), *(_section(path, part, values) for path, part in objects)]
    )


def _objects(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Every object that has fields, with its path."""
    if "properties" in schema:
        yield path, schema
        for name, field in schema["properties"].items():
            yield from _objects(f"{path}.{name}", field)
    elif "items" in schema:
        yield from _objects(f"{path}[]", schema["items"])
    elif isinstance(values := schema.get("additionalProperties"), dict):
        yield from _objects(f"{path}.*", values)


def _section(path: str, schema: Schema, values: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = (
        [
            code(name),
            _type(field),
            _default(field, required=name in required),
            _meaning(field, f"{path}.{name}", values),
        ]
        for name, field in schema["properties"].items()
    )
    description = plain(schema.get("description", ""))
    parts = [f"## `{path}`", description, table(("field", "type", "default", "meaning"), rows), *_rules(schema)]
    return "\n\n".join(part for part in parts if part)


def _type(field: Schema) -> str:
    """Type and limits of a field."""
    if "enum" in field:
        return ", ".join(code(_text(value)) for value in field["enum"])
    limits = [text.format(f"{field[name]:,}") for name, text in _BOUNDS.items() if name in field]
    return "; ".join([_name(field), *limits])


def _name(field: Schema) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or text"
    if field.get("type") == "array":
        return f"list of {_name(field['items'])}"
    if isinstance(values := field.get("additionalProperties"), dict):
        return f"map to {_name(values)}"
    type_ = str(field.get("type", "any value"))
    return {"string": "text", "boolean": "`true`, `false`"}.get(type_, type_)


def _default(field: Schema, *, required: bool) -> str:
    if required:
        return "*required*"
    # The API server fills in the defaults of an object's fields; each of them has its own row.
    if "default" not in field or "properties" in field:
        return ""
    return code(_text(field["default"]))


def _meaning(field: Schema, path: str, values: Mapping[str, Any]) -> str:
    """Description, rules and an example."""
    parts = [plain(field.get("description", "")), *_item_rules(field)]
    parts += [f"Pattern: {code(field['pattern'])}."] if "pattern" in field else []
    example = _text(values.get(path, ""))
    if example and "enum" not in field and field.get("type") != "boolean" and len(example) <= _LONGEST_EXAMPLE:
        parts.append(f"Example: {code(example)}.")
    return " ".join(part for part in parts if part)


def _item_rules(field: Schema) -> Iterator[str]:
    """Messages of the rules of a field, or of its items, that has no section of its own."""
    for schema in (field, field.get("items", {})):
        if "properties" not in schema:
            yield from (plain(rule["message"]) for rule in schema.get("x-kubernetes-validations", ()))


def _rules(schema: Schema) -> list[str]:
    """What the API server says where fields do not fit together."""
    rules = schema.get("x-kubernetes-validations", ())
    if not rules:
        return []
    return ["Rules, as the API server states them when they are broken:\n\n" + "\n".join(map(_rule, rules))]


def _rule(rule: Schema) -> str:
    where = f"{code(rule['fieldPath'].removeprefix('.'))}: " if "fieldPath" in rule else ""
    return f"- {where}{plain(rule['message'])}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _values(documents: Iterable[Schema]) -> Mapping[str, Any]:
    """A value of each field that a document sets, by the field's path."""
    found: dict[str, Any] = {}
    for document in documents:
        for path, value in _leaves("", document):
            found.setdefault(path.removeprefix("."), value)
    return found


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _leaves(f"{path}.{name}", member)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for item in value:
            yield from _leaves(f"{path}[]", item)
    else:
        yield path, value
