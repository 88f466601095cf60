"""Parses the options of a vLLM command line as vLLM's parser does.

The options and their forms are in the lists of checks/vllm-options, which the admission checks use, too.

Tests: tests/conversion/test_resource.py, tests/conversion/test_field_points.py, tests/conversion/test_vllm_parser.py
"""

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from pdinference.api.bounded_json import BoundedJsonError, loads
from pdinference.api.bounds import MAX_VALUES
from pdinference.checks.options import JSON_LIMITS, Release, known_release, listed_version, mismatch
from pdinference.checks.removed_options import REMOVED, REMOVED_SWITCHES
from pdinference.checks.secret_values import is_secret
from pdinference.conversion.launch import Remark, Unresolved
from pdinference.conversion.values import count

SHORT = {
    "-tp": "tensor-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-dp": "data-parallel-size",
    "-ep": "enable-expert-parallel",
    "-q": "quantization",
    "-n": "nnodes",
    "-r": "node-rank",
    "-dcp": "decode-context-parallel-size",
    "-pcp": "prefill-context-parallel-size",
    "-dpn": "data-parallel-rank",
    "-dpr": "data-parallel-start-rank",
    "-dpl": "data-parallel-size-local",
    "-dpa": "data-parallel-address",
    "-dpp": "data-parallel-rpc-port",
    "-dpb": "data-parallel-backend",
    "-dph": "data-parallel-hybrid-lb",
    "-dpe": "data-parallel-external-lb",
    "-dpm": "data-parallel-multi-port-external-lb",
    "-asc": "api-server-count",
    "-sc": "speculative-config",
    "-dc": "diffusion-config",
    "-cc": "compilation-config",
    "-ac": "attention-config",
    "-O": "optimization-level",
}
"""vLLM's short options. Tests compare them with its parser."""
_ALIASES = {"device-memory-utilization": "gpu-memory-utilization"}
_HINTS = 8
_LONGEST_CHOICE = 40
_NEGATIVE = re.compile(r"-\d")
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
_USUAL_NAMES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
"""Common aliases of values that vLLM accepts only under another name."""
_CANONICAL = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)
SECRET_OPTIONS = frozenset({"api-key", "hf-token"})
"""Options whose value is secret. A reference to a variable from a Secret is kept."""
REPLACED = "A part of this comes from outside of this file. Write its value."
_REPLACES = (
    "vLLM takes the last of several objects for an option, so the members that are given one by one replace the "
    "others. Write one object with all members."
)
IN_ONE_CASE = "The script passes this in one case only (if, case, && or ||). Set it if you need it."
ROPE = frozenset({"rope-scaling", "rope-theta"})
"""Former options of vLLM that conversion/rope.py converts."""
DYNAMO_OPTIONS = {
    **dict.fromkeys(
        ("disaggregation-mode", "is-prefill-worker", "is-decode-worker"),
        "Dynamo names the role so. The roles of a PDInference are spec.parameter and spec.decode.",
    ),
    "connector": "Dynamo chooses the connector so. Here spec.transfer does.",
    **dict.fromkeys(
        ("dyn-tool-call-parser", "dyn-reasoning-parser"),
        "Dynamo's frontend parses answers so. vLLM does it by tool-call-parser (with enable-auto-tool-choice) and "
        "reasoning-parser in args, with names of its own.",
    ),
}
"""Options of Dynamo's worker, which vLLM does not have, with their replacement."""


@dataclass
class ParsedOptions:
    """The parsed options of a command line.

    Attributes:
        values: Values by long name without dashes, in their order. The last occurrence of an option wins.
        positional: Positional arguments, for example the model of `vllm serve`.
        remarks: Remarks on options that were left out.
        rope: Former options for RoPE, with their words.
    """

    values: dict[str, Any] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    rope: dict[str, list[str]] = field(default_factory=dict)


def release_of(image: str | None) -> Release:
    """The vLLM release of a container's image: that of its tag, or else the default."""
    return known_release(None if image is None or isinstance(image, Unresolved) else listed_version(image))


