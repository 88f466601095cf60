"""Validation of a document: returns the resource, or all problems at once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pdinference.api import names, partial
from pdinference.api.bounds import broken_bound
from pdinference.api.partial import parents, path
from pdinference.api.unknown_fields import form, meant, members
from pdinference.api.v1alpha1 import PDBatch, PDInference
from pdinference.api.v1alpha1.base import RULES_LATER, ApiModel, broken_rules
from pdinference.api.words import cut, sentence

ResourceT = TypeVar("ResourceT", bound=ApiModel)


_LONGEST_FIELD, _LONGEST_MESSAGE = 300, 1500
_MOST_PROBLEMS = 50


@dataclass(frozen=True)
class Problem:
    """One problem of a resource.

    Attributes:
        field: Path of the field, for example `spec.decode.parallelism.tensor`; empty for the whole document.
        message: What is wrong and what to do.

    Both are truncated, because they may quote long user input.
    """

    field: str
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "field", cut(self.field, _LONGEST_FIELD))
        object.__setattr__(self, "message", cut(self.message, _LONGEST_MESSAGE))

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def first_of(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """The problems without duplicates, truncated to the first 50 with a count of the others."""
    each = tuple(dict.fromkeys(problems))
    if len(each) <= _MOST_PROBLEMS:
        return each
    more = len(each) - _MOST_PROBLEMS
    return (*each[:_MOST_PROBLEMS], Problem("", f"{more} more problems are not shown. Correct these first."))


def refusal(name: object, problems: Iterable[Problem], kind: object = names.KIND) -> str:
    """Message with all problems of a resource, one per line, for the webhook and the command line."""
    lines = "\n".join(f"  {problem}" for problem in problems)
    return f"{_shown(kind, 'A resource without a kind')} {_shown(name, 'without a name')} is not valid.\n{lines}"


def _shown(text: object, otherwise: str) -> str:
    return cut(text, _LONGEST_FIELD) if isinstance(text, str) and text else otherwise


class InvalidResourceError(ValueError):
    """A document is not a valid resource.

    Attributes:
        problems: All problems, at most 51.
    """

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = first_of(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


def validated(document: Mapping[str, Any], *, admitted: bool = False) -> PDInference:
    """Read a PDInference.

    Args:
        document: The resource as JSON data.
        admitted: Whether the API server sent it, as for `read`.

    Raises:
        InvalidResourceError: The document violates the schema or a rule.
    """
    reading = read(document, admitted=admitted)
    if reading.problems or reading.resource is None:
        raise InvalidResourceError(reading.problems)
    return reading.resource


def part(model: type[ResourceT], members: Mapping[str, Any], field: str) -> ResourceT:
    """Read a part of a resource whose schema leaves its members open.

    Args:
        model: What the part has to be.
        members: The part as JSON data.
        field: Path of the part, for example `spec.decode.autoscaling.behavior`.

    Raises:
        InvalidResourceError: The part does not fit the model, or violates a rule.
    """
    try:
        value = _of_schema(model, members)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise InvalidResourceError(
            tuple(Problem(f"{field}.{path(each['loc'])}".rstrip("."), sentence(each)) for each in details)
        ) from None
    if broken := tuple(Problem(*rule) for rule in broken_rules(value, field)):
        raise InvalidResourceError(broken)
    return value


@dataclass(frozen=True)
class DocumentReading(Generic[ResourceT]):
    """Result of reading a document.

    Attributes:
        resource: The parts of the document that fit the schema; None if too few do.
        problems: All problems.
        left_out: Fields of the document that do not fit the schema, so that `resource` lacks them.
        ignored: A warning for each field of a CRD of another version, which `resource` lacks, too.
    """

    resource: ResourceT | None
    problems: tuple[Problem, ...]
    left_out: tuple[str, ...] = ()
    ignored: tuple[Problem, ...] = ()

    def concerns(self, field: str) -> bool:
        """Whether a problem of this field may be a consequence of a field that was left out."""
        return field in self._parents_of_lost or not self._lost.isdisjoint(parents(field))

    @cached_property
    def _lost(self) -> frozenset[str]:
        return frozenset(cut(field, _LONGEST_FIELD) for field in self.left_out)

    @cached_property
    def _parents_of_lost(self) -> frozenset[str]:
        return frozenset(parent for field in self._lost for parent in parents(field))


def read(document: Mapping[str, Any], *, admitted: bool = False) -> DocumentReading[PDInference]:
    """Read the parts of a PDInference that fit the schema, so that their problems are found in the same pass.

    Args:
        document: The resource as JSON data.
        admitted: Whether the API server sent the document. It removes fields that the CRD lacks, so a field that is
            unknown here comes from a CRD of another version, perhaps by a default. Such fields are ignored.
            Elsewhere, an unknown field is a problem.
    """
    return _read(PDInference, document, admitted=admitted)


def read_batch(document: Mapping[str, Any], *, admitted: bool = False) -> DocumentReading[PDBatch]:
    """Read the parts of a PDBatch that fit the schema; the arguments are those of `read`."""
    return _read(PDBatch, document, admitted=admitted)


def _read(model: type[ResourceT], document: Mapping[str, Any], *, admitted: bool) -> DocumentReading[ResourceT]:
    if (broken := broken_bound(document)) is not None:
        return DocumentReading(None, (Problem(*broken),))
    try:
        resource = _of_schema(model, document)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        if admitted:
            return _read_known(model, document, errors)
        return _partial(model, document, errors)
    return DocumentReading(resource, tuple(Problem(*rule) for rule in broken_rules(resource)))


def _of_schema(model: type[ResourceT], document: Mapping[str, Any]) -> ResourceT:
    """Fields have their names of the CRD only: Python's (`max_model_length`) are unknown to the API server."""
    return model.model_validate(dict(document), context=RULES_LATER, by_alias=True, by_name=False)


