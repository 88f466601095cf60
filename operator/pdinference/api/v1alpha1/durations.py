"""Durations in specs, in the form of the Gateway API.

Tests: tests/api/test_route.py, tests/advise/commands/advise/test_advise.py
"""

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from pdinference.api.v1alpha1.base import Matches

_MILLISECONDS: Final = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_AMOUNT: Final = re.compile("([0-9]+)(ms|h|m|s)", re.ASCII)

_FORM: Final = Matches("^([0-9]{1,5}(h|m|s|ms)){1,4}$", "Write a duration, for example 600s, 1h30m or 500ms.")


def _with_a_unit(value: object) -> object:
    """Refuse a number with the permitted form, because `string` alone does not say that a unit is missing."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(_FORM.message)  # noqa: TRY004 - pydantic reports a ValueError
    return value


Duration = Annotated[str, BeforeValidator(_with_a_unit), Field(max_length=28), _FORM]
"""A duration of the Gateway API."""


def milliseconds(duration: str | None) -> int:
    """The length of a duration; 0 for None."""
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in _AMOUNT.findall(duration or ""))