def parse_options(arguments: tuple[str, ...], release: Release, program: str = "vllm") -> ParsedOptions:
    """Parse arguments as the parser of a vLLM release does, according to its list of options."""
    found, hints = ParsedOptions(), _HINTS
    words = deque(_with_members_together(arguments, release[1], found))
    while words:
        word = words.popleft()
        if not _is_option(word):
            found.positional.append(word)
            continue
        name, joined = _split(word, release[1])
        form = release[1].get(name)
        values = [joined] if joined is not None else list(_following(words, name, form))
        unresolved = any(isinstance(text, Unresolved) for text in (word, *values))
        if unresolved and name not in SECRET_OPTIONS:
            found.remarks.append(Remark(shown(name, values), why_unresolved(word, *values)))
        elif form is not None:
            _take(found, name, form, values, release)
        elif name in ROPE:
            found.rope[name] = values
        elif name in REMOVED:
            found.remarks.append(Remark(shown(name, values), REMOVED[name]))
        else:
            found.remarks.append(Remark(shown(name, values), _unknown(name, release, program, hint=hints > 0)))
            hints -= 1
    return found


def _with_members_together(arguments: tuple[str, ...], options: Mapping[str, str], found: ParsedOptions) -> list[str]:
    """Arguments with the members of an option (`--config.a.b 1`, `-cc.mode=3`) as one JSON object at the end.

    vLLM does so before it parses (`FlexibleArgumentParser.parse_args` in vllm/utils/argparse_utils.py). An object that
    the option has besides is replaced, because the last one wins.
    """
    words, rest = deque(arguments), list[str]()
    objects: dict[str, dict[str, Any]] = {}
    while words:
        word = words.popleft()
        key, equals, value = word.partition("=")
        if not (key.startswith("-") and "." in key) or _NEGATIVE.match(key) or key.startswith("-O"):
            rest.append(word)
            continue
        if key.startswith("--"):
            first, dot, path = key.partition(".")
            key = first.replace("_", "-") + dot + path
        text: str = Unresolved(value) if isinstance(word, Unresolved) else value
        if not equals:
            if not words:
                found.remarks.append(Remark(word, "This option needs a value."))
                continue
            text = words.popleft()
        if isinstance(text, Unresolved):
            found.remarks.append(Remark(f"{key}={text}", REPLACED))
        elif not _put_member(objects, key, text):
            found.remarks.append(Remark(f"{key}={text}", "Members of this option are nested too deeply."))
    named = {_split(word, options)[0] for word in rest if _is_option(word)}
    for written, members in objects.items():
        name = _split(written, options)[0]
        if name in named:
            found.remarks.append(Remark(written, _REPLACES))
        named.add(name)
        rest += [written, json.dumps(members)]
    return rest


def _put_member(objects: dict[str, dict[str, Any]], key: str, text: str) -> bool:
    appended = key.endswith("+")
    option, *members = key.removesuffix("+").split(".")
    if len(members) > JSON_LIMITS.depth:
        return False
    tree = objects.setdefault(option, {})
    for member in members[:-1]:
        inner = tree.get(member)
        tree[member] = inner if isinstance(inner, dict) else {}
        tree = tree[member]
    _merge(tree, members[-1], list(text.split(",")) if appended else member_value(text))
    return True


def _merge(tree: dict[str, Any], member: str, value: Any) -> None:
    before = tree.get(member)
    if isinstance(before, dict) and isinstance(value, dict):
        for name, inner in value.items():
            _merge(before, name, inner)
    elif isinstance(before, list) and isinstance(value, list):
        before += value
    else:
        tree[member] = value


def member_value(text: str) -> Any:
    """JSON, a number such as 4k, or else the text."""
    try:
        return loads(text.encode(), JSON_LIMITS)
    except (BoundedJsonError, UnicodeEncodeError):
        pass
    try:
        return count(text)
    except ValueError:
        return text


def why_unresolved(*texts: str) -> str:
    """Why a text is not known."""
    return REPLACED if any(mark in text for text in texts for mark in "$`{<") else IN_ONE_CASE


def shown(name: str, values: Iterable[str] = ()) -> str:
    """An option for a remark, without values that may be secret."""
    texts = list(values)
    hidden = name in SECRET_OPTIONS or any(is_secret(text) for text in texts)
    return f"--{name}" if hidden else " ".join((f"--{name}", *texts))


