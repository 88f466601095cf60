"""Options in `args` that vLLM does not have, or values that they do not accept.

There is a list for each release that the operator knows, generated from its parser (`make vllm-options`). If the image
has another release, or one that neither its tag nor spec.engine.version names, options are compared with those of the
default image, and an unknown one is only a warning.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, Final

from pdinference.api.bounded_json import BoundedJsonError, JsonLimits, loads
from pdinference.api.bounds import MAX_SPEC_BYTES
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.engine import Engine
from pdinference.api.validation import Problem
from pdinference.checks.removed_options import REMOVED
from pdinference.engine.refused import refused_argument

Release = tuple[str, Mapping[str, str]]
"""A version of vLLM, and the form of each of its options."""

JSON_LIMITS = JsonLimits(size=MAX_SPEC_BYTES, depth=32, values=8192, members=8192)
"""Limits of the JSON text of an option."""
_LISTS = "vllm-options"
_OFFICIAL = re.compile(r"(?:docker\.io/)?vllm/vllm-openai(?:[:@].*)?")
_HINTS = 8
"""Maximum number of spelling suggestions per map. Each takes a millisecond."""


def option_problems(spec: Spec) -> Iterator[Problem]:
    """Options that users may not set, and options that the image's vLLM does not accept."""
    _, options = known_release(version_of(spec.engine))
    for field, arguments in arguments_of(spec):
        for name in arguments:
            if why := refused_argument(name, options.keys()):
                yield Problem(f"{field}.{name}", f"This option cannot be set in args: {why}.")
    if version_of(spec.engine):
        yield from _unfit(spec)


def option_warnings(spec: Spec) -> Iterator[Problem]:
    """Options that the default image's vLLM does not accept, if the image may have a release without a list."""
    if not version_of(spec.engine):
        yield from _unfit(spec)


def is_official(image: str) -> bool:
    """Whether an image is an official vLLM image for GPUs, of any version."""
    return _OFFICIAL.fullmatch(image) is not None


def listed_version(image: str) -> str | None:
    """The version of vLLM that an image's tag names, if there is a list for it."""
    tag = (version for version in lists() if re.search(rf"[:-]v?{re.escape(version)}(?![\d.])", image))
    return next(tag, None)


def version_of(engine: Engine) -> str | None:
    """The version of vLLM that `version` or the image's tag names, if there is a list for it."""
    if engine.version is None:
        return listed_version(engine.image)
    return engine.version if engine.version in lists() else None


@cache
def listed() -> Release:
    """The release in the default image."""
    default = listed_version(Engine.model_fields["image"].default)
    return next((version, forms) for version, forms in lists().items() if version == default)


def known_release(version: str | None) -> Release:
    """The release of this version, or else the default, whose options are then compared."""
    return (version, lists()[version]) if version else listed()


@cache
def lists() -> Mapping[str, Mapping[str, str]]:
    """The form of each option (`switch`, `flag`, `int`, `object`, `a|b`, ...) by the version of vLLM."""
    found = {}
    for file in files("pdinference.checks").joinpath(_LISTS).iterdir():
        version, *lines = file.read_text(encoding="utf-8").splitlines()
        found[version] = dict(line.split(" ", 1) for line in lines)
    return found


def arguments_of(spec: Spec, roles: Iterable[Role] = ENGINE_ROLES) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """`args` of a spec, with their paths: those of the engine, and of roles."""
    yield "spec.engine.args", spec.engine.args
    of_roles = {Role.PARAMETER: spec.parameter, Role.DECODE: spec.decode}
    yield from ((f"spec.{role}.args", of_roles[role].args) for role in roles)


def _unfit(spec: Spec) -> Iterator[Problem]:
    version, options = known_release(version_of(spec.engine))
    for field, arguments in arguments_of(spec):
        yield from _of(field, arguments, version, options)


def _of(field: str, arguments: Mapping[str, Any], version: str, options: Mapping[str, str]) -> Iterator[Problem]:
    unknown = 0
    for name, value in arguments.items():
        if refused_argument(name, options.keys()):
            continue
        form = options.get(name)
        if form is None:
            hint = REMOVED.get(name) or _nearest(name, options if unknown < _HINTS else {})
            unknown += 1
            yield Problem(f"{field}.{name}", f"vLLM {version} has no such option. {hint}")
        elif (wanted := mismatch(form, value)) is not None:
            yield Problem(f"{field}.{name}", f"{value!r} is invalid: vLLM {version} expects {wanted}.")


def _nearest(name: str, options: Mapping[str, str]) -> str:
    near = get_close_matches(name, options, n=1)
    return f"Did you mean {near[0]}?" if near else "vLLM's documentation lists all options."


def mismatch(form: str, value: Any) -> str | None:
    """The values that an option of this form expects; None if the value is valid."""
    known = _FORMS.get(form)
    if known is not None:
        fits, wanted = known
        if fits(value):
            return None
        return f"{wanted} {_WITHIN}" if form in _NUMBERS and _is_long(value) else wanted
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
    "count": (
        lambda value: _number(value) == "int" or _is_count(value),
        "a whole number such as 4096, 4k (4,000) or 4K (4,096)",
    ),
    "object": (lambda value: isinstance(_json(value), dict), "a JSON object"),
    "json": (lambda value: isinstance(_json(value), dict | list), "JSON text of an object or a list"),
}
"""Predicate and description of the values of each form."""


_NUMBERS: Final = frozenset({"int", "float", "count"})
_INT64: Final = range(-(2**63), 2**63)
_WITHIN: Final = f"between {_INT64[0]} and {_INT64[-1]}"


def _is_long(value: Any) -> bool:
    """Whether a text is a number of too many digits."""
    return isinstance(value, str) and re.fullmatch(r"-?\d{13,}(\.\d+)?[kKmMgGtT]?", value, re.ASCII) is not None


def _is_count(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d{1,12}(\.\d{1,9})?[kKmMgGtT]", value, re.ASCII) is not None


def _json(value: Any) -> Any:
    """An object, or parsed JSON text. A list would become several values of the option, so it is not JSON."""
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return loads(value.encode(), JSON_LIMITS)
    except (BoundedJsonError, UnicodeEncodeError):
        return None


def _number(value: Any) -> str:
    """`int`, `float` or another type name. A string with a number counts as that number."""
    if isinstance(value, str):
        if re.fullmatch(r"-?\d{1,19}", value, re.ASCII) and int(value) in _INT64:
            return "int"
        written = re.fullmatch(r"-?\d{1,18}(\.\d{1,18})?([eE][+-]?\d{1,2})?", value, re.ASCII)
        return "str" if written is None else "float"
    return type(value).__name__
