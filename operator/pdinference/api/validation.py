"""From a document to a resource, or to every problem in it at once, in plain English."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pdinference.api import names
from pdinference.api.v1alpha1 import PDBatch, PDInference
from pdinference.api.v1alpha1.base import RULES_LATER, ApiModel, broken_rules

ResourceT = TypeVar("ResourceT", bound=ApiModel)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a resource.

    Attributes:
        field: Where, for example `spec.decode.parallelism.tensor`; empty for the document as a whole.
        message: What is wrong and what to do.
    """

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def refusal(name: object, problems: Iterable[Problem], kind: str = names.KIND) -> str:
    """All problems of a resource, one a line, the same from webhook and command line."""
    lines = "\n".join(f"  {problem}" for problem in problems)
    return f"{kind} {name or 'without a name'} is not valid.\n{lines}"


class InvalidResourceError(ValueError):
    """A document is no valid resource.

    Attributes:
        problems: All that is wrong with it.
    """

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


def validated(document: Mapping[str, Any]) -> PDInference:
    """Read a PDInference.

    Args:
        document: The resource as JSON data, as the API server or a YAML file gives it.

    Raises:
        InvalidResourceError: It breaks the schema or a rule; names every problem.
    """
    return _valid(read(document))


def validated_batch(document: Mapping[str, Any]) -> PDBatch:
    """Read a PDBatch.

    Raises:
        InvalidResourceError: It breaks the schema or a rule; names every problem.
    """
    return _valid(read_batch(document))


def _valid(reading: "Reading[ResourceT]") -> ResourceT:
    if reading.problems or reading.resource is None:
        raise InvalidResourceError(reading.problems)
    return reading.resource


@dataclass(frozen=True)
class Reading(Generic[ResourceT]):
    """What could be read of a document.

    Attributes:
        resource: All that fits the schema, with the rest left out; None when too little is left.
        problems: All that is wrong.
        left_out: Fields of the document that the resource lacks for it.
    """

    resource: ResourceT | None
    problems: tuple[Problem, ...]
    left_out: tuple[str, ...] = ()

    def concerns(self, field: str) -> bool:
        """Whether what is wrong with this field may well be due to something that was left out."""
        return any(_within(field, other) or _within(other, field) for other in self.left_out)


def read(document: Mapping[str, Any]) -> Reading[PDInference]:
    """Read as much of a resource as fits the schema, so that one look finds what is wrong with the rest too."""
    return _read(PDInference, document, names.SHORT_NAME)


def read_batch(document: Mapping[str, Any]) -> Reading[PDBatch]:
    """Read as much of a PDBatch as fits the schema."""
    return _read(PDBatch, document, names.BATCH_SHORT_NAME)


def _read(model: type[ResourceT], document: Mapping[str, Any], short_name: str) -> Reading[ResourceT]:
    try:
        resource = model.model_validate(dict(document), context=RULES_LATER)
    except ValidationError as error:
        return _partial(model, document, error.errors(include_url=False), short_name)
    return Reading(resource, tuple(Problem(*broken) for broken in broken_rules(resource)))


def _partial(
    model: type[ResourceT], document: Mapping[str, Any], errors: list[ErrorDetails], short_name: str
) -> Reading[ResourceT]:
    unfit = tuple(Problem(_path(details["loc"]), _message(details, short_name)) for details in errors)
    left_out = tuple(problem.field for problem in unfit)
    try:
        resource = model.model_validate(_without(document, errors), context=RULES_LATER)
    except ValidationError:
        return Reading(None, unfit, left_out)
    reading = Reading(resource, (), left_out)
    broken = (Problem(*broken) for broken in broken_rules(resource))
    return Reading(resource, (*unfit, *(p for p in broken if not reading.concerns(p.field))), left_out)


def _without(document: Mapping[str, Any], errors: list[ErrorDetails]) -> dict[str, Any]:
    """A copy of a document less the members, or items of lists, that errors are about."""
    copy = deepcopy(dict(document))
    for location in sorted((details["loc"] for details in errors), key=_order, reverse=True):
        steps = [step for step in location if step != "[key]"]
        holder: Any = copy
        for step in steps[:-1]:
            holder = _member(holder, step)
        if steps and _member(holder, steps[-1], absent=_ABSENT) is not _ABSENT:
            del holder[steps[-1]]
    return copy


_ABSENT = object()


def _member(holder: Any, step: int | str, absent: Any = None) -> Any:
    if isinstance(holder, dict):
        return holder.get(step, absent)
    if isinstance(holder, list) and isinstance(step, int) and step < len(holder):
        return holder[step]
    return absent


def _order(location: tuple[int | str, ...]) -> list[tuple[bool, int, str]]:
    """Later items of a list after earlier ones, so that deleting from the end leaves the other indexes alone."""
    return [(isinstance(step, int), step if isinstance(step, int) else 0, str(step)) for step in location]


def _within(field: str, other: str) -> bool:
    return field == other or field.startswith((f"{other}.", f"{other}["))


def _path(location: tuple[int | str, ...]) -> str:
    """Write a location as users write it: `spec.decode.placement.tolerations[0].key`."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step != "[key]":  # pydantic's mark for "the key itself, not its value"
            path += f".{step}" if path else step
    return path


def _message(details: ErrorDetails, short_name: str) -> str:
    match details["type"]:
        case "missing":
            return "This field is required."
        case "extra_forbidden":
            lists = f"`kubectl explain {short_name}.spec --recursive` lists all"
            return f"There is no such field. Check the spelling; {lists}."
        case "value_error":
            return str(details["ctx"]["error"])
        case "string_too_long":
            return f"Use at most {details['ctx']['max_length']} characters."
        case _:
            return f"{details['msg']}, not {details['input']!r}."
