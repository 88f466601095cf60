"""Prints overviews: as a tree, or several as a table.

Tests: tests/cli/test_status.py, tests/cli/test_narrow.py
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from pdinference.api.names import Role
from pdinference.api.v1alpha1.conditions import ROLLOUT_COMPLETE
from pdinference.cli.narrow import fitted
from pdinference.cli.requests.why import WAY_WORDS
from pdinference.cli.status.overview import Concern, Overview, PodLine, RoleView
from pdinference.cli.status.ways import WayUse

_TITLES: Final = {Role.PARAMETER: "P", Role.DECODE: "D", Role.ROUTER: "router"}
_STYLES: Final = {"True": "green", "False": "bold red", "Unknown": "yellow"}
_WORDS: Final = {"True": "ready", "False": "not ready", "Unknown": "not known to be ready"}
_LIMITS: Final = {
    "NoPods": "too few pods",
    "Parameter": "P",
    "ParameterSpeed": "the speed of one P instance",
    "Transfer": "the KV transfer",
    "KVCache": "the KV cache of D",
    "Decode": "D",
    "DecodeSpeed": "the speed of one D instance",
}


def tree(view: Overview) -> RenderableType:
    """An overview as a tree, with what is wrong below it."""
    head = Text(f"{view.namespace}/{view.name}  ", style="bold")
    head.append(_WORDS[view.ready], style=_STYLES[view.ready])
    if view.url:
        head.append(f"  {view.url}", style="not bold dim")
    root = Tree(head, guide_style="dim")
    root.add(_revision(view))
    for role in view.roles:
        branch = root.add(_role(role))
        for pod in role.pods:
            branch.add(_pod(pod))
    if view.transfer:
        root.add(_labelled("transfer", _transfer(view.transfer)))
    if view.ways is not None:
        root.add(_labelled("ways", ", ".join(_ways(view.ways))))
    if view.objectives:
        root.add(_labelled("objectives", _objectives(view.objectives)))
    return Group(root, *_below(view))


def table(views: Sequence[Overview], console: Console) -> RenderableType:
    """One line for each resource, or some with a narrow console."""
    found = Table(box=None, pad_edge=False)
    for column in ("NAME", "READY", "REVISION", "SERVING"):
        found.add_column(column, no_wrap=True)
    for column in ("P", "D", "ROUTER"):
        found.add_column(column, justify="right")
    found.add_column("STATE", overflow="fold")
    for view in views:
        counts = (_count(view.role(role)) for role in (Role.PARAMETER, Role.DECODE, Role.ROUTER))
        reasons = dict.fromkeys(one.reason for one in view.concerns if one.status != "Unknown")
        state = ", ".join(reasons) or view.rollout
        ready = Text(view.ready, style=_STYLES[view.ready])
        found.add_row(Text(view.name), ready, view.revision, view.serving, *counts, Text(state))
    return fitted(found, console)


def _count(role: RoleView) -> str:
    return f"{role.ready}/{role.desired}"


def _labelled(label: str, text: str) -> Text:
    return Text.assemble((f"{label}  ", "bold"), text)


def _revision(view: Overview) -> Text:
    if not view.revision:
        return _labelled("revision", "none yet")
    if view.serving == view.revision:
        state = "serves" if view.rollout == ROLLOUT_COMPLETE else f"serves, {view.rollout}"
        return _labelled("revision", f"{view.revision} {state}")
    before = f"{view.serving} serves until then" if view.serving else "none serves yet"
    return _labelled("revision", f"{view.revision} {view.rollout or 'not rolled out'}; {before}")


def _role(role: RoleView) -> Text:
    text = Text(_TITLES[role.role], style="bold")
    style = "green" if role.ready == role.desired and role.live is None else "yellow"
    said = _count(role) if role.live is None else f"{role.live}/{role.desired}"
    text.append(f"  {said} ready", style=f"not bold {style}")
    text.append("".join(f", {part}" for part in _facts(role)), style="not bold")
    return text


def _facts(role: RoleView) -> Iterator[str]:
    if role.live is not None:
        yield f"{_count(role)} in the status"
    if role.note:
        yield role.note
    if role.load:
        yield f"load {role.load}"  # with the range
    elif role.range is not None:
        yield f"{role.range[0]} to {role.range[1]} pods"
    if role.recommended is not None and role.recommended != role.desired:
        yield f"{role.recommended} recommended"
    if role.limited:
        yield role.limited
    if role.start_seconds is not None:
        yield f"usually starts in {role.start_seconds} s"


def _pod(pod: PodLine) -> Text:
    text = Text(pod.name)
    state, style = ("ends", "dim") if pod.ending else ("ready", "green") if pod.ready else (pod.phase, "yellow")
    text.append(f"  {state}", style=style)
    facts = [f"on {pod.node}"] if pod.node else []
    facts += [f"{pod.gpus} GPU{'s' if pod.gpus > 1 else ''}"] if pod.gpus else []
    facts += [f"{pod.restarts} restart{'s' if pod.restarts > 1 else ''}"] if pod.restarts else []
    facts += [] if pod.target else [f"revision {pod.revision}"]
    text.append("".join(f", {fact}" for fact in facts))
    if pod.problem:
        text.append(f"\n{pod.problem}", style="italic")
    return text


def _transfer(found: Any) -> str:
    """The measurements that there are."""
    verification = (found.get("verification") or {}).get("state")
    parts = [
        found.get("path"),
        _amount(found, "fromParameterPercent", "{} % of prompt tokens from P"),
        _amount(found, "byDecodePercent", "{} % computed by D"),
        _amount(found, "gigabytesPerSecond", "{:.3g} GB/s", least=0),
        _amount(found, "gigabytesPerTransfer", "{:.3g} GB a transfer", least=0),
        _amount(found, "failedPercent", "{:g} % failed"),
        _amount(found, "expiredPercent", "{:g} % expired"),
        _amount(found, "busyPercent", "busy {} % of the time"),
        _amount(found, "firstTokenPercent", "{} % of the time to first token"),
        found.get("inferredTransport"),
        f"canary {verification}" if verification else None,
    ]
    return ", ".join(part for part in parts if part)


def _ways(found: WayUse) -> Iterator[str]:
    """The shares of the ways, and how right the predictions were."""
    requests = sum(found.requests.values())
    if not requests:
        yield "no requests since the routers started"
        return
    shares = sorted(found.requests.items(), key=lambda one: -one[1])
    yield ", ".join(f"{100 * number / requests:.0f} % {WAY_WORDS.get(way, way)}" for way, number in shares)
    yield f"{requests:,.0f} requests since the routers started"
    if found.measured_seconds:
        error = 100 * found.error_seconds / found.measured_seconds
        yield f"first tokens predicted {error:.0f} % off"
    if found.prompt_tokens:
        expected, cached = (
            100 * tokens / found.prompt_tokens for tokens in (found.expected_cached_tokens, found.cached_tokens)
        )
        yield f"{cached:.0f} % of prompt tokens cached where one pod served ({expected:.0f} % expected)"


def _amount(found: Any, member: str, text: str, *, least: float = 0.0) -> str | None:
    value = found.get(member)
    return text.format(value) if value is not None and value > least else None


def _objectives(found: Any) -> str:
    parts = [found.get("stated"), f"{found.get('requests', 0):,} requests"]
    for member, name in (("ttft", "TTFT"), ("tpot", "TPOT")):
        one = found.get(member) or {}
        if one:
            measured = f" ({one['milliseconds']:g} ms)" if one.get("milliseconds") is not None else ""
            parts.append(f"{name} kept by {one.get('keptPercent', 0):g} %{measured}")
    if limit := found.get("limit"):
        parts.append(f"{_LIMITS.get(limit, limit)} limits")
    return ", ".join(part for part in parts if part)


def _below(view: Overview) -> Iterator[RenderableType]:
    """What is not as it should be, and what the overview lacks."""
    if view.concerns:
        found = Table(box=None, show_header=False, pad_edge=False, leading=1, padding=(0, 2, 0, 0))
        found.add_column(no_wrap=True)
        found.add_column(overflow="fold")
        for concern, message in _said_once(view):
            text = Text(concern.reason, style="bold")
            text.append(f" since {concern.since}", style="not bold dim")
            text.append(f"\n{message}" if message else "", style="not bold")
            found.add_row(Text(f"{concern.condition} {concern.status}", style=_STYLES[concern.status]), text)
        yield Padding(found, (1, 0, 0, 0))
    for note in view.notes:
        yield Text(f"\nNote: {note}", style="yellow")


def _said_once(view: Overview) -> Iterator[tuple[Concern, str]]:
    """The concerns, with what their messages say beyond the problems of pods and the concerns before."""
    said = [pod.problem for role in view.roles for pod in role.pods if pod.problem]
    for concern in view.concerns:
        rest = concern.message
        for earlier in said:
            rest = rest.replace(earlier, "")
        yield concern, " ".join(rest.split())
        said.append(concern.message)
