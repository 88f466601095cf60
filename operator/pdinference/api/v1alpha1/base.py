"""What all models share: camelCase names, closed schemas, and rules stated once for CEL and Python."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel

QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i)?$"
LABEL_VALUE_PATTERN = r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$"
QUALIFIED_NAME_PATTERN = (
    r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
)
DNS_SUBDOMAIN_PATTERN = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$"


def _quantity_as_text(value: object) -> object:
    """YAML reads `cpu: 2` as a number; a quantity is text everywhere behind this point."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Quantity = Annotated[
    str,
    BeforeValidator(_quantity_as_text),
    Field(pattern=QUANTITY_PATTERN, max_length=32),
    WithJsonSchema(
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], "maxLength": 32}
        | {"pattern": QUANTITY_PATTERN}
    ),
]
"""A Kubernetes quantity such as `500m`, `2` or `16Gi`."""

LabelKey = Annotated[str, Field(pattern=QUALIFIED_NAME_PATTERN, max_length=317)]
LabelValue = Annotated[str, Field(pattern=LABEL_VALUE_PATTERN, max_length=63)]
ImageReference = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")]
"""A container image, with a tag or a digest."""


@dataclass(frozen=True)
class Rule:
    """One constraint between fields, as CEL for the API server and as Python for the command line and the operator.

    Attributes:
        cel: The expression, with `self` for the object, that is true when the object is valid.
        holds: The same in Python, given the validated model.
        message: What is wrong and what to do, in plain English.
    """

    cel: str
    holds: Callable[[Any], bool]
    message: str


class ApiModel(BaseModel):
    """A part of the resource."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _rules_hold(self) -> Self:
        broken = [rule.message for rule in self.rules if not rule.holds(self)]
        if broken:
            raise ValueError(" ".join(broken))
        return self
