"""Options in `args` that vLLM does not have, or values that they do not accept.

The list is generated from vLLM's parser (`make vllm-options`) for one version. If the image has another version, an
unknown option is only a warning.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.engine.refused import refused_argument

_LIST = "vllm-options.txt"
_OFFICIAL = re.compile(r"(?:docker\.io/)?vllm/vllm-openai(?:[:@].*)?")
_HINTS = 8
"""Maximum number of spelling suggestions per map. Each takes a millisecond."""


def option_problems(spec: Spec) -> Iterator[Problem]:
    """Options that users may not set, and options that the image's vLLM does not accept."""
    for field, arguments in arguments_of(spec):
        for name in arguments:
            if why := refused_argument(name, listed()[1].keys()):
                yield Problem(f"{field}.{name}", f"This option cannot be set in args: {why}.")
    if is_listed_version(spec.engine.image):
        yield from _unfit(spec)


def option_warnings(spec: Spec) -> Iterator[Problem]:
    """Options that the listed vLLM version does not accept, if the image may have another version."""
    if not is_listed_version(spec.engine.image):
        yield from _unfit(spec)


def is_official(image: str) -> bool:
    """Whether an image is an official vLLM image for GPUs, of any version."""
    return _OFFICIAL.fullmatch(image) is not None


def is_listed_version(image: str) -> bool:
    """Whether the image's tag names the vLLM version of the list."""
    version, _ = listed()
    return re.search(rf"[:-]v?{re.escape(version)}(?![\d.])", image) is not None


@cache
def listed() -> tuple[str, dict[str, str]]:
    """The vLLM version of the list, and the form of each option: `switch`, `flag`, `int`, `a|b`, ... ."""
    lines = files("pdinference.checks").joinpath(_LIST).read_text(encoding="utf-8").splitlines()
    return lines[0], dict(line.split(" ", 1) for line in lines[1:])


def arguments_of(spec: Spec) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """All `args` of a spec, with their paths."""
    for name, part in (("engine", spec.engine), ("parameter", spec.parameter), ("decode", spec.decode)):
        yield f"spec.{name}.args", part.args


def _unfit(spec: Spec) -> Iterator[Problem]:
    for field, arguments in arguments_of(spec):
        yield from _of(field, arguments)


def _of(field: str, arguments: Mapping[str, Any]) -> Iterator[Problem]:
    version, options = listed()
    unknown = 0
    for name, value in arguments.items():
        if refused_argument(name, options.keys()):
            continue
        form = options.get(name)
        if form is None:
            near = get_close_matches(name, options, n=1) if unknown < _HINTS else []
            unknown += 1
            hint = f"Did you mean {near[0]}?" if near else "vLLM's documentation lists all options."
            yield Problem(f"{field}.{name}", f"vLLM {version} has no such option. {hint}")
        elif (wanted := mismatch(form, value)) is not None:
            yield Problem(f"{field}.{name}", f"{value!r} is invalid: vLLM {version} expects {wanted}.")


def mismatch(form: str, value: Any) -> str | None:
    """The values that an option of this form expects; None if the value is valid."""
    known = _FORMS.get(form)
    if known is not None:
        fits, wanted = known
        return None if fits(value) else wanted
    choices = form.split("|")
    return None if isinstance(value, str) and value in choices else f"one of {', '.join(choices)}"


_FORMS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "switch": (lambda value: isinstance(value, bool), "true or false"),
    "flag": (lambda value: value is True, "true, or else no such option"),
    "int": (lambda value: _number(value) == "int", "a whole number"),
    "float": (lambda value: _number(value) in {"int", "float"}, "a number"),
    "list": (lambda value: not isinstance(value, bool) and value != [], "one or several values"),
    "optional": (lambda value: value is not False and not isinstance(value, list), "one value, or true"),
    "text": (lambda value: not isinstance(value, bool | list), "one value"),
}
"""Predicate and description of the values of each form."""


def _number(value: Any) -> str:
    """`int`, `float` or another type name. A string with a number counts as that number."""
    if isinstance(value, str):
        if re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
            return "int"
        return "float" if re.fullmatch(r"-?\d{1,18}\.\d{1,18}", value, re.ASCII) else "str"
    return type(value).__name__
