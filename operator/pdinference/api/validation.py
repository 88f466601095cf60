"""From a document to a resource, or to every problem in it at once, in plain English."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pdinference.api import names
from pdinference.api.v1alpha1 import PDBatch, PDInference
from pdinference.api.v1alpha1.base import RulesBrokenError

ResourceT = TypeVar("ResourceT", PDInference, PDBatch)


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
    return _read(PDInference, document, names.SHORT_NAME)


def validated_batch(document: Mapping[str, Any]) -> PDBatch:
    """Read a PDBatch.

    Raises:
        InvalidResourceError: It breaks the schema or a rule; names every problem.
    """
    return _read(PDBatch, document, names.BATCH_SHORT_NAME)


def _read(model: type[ResourceT], document: Mapping[str, Any], short_name: str) -> ResourceT:
    try:
        return model.model_validate(dict(document))
    except ValidationError as error:
        found = (problem for details in error.errors(include_url=False) for problem in _problems(details, short_name))
        raise InvalidResourceError(tuple(found)) from None


def _problems(details: ErrorDetails, short_name: str) -> list[Problem]:
    where = _path(details["loc"])
    broken = details.get("ctx", {}).get("error")
    if isinstance(broken, RulesBrokenError):
        return [Problem(field=".".join(filter(None, (where, r.field))), message=r.message) for r in broken.rules]
    return [Problem(field=where, message=_message(details, short_name))]


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
