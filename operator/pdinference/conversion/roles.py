"""Finds P and D among the launches of a file.

Tests: tests/conversion/test_resource.py, tests/conversion/test_field_points.py
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.conversion.kv_transfer import role_of
from pdinference.conversion.launch import ConversionError, Launch, Remark
from pdinference.conversion.options import ParsedOptions, parse_options, release_of

_REPLICAS = "role.replicas"
_OF_ONE_PROCESS = frozenset({"port", "kv-transfer-config", "kv-events-config", "master-port", "data-parallel-rpc-port"})
"""Options that differ between instances of one machine, which are the same otherwise."""
_NAMED = "kv_role does not tell the roles apart, so names do: this is taken for {role}."
_OTHER = "It is taken for {role}, because the other start is {other}."
_MOST_LISTED = 8
_LETTERS = {Role.PARAMETER: "P", Role.DECODE: "D"}


def options_of(launch: Launch) -> ParsedOptions:
    """The parsed options of a launch."""
    return parse_options(launch.arguments, release_of(launch.image), launch.program)


def pair_of(launches: Iterable[Launch]) -> Mapping[Role, Launch] | Launch:
    """P and D among several launches, or one launch with replicas if all are the same.

    The role of a launch is that of its `kv_role`, or else of an option of Dynamo, or else of names and labels around
    it. Further launches of a role that differ by their port and devices only are its replicas.

    Raises:
        ConversionError: There is not exactly one of each.
    """
    found = list(launches)
    roles = [_role(launch) for launch in found]
    of = {
        role: [launch for launch, own in zip(found, roles, strict=True) if own is role]
        for role in (*ENGINE_ROLES, None)
    }
    for role, other in (ENGINE_ROLES, ENGINE_ROLES[::-1]):
        if of[role] and not of[other] and (rest := _one(of[None])) and _same_model(of[role][0], rest):
            text = _OTHER.format(role=_LETTERS[other], other=_LETTERS[role])
            of = {role: of[role], other: [_remarked(rest, text)], None: []}
    p, d, alone = _one(of[Role.PARAMETER]), _one(of[Role.DECODE]), _one(of[None])
    if p and d and not of[None]:
        return {Role.PARAMETER: p, Role.DECODE: d}
    if alone and not (of[Role.PARAMETER] or of[Role.DECODE]):
        return alone
    raise ConversionError(
        f"There are several starts of vLLM here: {_listed(found)}. Give one, or two of which one has kv_role "
        "kv_producer (P) and the other kv_consumer (D) in --kv-transfer-config, or name P and D: --parameter FILE "
        "--decode FILE."
    )


def _role(launch: Launch) -> Role | None:
    return role_of(options_of(launch)) or _of_dynamo(launch) or launch.role


def _of_dynamo(launch: Launch) -> Role | None:
    if launch.program == "vllm":
        return None
    words = [part for word in launch.arguments for part in word.split("=", 1)]
    modes = {mode for option, mode in pairwise(words) if option == "--disaggregation-mode"}
    if "--is-prefill-worker" in words or "prefill" in modes:
        return Role.PARAMETER
    return Role.DECODE if "--is-decode-worker" in words or "decode" in modes else None


def _one(launches: list[Launch]) -> Launch | None:
    """The only launch, or one with replicas if all are the same; None otherwise."""
    if not launches:
        return None
    first, *others = launches
    if any(_compared(other) != _compared(first) for other in others):
        return None
    count = sum(int(launch.settings.get(_REPLICAS, 1)) for launch in launches)
    if count == 1 or not others:
        return _named(first)
    remark = Remark(
        "replicas", f"{len(launches)} starts differ by port and devices only, so they are replicas.", left_out=False
    )
    return replace(_named(first), settings={**first.settings, _REPLICAS: count}, remarks=(*first.remarks, remark))


def _compared(launch: Launch) -> tuple[object, ...]:
    options = options_of(launch)
    values = {name: value for name, value in options.values.items() if name not in _OF_ONE_PROCESS}
    return launch.image, launch.program, options.positional, values


def _named(launch: Launch) -> Launch:
    """A launch, with a remark if only names say its role."""
    if launch.role is None or role_of(options_of(launch)) is not None or _of_dynamo(launch) is not None:
        return launch
    return _remarked(launch, _NAMED.format(role=_LETTERS[launch.role]))


def _remarked(launch: Launch, text: str) -> Launch:
    subject = launch.place or launch.name or "start"
    return replace(launch, remarks=(*launch.remarks, Remark(subject, text, left_out=False)))


def _same_model(one: Launch, other: Launch) -> bool:
    return _model(one) == _model(other)


def _model(launch: Launch) -> str:
    options = options_of(launch)
    return str(options.values.get("model") or next(iter(options.positional), "no model"))


def _listed(launches: list[Launch]) -> str:
    shown = [
        f"{launch.place or launch.name or 'a command'} ({_model(launch)[:80]})" for launch in launches[:_MOST_LISTED]
    ]
    more = len(launches) - len(shown)
    return "; ".join([*shown, *([f"and {more} more"] if more else [])])
