"""Options in `args` that vLLM does not know, or not with such a value.

The list is made from vLLM's own parser (`make vllm-options`), for one version. With another version in the image, what
is not on it may well exist: then it is a warning.
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
"""Of a map; each takes a millisecond."""


def option_problems(spec: Spec) -> Iterator[Problem]:
    """Options that nobody may set, and those that the vLLM of the image does not take."""
    for field, arguments in arguments_of(spec):
        for name in arguments:
            if why := refused_argument(name, listed()[1].keys()):
                yield Problem(f"{field}.{name}", f"This cannot be set here: {why}.")
    if is_listed_version(spec.engine.image):
        yield from _unfit(spec)


def option_warnings(spec: Spec) -> Iterator[Problem]:
    """The same, where the image may have another vLLM."""
    if not is_listed_version(spec.engine.image):
        yield from _unfit(spec)


def is_official(image: str) -> bool:
    """Whether an image is vLLM's own, which is for GPUs, of whatever version."""
    return _OFFICIAL.fullmatch(image) is not None


def is_listed_version(image: str) -> bool:
    """Whether the image has the version of vLLM that the list is of, by its tag."""
    version, _ = listed()
    return re.search(rf"[:-]v?{re.escape(version)}(?![\d.])", image) is not None


@cache
def listed() -> tuple[str, dict[str, str]]:
    """The version of vLLM, and the form of each of its options: `switch`, `flag`, `int`, `a|b`, ... ."""
    lines = files("pdinference.checks").joinpath(_LIST).read_text(encoding="utf-8").splitlines()
    return lines[0], dict(line.split(" ", 1) for line in lines[1:])


def arguments_of(spec: Spec) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every `args` of a spec, with its path."""
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
            hint = f"Did you mean {near[0]}?" if near else "Its documentation lists all."
            yield Problem(f"{field}.{name}", f"vLLM {version} has no such option. {hint}")
        elif (wanted := mismatch(form, value)) is not None:
            yield Problem(f"{field}.{name}", f"{value!r} does not fit: vLLM {version} wants {wanted}.")


def mismatch(form: str, value: Any) -> str | None:
    """What an option of a form in the list wants, when the value is something else."""
    known = _FORMS.get(form)
    if known is not None:
        fits, wanted = known
        return None if fits(value) else wanted
    choices = form.split("|")
    return None if isinstance(value, str) and value in choices else f"one of {', '.join(choices)}"


_FORMS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "switch": (lambda value: isinstance(value, bool), "true or false"),
    "flag": (lambda value: value is True, "true; leave the option out otherwise"),
    "int": (lambda value: _number(value) == "int", "a whole number"),
    "float": (lambda value: _number(value) in {"int", "float"}, "a number"),
    "list": (lambda value: not isinstance(value, bool) and value != [], "one or several values"),
    "optional": (lambda value: value is not False and not isinstance(value, list), "one value, or true"),
    "text": (lambda value: not isinstance(value, bool | list), "one value"),
}
"""Which values go with a form, and how to say so."""


def _number(value: Any) -> str:
    """`int`, `float`, or what else it is; text counts as what it says."""
    if isinstance(value, str):
        if re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
            return "int"
        return "float" if re.fullmatch(r"-?\d{1,18}\.\d{1,18}", value, re.ASCII) else "str"
    return type(value).__name__
