"""Base of all API models: camelCase names, closed schemas, and rules in CEL and Python.

Tests: tests/api/test_validation.py, tests/api/test_crd.py
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Self

import re2
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core.core_schema import CoreSchema, no_info_after_validator_function

from pdinference.api.words import cut

_LONGEST_DOMAIN: Final = 253


@dataclass(frozen=True)
class Matches:
    """Constraint: text matches a pattern. CEL and Python return the same message.

    Attributes:
        pattern: A regular expression in RE2 syntax, without quotes.
        message: The permitted form, with an example.
    """

    pattern: str
    message: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {
            **handler(schema),
            "x-kubernetes-validations": [{"rule": f"self.matches(r'{self.pattern}')", "message": self.message}],
        }

    def _checked(self, value: str) -> str:
        if not re2.search(self.pattern, value):  # linear time, like the API server
            raise ValueError(self.message)
        return value


def _as_json(value: Any) -> Any:
    """Reject values that YAML has and JSON does not: dates, bytes, infinite numbers."""
    match value:
        case None | bool() | int() | str():
            pass
        case float() if math.isfinite(value):
            pass
        case dict():
            for key, member in value.items():
                _as_json(key if isinstance(key, str) else math.nan)
                _as_json(member)
        case list():
            for item in value:
                _as_json(item)
        case _:
            raise ValueError(
                f"The value {cut(repr(value), 60)} does not exist in JSON. Write text in quotes, or a finite number."
            )
    return value


AsJson = AfterValidator(_as_json)
"""Any JSON value."""

Moment = Annotated[datetime, Field(strict=False)]
"""A time, which JSON represents as text."""


def quantity_as_text(value: object) -> object:
    """Convert a number, as YAML reads `cpu: 2`, to text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


_QUANTITY = Matches(
    r"^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i)?$",
    "Write a quantity, for example 500m, 2 or 16Gi. (GB is G, GiB is Gi.)",
)

Quantity = Annotated[
    str,
    BeforeValidator(quantity_as_text),
    Field(max_length=32),
    _QUANTITY,
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": 32,
            # Not a CEL rule: before Kubernetes 1.31 its estimated cost is too high, since the text has no known bound.
            "minimum": 0,
            "pattern": _QUANTITY.pattern,
        }
    ),
]
"""A Kubernetes quantity such as `500m`, `2` or `16Gi`."""


def _domain_fits(name: str) -> str:
    """The name. With a short name, the limit of both leaves the domain more than its own 253 characters."""
    if len(name.rpartition("/")[0]) > _LONGEST_DOMAIN:
        raise ValueError(f"Use at most {_LONGEST_DOMAIN} characters before the slash.")
    return name


def _not_reserved(name: str) -> str:
    """The name. Kubernetes keeps some domains for itself, and `requests.` for quotas of extended resources."""
    domain = name.partition("/")[0]
    if domain.endswith("kubernetes.io") or domain.startswith("requests."):
        raise ValueError("Pods cannot request a resource of this domain. Write that of the device plug-in.")
    if len(domain) > _LONGEST_DOMAIN - len("requests."):
        raise ValueError("Write a shorter domain: quotas put `requests.` in front.")
    return name


QualifiedName = Annotated[
    str,
    Field(max_length=317),
    Matches(
        r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
        "Write a name of at most 63 characters, with or without a domain: zone, example.com/zone.",
    ),
    AfterValidator(_domain_fits),
]
"""A label key, annotation key or resource name."""

ExtendedResource = Annotated[
    str,
    Field(max_length=308),
    Matches(
        r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
        "Write an extended resource with its domain, for example nvidia.com/gpu or rdma/ib.",
    ),
    AfterValidator(_not_reserved),
]
"""A resource of devices, as a device plug-in offers it."""

LabelValue = Annotated[
    str,
    Field(max_length=63),
    Matches(
        "^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$",
        "Write letters, digits, dots, dashes and underscores, starting and ending with a letter or digit.",
    ),
]


def each_once(values: list[str]) -> list[str]:
    """The values.

    Raises:
        ValueError: One occurs several times.
    """
    for value in values:
        if (count := values.count(value)) > 1:
            raise ValueError(f"{value} occurs {count} times. Write it once.")
    return values


LabelValues = Annotated[
    list[LabelValue],
    Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"}),
    AfterValidator(each_once),
]
ObjectName = Annotated[
    str,
    Field(max_length=253),
    Matches(
        r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$",
        "Write an object's name: lower-case letters, digits, dashes and dots.",
    ),
]
DataKey = Annotated[
    str,
    Field(max_length=253),
    Matches(
        r"^\.?[A-Za-z0-9_-][A-Za-z0-9._-]*$",
        "Write a key of a ConfigMap or Secret: letters, digits, dots, dashes and underscores. It cannot be a dot "
        "or start with two.",
    ),
]
"""A key in the data of a ConfigMap or Secret."""
NamespaceName = Annotated[
    str,
    Field(max_length=63),
    Matches("^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "Write the name of a namespace, for example team-a."),
]
ImageReference = Annotated[
    str,
    Field(max_length=512),
    Matches(
        "^[A-Za-z0-9][A-Za-z0-9._:/@-]*$",
        "Write an image with a tag or a digest, for example docker.io/vllm/vllm-openai:v0.33.0.",
    ),
]
"""A container image, with a tag or a digest."""


@dataclass(frozen=True)
class Rule:
    """One constraint between fields, in CEL for the API server and in Python for the operator and the command line.

    Attributes:
        cel: CEL expression on `self`; true if the object is valid.
        holds: The same condition in Python, on the validated model.
        message: What is wrong and what to do.
        field: Path of the invalid member within the object, such as `decode.replicas`; empty for the object itself.
    """

    cel: str
    holds: Callable[[Any], bool]
    message: str
    field: str = ""


class RulesBrokenError(ValueError):
    """An object violates rules between its fields.

    Attributes:
        rules: The violated rules.
    """

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        super().__init__(" ".join(rule.message for rule in rules))
        self.rules = rules


class ApiModel(BaseModel):
    """A part of the resource."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        strict=True,  # like the API server: "2" is not a number, and 1 is not true
        use_attribute_docstrings=True,
        defer_build=True,  # only whole resources are validated; a validator for each part would slow down the start
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, members: Any) -> Any:
        """Drop members that are null, like the API server."""
        if not isinstance(members, dict) or None not in members.values():
            return members
        known = {field.alias for field in cls.model_fields.values()}
        return {name: value for name, value in members.items() if value is not None or name not in known}

    @model_validator(mode="after")
    def _rules_hold(self, info: ValidationInfo) -> Self:
        broken = () if info.context == RULES_LATER else tuple(rule for rule in self.rules if not rule.holds(self))
        if broken:
            raise RulesBrokenError(broken)
        return self


RULES_LATER = "rules later"
"""Validation context that skips rules. Otherwise pydantic would stop at the innermost object that violates one."""


def broken_rules(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Field and message of each violated rule of an object and of the objects in it."""
    if isinstance(value, ApiModel):
        for name, field in type(value).model_fields.items():
            yield from broken_rules(getattr(value, name), f"{path}.{field.alias}" if path else str(field.alias))
        for rule in value.rules:
            if not rule.holds(value):
                yield ".".join(filter(None, (path, rule.field))), rule.message
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from broken_rules(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from broken_rules(item, f"{path}.{key}")


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in the annotation of a field, those of its items and values included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from models_in(argument)
