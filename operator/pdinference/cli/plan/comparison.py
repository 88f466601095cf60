"""Prints the comparison of P and D with the same GPUs unsplit, and changes that give D more room.

Tests: tests/cli/test_plan_comparison.py
"""

from collections.abc import Iterator, Sequence

from rich.table import Table

from pdinference.api.names import Role
from pdinference.checks.decode_room import MoreRoom
from pdinference.cli.plan.figures import count, gib
from pdinference.memory import Figure, RolePlan, fits, instance
from pdinference.memory.comparison.result import Compared, Comparison

_SPLIT_IS_BETTER = (
    "Split is better at a steady inter-token latency while long prompts arrive, and P and D are scaled and placed "
    "separately. Measured on two H200s with an 8B model and 4.5 prompts of 8,000 tokens a second (docs/tuning.md): "
    "99th percentile between two tokens 8.2 ms, unsplit 199.9 ms; median time to the first token 854 ms, unsplit 218."
)
_ON_TIERS = (
    "A tier keeps the KV cache of preempted requests; it is copied back instead of being computed again. It adds no "
    "room for running requests."
)
Line = Table | str


def comparison_lines(comparison: Comparison, decode: RolePlan, rooms: Sequence[MoreRoom]) -> Iterator[Line]:
    """Tables, with sentences under them.

    Args:
        comparison: Comparison of P and D with unsplit servers.
        decode: The plan of D.
        rooms: Changes that give D more room; empty if it has enough.
    """
    if comparison.compared:
        yield from _compared(comparison, decode)
    else:
        yield f"The same GPUs unsplit: {' '.join(comparison.notes)}"
    if rooms:
        yield _rooms(decode, rooms)
        if any(plan.tiers for plan in (decode, *(room.plan for room in rooms))):
            yield _ON_TIERS


def _compared(comparison: Comparison, decode: RolePlan) -> Iterator[Line]:
    one = comparison.compared[0]
    if not one.unsplit.tokens.known:
        yield (
            "The same GPUs unsplit are not compared, because the KV cache of one device is not known. Name "
            "accelerator.products of both roles, or pass --memory."
        )
        return
    yield _table(comparison, decode)
    yield from comparison.notes
    if (better := _unsplit_is_better(one)) is not None:
        yield better
    if not decode.settings.cpu:
        yield _SPLIT_IS_BETTER


def _table(comparison: Comparison, decode: RolePlan) -> Table:
    title = f"the same GPUs unsplit; requests of {decode.settings.max_length:,} tokens"
    table = Table(title=title, title_justify="left")
    table.add_column("", overflow="fold", min_width=len("unsplit: 1 x TP 4"))
    for column in ("GPUs", "weights", "KV tokens", "requests", "tokens a GPU"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in comparison.compared:
        for name, holding in ((_split_name(each), each.split), (_unsplit_name(each), each.unsplit)):
            share = "" if decode.settings.cpu and holding is each.split else count(holding.tokens_for_each_gpu)
            table.add_row(
                name,
                str(holding.gpus),
                gib(holding.weights),
                count(holding.tokens),
                _requests(holding.concurrency),
                share,
            )
    return table


def _split_name(compared: Compared) -> str:
    return f"split: {compared.instances[Role.PARAMETER]} P + {compared.instances[Role.DECODE]} D"


def _unsplit_name(compared: Compared) -> str:
    parts = []
    for servers in compared.servers:
        settings = servers.plan.settings
        layout = f"TP {settings.tensor}" + (f" x DP {settings.data}" if settings.data > 1 else "")
        product = f" on {servers.product}" if len(compared.servers) > 1 and servers.product else ""
        left = f", {servers.idle} GPU{'s' if servers.idle > 1 else ''} left over" if servers.idle else ""
        parts.append(f"{servers.count} x {layout}{product}{left}")
    return f"unsplit: {parts[0]}" if len(parts) == 1 else "\n  ".join(("unsplit:", *parts))


def _unsplit_is_better(compared: Compared) -> str | None:
    split, unsplit = compared.split.tokens.value, compared.unsplit.tokens.value
    if split is None or unsplit is None or unsplit <= split:
        return None
    before, after = compared.split.weights, compared.unsplit.weights
    weights = (
        f", and weights take {gib(after)} instead of {gib(before)}" if (after.value or 0) < (before.value or 0) else ""
    )
    if not split:
        return f"Unsplit is better at KV capacity: D has no room for any token{weights}. It transfers no KV cache."
    return (
        f"Unsplit is better at KV capacity: {unsplit / split:,.1f} times the tokens, because all GPUs hold KV cache of "
        f"running requests{weights}. It transfers no KV cache."
    )


def _rooms(decode: RolePlan, rooms: Sequence[MoreRoom]) -> Table:
    held = instance.requests_for_each_gpu(decode).value or 0
    length = f"{decode.settings.max_length:,} tokens"
    is_small = f"D is small: {held:.2f} requests of {length} for each GPU. More room:"
    title = is_small if fits(decode) is not False else f"D has no room for one request of {length}. More room:"
    table = Table(title=title, title_justify="left")
    table.add_column("change", overflow="fold")
    for column in ("GPUs", "KV tokens", "requests", "CPU tier, tokens"):
        table.add_column(column, justify="right", no_wrap=True)
    for change, plan in (("as it is", decode), *((room.change, room.plan) for room in rooms)):
        tier = plan.tiers.get("cpu")
        table.add_row(
            change, str(instance.devices(plan)), count(instance.tokens(plan)), _requests(instance.concurrency(plan)),
            count(tier) if tier else "",
        )  # fmt: skip
    return table


def _requests(figure: Figure) -> str:
    return "unknown" if figure.value is None else f"{figure.value:,.2f}"