def _read_known(
    model: type[ResourceT], document: Mapping[str, Any], errors: list[ErrorDetails]
) -> DocumentReading[ResourceT]:
    """Read a document without its unknown fields."""
    unknown = [details for details in errors if details["type"] == _UNKNOWN]
    known = partial.without(document, partial.unfit(unknown, {}), {})
    reading = _read(model, known, admitted=False)
    return replace(reading, ignored=first_of(Problem(path(details["loc"]), _IGNORED) for details in unknown))


def _partial(
    model: type[ResourceT], document: Mapping[str, Any], errors: list[ErrorDetails]
) -> DocumentReading[ResourceT]:
    unfit = tuple(_problem(model, details, hints=index < _MOST_PROBLEMS) for index, details in enumerate(errors))
    left_out = [problem.field for problem in unfit]
    stand_ins = _STAND_INS.get(model, {})
    for _ in range(_ROUNDS):
        locations = partial.unfit(errors, stand_ins)
        left_out += [path(partial.doubtful(location)) for location in locations]
        document = partial.without(document, locations, stand_ins)
        try:
            resource = _of_schema(model, document)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            continue
        reading = DocumentReading(resource, (), tuple(left_out))
        broken = (Problem(*rule) for rule in broken_rules(resource))
        return DocumentReading(
            resource, (*unfit, *(p for p in broken if not reading.concerns(p.field))), reading.left_out
        )
    return DocumentReading(None, unfit, tuple(left_out))


def _problem(model: type[ApiModel], details: ErrorDetails, *, hints: bool) -> Problem:
    """A problem. A hint takes 50 us, and no more problems than these are shown."""
    return Problem(path(details["loc"]), sentence(details, _hint(model, details) if hints else ""))


def _hint(model: type[ApiModel], details: ErrorDetails) -> str:
    match details["type"]:
        case "extra_forbidden":
            return meant(model, details["loc"])
        case "model_type":
            return form(details["loc"]) + members(model, details["loc"])
    return ""


_UNKNOWN: Final = "extra_forbidden"
_IGNORED = (
    "This version of the operator does not know this field and ignores it. Install operator and CRDs of one version."
)
_ROUNDS = 8
"""Maximum passes. Removing a member may leave its parent incomplete, which the next pass removes."""
_STAND_INS: Mapping[type[ApiModel], partial.StandIns] = {
    PDInference: {
        ("metadata", "name"): "unnamed",
        # A hub source, because the fewest other fields depend on it.
        ("spec", "model", "source"): {"huggingFace": {"repository": "unknown/unknown"}},
    }
}
