"""Where a field that the schema lacks may belong."""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from pdinference.api.v1alpha1.base import models_in

_LONGEST: Final = 63
"""Characters of a name that are compared; no field has more."""
_ALIKE: Final = 0.7
"""As `difflib.SequenceMatcher.ratio`. `decoder` and `decode` have 0.92, `min` and `minReplicas` 0.43."""
_MOST_PLACES: Final = 3

Path = tuple[str, ...]


def hint(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """A sentence that names the field that was meant; empty if none is likely.

    Args:
        model: The resource.
        location: Of the unknown field.
    """
    *at, name = (step for step in location if isinstance(step, str))
    fields = _fields(model)
    if near := get_close_matches(name[:_LONGEST], fields.get(tuple(at), ()), n=1, cutoff=_ALIKE):
        return f"Did you mean {near[0]}?"
    places = sorted((".".join(path) for path, names in fields.items() if name in names), key=len)
    if 0 < len(places) <= _MOST_PLACES:
        return f"It is a field of {', '.join(places)}."
    return ""


@cache
def _fields(model: type[BaseModel]) -> Mapping[Path, tuple[str, ...]]:
    """Names of the fields of each object in the spec of a resource."""
    found: dict[Path, tuple[str, ...]] = {}
    pending: list[tuple[Path, Any]] = [(("spec",), model.model_fields["spec"].annotation)]
    while pending:
        path, annotation = pending.pop()
        for each in models_in(annotation):
            members = {field.alias or name: field.annotation for name, field in each.model_fields.items()}
            found[path] = (*found.get(path, ()), *members)
            pending += [((*path, name), member) for name, member in members.items()]
    return found
