"""Building blocks of the tables of allowed members: checks of values, objects and lists.

A check takes an untrusted value of any type and yields its problems.

Tests: tests/manifests/test_pod_rules.py
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from pdinference.api.installation_policy import Policy, allowed_by
from pdinference.api.quantities import quantity
from pdinference.api.validation import Problem

_SHOWN = 60
_DEEPEST = 8
_NAME = re.compile(r"[A-Za-z0-9._/-]{1,253}")
TOKEN_SECRET: Final = "tokenSecret"  # noqa: S105 - the name of a field
BUCKET_SECRET: Final = "source.bucket.secretName"  # noqa: S105 - the same


@dataclass(frozen=True)
class Allowance:
    """Permissions of an overlay.

    Attributes:
        policy: The installation policy.
        secret: Field of the Secret that vLLM's container has the content of, to read the model; empty without one.
        requested: Extended resources that the operator requests for the vLLM container.
        shares_processes: Whether containers see the processes of each other, and so their variables.
        root: Whether containers may run as root.
    """

    policy: Policy = field(default_factory=Policy)
    secret: str = ""
    requested: frozenset[str] = frozenset()
    shares_processes: bool = False
    root: bool = False

    @property
    def has_token(self) -> bool:
        """Whether this Secret has the token of a hub. Clients send that; a key for a bucket only signs requests."""
        return self.secret == TOKEN_SECRET


Check = Callable[[Any, str, Allowance], Iterator[Problem]]


def object_of(
    members: Mapping[str, Check], refused: Mapping[str, str] | None = None, required: Collection[str] = ()
) -> Check:
    """An object with members of a table only.

    Args:
        members: Allowed members, each with the check of its value.
        refused: Rejected members, each with the reason or an alternative.
        required: Required members.
    """

    def check(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
        if not isinstance(value, Mapping):
            yield _mistyped(path, "an object", value)
            return
        for name in required:
            if name not in value:
                yield Problem(f"{path}.{name}", "This field is required.")
        for name, member in value.items():
            if name in members:
                yield from members[name](member, f"{path}.{name}", allowance)
            elif refused is not None and name in refused:
                yield Problem(f"{path}.{name}", f"podTemplate cannot set this field: {refused[name]}.")
            else:
                yield Problem(
                    f"{path}.{shown(name)}", f"podTemplate cannot set this field. Allowed: {', '.join(members)}."
                )

    return check


def list_of(item: Check, *, key: str = "name", most: int = 128) -> Check:
    """A list. Paths name its items by `key` where they have one."""

    def check(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
        if not isinstance(value, list):
            yield _mistyped(path, "a list", value)
            return
        if len(value) > most:
            yield Problem(path, f"The list has {len(value)} items. Use at most {most}.")
            return
        for index, member in enumerate(value):
            yield from item(member, f"{path}[{_called(member, key, index)}]", allowance)

    return check


def map_of(key: Check, value_check: Check, *, most: int = 128) -> Check:
    """An object with arbitrary members, whose names and values are checked."""

    def check(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
        if not isinstance(value, Mapping):
            yield _mistyped(path, "an object", value)
            return
        if len(value) > most:
            yield Problem(path, f"The object has {len(value)} members. Use at most {most}.")
            return
        for name, member in value.items():
            where = f"{path}.{shown(name)}"
            yield from key(name, where, allowance)
            yield from value_check(member, where, allowance)

    return check


def text(pattern: str = "", example: str = "", *, most: int = 4096) -> Check:
    """A text, optionally of a pattern."""
    form = re.compile(pattern) if pattern else None

    def check(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
        if not isinstance(value, str):
            yield _mistyped(path, "a text", value)
        elif len(value) > most:
            yield Problem(path, f"Too long: use at most {most} characters.")
        elif form is not None and not form.fullmatch(value):
            yield Problem(path, f"{shown(value)} is not valid. Write for example {example}.")

    return check


_DOMAIN = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_DOMAIN_NAME = re.compile(_DOMAIN)
_QUALIFIED = re.compile(r"([^/]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
LABEL_VALUE: Check = text(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", "search", most=63)
DOMAIN: Check = text(_DOMAIN, "gpu.example.com", most=253)


def qualified_name(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    """A key of a label, an annotation or a taint, or the name of a resource or condition."""
    if not isinstance(value, str):
        yield _mistyped(path, "a text", value)
        return
    domain, slash, _ = value.rpartition("/")
    if not _QUALIFIED.fullmatch(value) or (slash and not _DOMAIN_NAME.fullmatch(domain)):
        yield Problem(path, f"{shown(value)} is not valid. Write for example zone or example.com/zone.")


def whole(least: int = 0, most: int = 2**31 - 1, *, why: str = "") -> Check:
    """An integer within bounds."""

    def check(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
        if not isinstance(value, int) or isinstance(value, bool):
            yield _mistyped(path, "an integer", value)
        elif not least <= value <= most:
            yield Problem(path, why or f"Write a number from {least} to {most}, not {shown(value)}.")

    return check


def flag(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    """True or false."""
    if not isinstance(value, bool):
        yield _mistyped(path, "true or false", value)


def only(*allowed: Any, why: str = "") -> Check:
    """One of several values."""

    def check(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
        if not any(type(value) is type(one) and value == one for one in allowed):
            choices = " or ".join(shown(one) for one in allowed)
            yield Problem(path, f"Write {choices}, not {shown(value)}.{f' {why}' if why else ''}")

    return check


def either(first: type, of_first: Check, of_others: Check) -> Check:
    """One check for values of a type, and another check for all other values."""

    def check(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
        yield from (of_first if isinstance(value, first) else of_others)(value, path, allowance)

    return check


def both(*checks: Check) -> Check:
    """Several checks of one value. The first check with problems ends the sequence."""

    def check(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
        for one in checks:
            if found := tuple(one(value, path, allowance)):
                yield from found
                return

    return check


def not_beside_token(message: str) -> Check:
    """An empty value in pods whose containers have a hub token."""

    def check(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
        if allowance.has_token and value:
            yield Problem(path, message)

    return check


def listed(member: str, what: str, *reserved: str) -> Check:
    """A text that a list of the policy allows.

    Args:
        member: Name of the list in the policy.
        what: Description of the value for the message.
        reserved: Prefixes that need a pattern with the same prefix.
    """
    attribute = next(name for name, known in Policy.model_fields.items() if known.alias == member)

    def check(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
        if not isinstance(value, str):
            yield _mistyped(path, "a text", value)
            return
        patterns: list[str] = getattr(allowance.policy, attribute)
        if not allowed_by(patterns, value, reserved):
            start = next((start for start in reserved if value.startswith(start)), "")
            needs = f" The entry must start with {start}: * alone does not match it." if start else ""
            yield Problem(path, not_allowed(f"{what} {shown(value)}", member, patterns) + needs)

    return check


def not_allowed(what: str, member: str, patterns: Collection[str]) -> str:
    """The message for a value that the policy does not allow, with the chart value that can allow it."""
    known = ", ".join(map(shown, patterns)) or "none"
    return (
        f"The installation policy does not allow {what} (allowed: {known}). Use an allowed value, or ask the "
        f"administrator to add it to the chart value policy.{member}."
    )


def amount(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    """A quantity."""
    number = None if isinstance(value, bool) or not isinstance(value, int | float | str) else _quantity(value)
    if number is None or number < 0:
        yield Problem(path, f"{shown(value)} is not a quantity. Write for example 500m, 2 or 16Gi.")


def any_object(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    """An object of limited depth, which only the API server validates further."""
    if not isinstance(value, Mapping):
        yield _mistyped(path, "an object", value)
    elif deeper_than(value, _DEEPEST):
        yield Problem(path, f"The object is nested too deeply. Use at most {_DEEPEST} levels of objects and lists.")


def deeper_than(value: Any, most: int) -> bool:
    """Whether objects and lists are nested in more levels than this."""
    level = [value]
    for _ in range(most + 1):
        level = [
            member
            for holder in level
            if isinstance(holder, Mapping | list)
            for member in (holder.values() if isinstance(holder, Mapping) else holder)
        ]
        if not level:
            return False
    return True


def shown(value: Any) -> str:
    """A value for a message: truncated, and without unprintable characters."""
    written = value[:_SHOWN] if isinstance(value, str) else repr(value)[:_SHOWN] if _is_plain(value) else "this"
    return "".join(character if character.isprintable() else "?" for character in written) or '""'


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**63)


def _quantity(value: float | str) -> Decimal | None:
    written = value if isinstance(value, str) else str(value) if _is_plain(value) else ""
    return quantity(written) if len(written) <= _SHOWN else None


def _mistyped(path: str, wanted: str, value: Any) -> Problem:
    return Problem(path, f"Write {wanted}, not {_described(value)}.")


def _described(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list) else shown(value)


def _called(member: Any, key: str, index: int) -> str:
    name = member.get(key) if isinstance(member, Mapping) else None
    return name if isinstance(name, str) and _NAME.fullmatch(name) else str(index)