def _is_option(word: str) -> bool:
    return word.startswith("-") and word not in {"-", "--"} and _NEGATIVE.match(word) is None


def _split(word: str, options: Mapping[str, str]) -> tuple[str, str | None]:
    """The long name of an option, and its value after `=`.

    vLLM accepts underscores for dashes. argparse expands an unambiguous prefix of a name.
    """
    key, equals, value = word.partition("=")
    value = Unresolved(value) if isinstance(word, Unresolved) else value
    if key in SHORT or not key.startswith("--"):
        short = key if key in SHORT else next((s for s in SHORT if key.startswith(s)), "")
        joined = key.removeprefix(short) if short else ""
        return SHORT.get(short, key.lstrip("-")), value if equals else joined or None
    first, dot, rest = key[2:].partition(".")
    name = first.replace("_", "-")
    name = _ALIASES.get(name, name)
    if name not in options and name not in REMOVED:
        begun = [option for option in options if option.startswith(name)]
        name = begun[0] if len(begun) == 1 else name
    return f"{name}{dot}{rest}", value if equals else None


def _following(words: deque[str], name: str, form: str | None) -> Iterator[str]:
    """Consume the words after an option that are its values."""
    if form in {"switch", "flag"} or name in REMOVED_SWITCHES:
        return
    most = MAX_VALUES if form == "list" else 1
    for _ in range(most):
        if not words or _is_option(words[0]):
            return
        yield words.popleft()


def _unknown(name: str, release: Release, program: str, *, hint: bool) -> str:
    version, options = release
    if program != "vllm":
        return DYNAMO_OPTIONS.get(name, f"This is an option of Dynamo. vLLM {version} has no such option.")
    near = get_close_matches(name, options, n=1) if hint else []
    return f"vLLM {version} has no such option." + (f" Did you mean --{near[0]}?" if near else "")


def _take(found: ParsedOptions, name: str, form: str, values: list[str], release: Release) -> None:
    if form in {"switch", "flag"}:
        switch = _turned_off(name, release[1])
        found.values[switch or name] = not switch
        return
    try:
        found.values[name] = _typed(form, values, release[0])
    except ValueError as error:
        found.remarks.append(Remark(shown(name, values), str(error)))


def _turned_off(name: str, options: Mapping[str, str]) -> str:
    """The switch that an option turns off: as `--no-x`, or as the opposite of `--enable-x` or `--disable-x`."""
    opposites = (("no-", ""), ("disable-", "enable-"), ("enable-", "disable-"))
    switches = (other + name.removeprefix(prefix) for prefix, other in opposites if name.startswith(prefix))
    return next((switch for switch in switches if options.get(switch) == "switch"), "")


def _typed(form: str, values: list[str], version: str) -> Any:
    """The value of an option in the form of the list.

    Raises:
        ValueError: The value does not have this form.
    """
    if form == "list":
        if not values:
            raise ValueError("This option needs a value.")
        return [_number_or_json(value) for value in values]
    if form == "optional" and not values:
        return True
    if not values:
        raise ValueError("This option needs a value.")
    if (wanted := mismatch(form, values[0])) is not None:
        raise ValueError(f"The value is invalid: vLLM {version} expects {wanted}.{_meant(form, values[0])}")
    if form in {"int", "float", "count"} and _WHOLE.fullmatch(values[0]):
        return int(values[0])
    return float(values[0]) if form == "float" else _json_object(values[0])


def _meant(form: str, value: str) -> str:
    """A hint at the most similar choice; empty if no choice is similar."""
    choices = form.split("|") if "|" in form else []
    usual = _USUAL_NAMES.get(value)
    near = [usual] if usual in choices else get_close_matches(value[:_LONGEST_CHOICE], choices, n=1)
    return f" Did you mean {near[0]}?" if near else ""


def _number_or_json(text: str) -> Any:
    return int(text) if _CANONICAL.fullmatch(text) else _json_object(text)


def _json_object(text: str) -> Any:
    """A parsed JSON object, so that it is written as YAML; any other text unchanged."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        value = loads(text.encode(), JSON_LIMITS)
    except (BoundedJsonError, UnicodeEncodeError):
        return text
    return value if isinstance(value, dict) else text
