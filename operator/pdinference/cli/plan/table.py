"""Prints a memory plan as tables and bars.

Tests: tests/cli/test_plan.py, tests/cli/test_plan_comparison.py, tests/cli/test_narrow.py
"""

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.cli.narrow import fitted
from pdinference.cli.plan.answer import PlanAnswer
from pdinference.cli.plan.comparison import comparison_lines
from pdinference.cli.plan.figures import GIB, count, gib
from pdinference.cli.plan.gpus import gpu_table
from pdinference.cli.plan.moved import moved_lines
from pdinference.memory import Inputs, RolePlan, fits, instance, least_memory, one_request, what_if
from pdinference.planning.condition_changes import ROLE_WORDS

_BAR = 64
_LEGEND = 3
"""Parts in the first of two lines of the bar's legend, so that it fits a terminal of 80 columns."""
_TITLES = {Role.PARAMETER: "P (parameter, prefill)", Role.DECODE: "D (decode)"}


def print_plan(answer: PlanAnswer, console: Console) -> None:
    """Print the plan of a resource."""
    metadata = answer.resource.metadata
    console.print(f"[bold]{metadata.namespace}/{metadata.name}[/bold]", markup=True)
    for role, plan in answer.plans.items():
        console.print(_indented(_summary(role, plan, gpus_compared=bool(answer.common_gpus[role]))))
    for role, plan in answer.plans.items():
        console.print()
        for part in _role(role, plan, answer):
            console.print(_fitted(part, console))
    decode = answer.plans[Role.DECODE]
    parts_after = (
        moved_lines(answer.moved, decode.settings.max_length),
        comparison_lines(answer.comparison, decode, answer.rooms),
    )
    for lines in filter(None, map(list, parts_after)):
        console.print()
        for part in lines:
            console.print(_indented(part) if isinstance(part, str) else _fitted(part, console))


def _summary(role: Role, plan: RolePlan, *, gpus_compared: bool) -> str:
    """Whether a role fits, in a line."""
    name, length = ROLE_WORDS[role], plan.settings.max_length
    fit = fits(plan)
    if fit is None or length is None:
        why = "no product is named; the table below has common GPUs" if gpus_compared else "the reasons are below"
        return f"{name}: it is not known whether the model fits: {why}."
    if not fit:
        return f"{name}: the model does not fit: one request of {length:,} tokens needs more memory than there is."
    room = instance.concurrency(plan).value or 0
    return f"{name}: the model fits, with room for {room:,.2f} requests of {length:,} tokens in each instance."


def _fitted(part: RenderableType, console: Console) -> RenderableType:
    return fitted(part, console) if isinstance(part, Table) else part


def _role(role: Role, plan: RolePlan, answer: PlanAnswer) -> Iterator[RenderableType]:
    gpus = answer.common_gpus[role]
    yield _table(role, plan, _products_of_p(answer.inputs.spec, role), without_unknown=bool(gpus))
    if len(plan.stages) > 1:
        yield _stages(plan)
    if gpus:
        yield gpu_table(gpus)
        return
    if (bar := _bar(plan)) is not None:
        yield bar
    yield from map(_indented, _answers(plan))
    yield ""
    yield _what_if(answer.inputs, role, plan)


def _indented(line: str) -> Padding:
    return Padding(Text(line), (0, 0, 0, 2))


def _products_of_p(spec: Spec, role: Role) -> str:
    """A note if D uses the products of P."""
    taken = role is Role.DECODE and spec.of(role).accelerator.products and not spec.decode.accelerator.products
    return ", on P's products" if taken else ""


def _table(role: Role, plan: RolePlan, whose: str, *, without_unknown: bool) -> Table:
    settings = plan.settings
    layout = f"tensor {settings.tensor} x pipeline {settings.stages} x data {settings.data}"
    title = f"{_TITLES[role]}: one device of {layout}{whose}"
    table = Table(title=title, title_justify="left", expand=False)
    table.add_column("", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("source", no_wrap=True)
    table.add_column("note", overflow="fold")
    stage = plan.stage
    said: dict[str, str] = {}
    for name, figure, text in (
        ("device memory", plan.memory, gib(plan.memory)),
        ("vLLM may take", stage.requested, gib(stage.requested)),
        ("weights", stage.weights, gib(stage.weights)),
        ("activations", stage.activations, gib(stage.activations)),
        ("overhead", stage.overhead, gib(stage.overhead)),
        ("KV cache", stage.kv_cache, gib(stage.kv_cache)),
        ("KV per token", stage.kv_bytes_per_token, count(stage.kv_bytes_per_token, " B")),
        ("KV blocks", plan.blocks, count(plan.blocks)),
        ("KV tokens", plan.tokens, count(plan.tokens)),
        ("KV tokens, at least", plan.fewest_tokens, count(plan.fewest_tokens)),
        ("concurrency", plan.concurrency, count(plan.concurrency, "x")),
        ("largest length", plan.largest_length, count(plan.largest_length)),
        *((f"tokens in tier {name}", tokens, count(tokens)) for name, tokens in plan.tiers.items()),
    ):
        # A missing input affects several figures, so each note is printed once.
        known = said.setdefault(figure.note, name)
        if without_unknown and not figure.known and known != name:
            continue
        table.add_row(name, text, figure.source.value, figure.note if known == name else f"See {known}.")
    return table


def _stages(plan: RolePlan) -> Table:
    table = Table(title="pipeline stages", title_justify="left")
    for column in ("stage", "layers", "weights", "KV cache", "KV per token", "blocks"):
        table.add_column(column, justify="right", no_wrap=True)
    for index, stage in enumerate(plan.stages):
        mark = " (limits)" if index == plan.worst else ""
        sizes = (gib(stage.weights), gib(stage.kv_cache), count(stage.kv_bytes_per_token, " B"))
        table.add_row(f"{index}{mark}", str(stage.layers), *sizes, count(stage.blocks))
    return table


def _bar(plan: RolePlan) -> Text | None:
    """The memory of a device as a bar; None if a part is unknown or there is no device."""
    stage = plan.stage
    parts = (stage.weights, stage.activations, stage.overhead, stage.kv_cache)
    total = plan.memory.value
    if total is None or any(part.value is None or part.value < 0 for part in parts) or plan.settings.cpu:
        return None
    sizes = [part.value or 0 for part in parts]
    sizes.append(max(0.0, total - sum(sizes)))
    text = Text("  |")
    legend = []
    for mark, name, size in zip("#aoK.", ("weights", "activations", "overhead", "KV cache", "not taken"), sizes,
                                strict=True):  # fmt: skip
        text.append(mark * (max(1, round(_BAR * size / total)) if size else 0))
        legend.append(f"{mark} {name} {size / GIB:.1f}")
    text.append(f"|\n   GiB: {'   '.join(legend[:_LEGEND])}\n        {'   '.join(legend[_LEGEND:])}")
    return text


def _answers(plan: RolePlan) -> Iterator[str]:
    stage, length = plan.stage, plan.settings.max_length
    weights, taken = stage.weights.value, stage.requested.value
    least, request = least_memory(plan).value, one_request(plan).value
    if weights and taken and least is not None and request is not None and not plan.settings.cpu:
        what = "a model" if instance.devices(plan) == 1 else "one device's share"
        why = (
            f"Why does {what} of {weights / GIB:.1f} GiB use {taken / GIB:.1f} GiB? vLLM takes "
            f"{plan.settings.utilization:.0%} of the device, whatever the model needs, and makes KV cache of all that "
            f"weights, activations and overhead leave. For one request of {length:,} tokens, {least / GIB:.1f} GiB "
            f"would do, {request / GIB:.2f} GiB of it KV cache."
        )
        too_large = (
            f"One request of {length:,} tokens needs {least / GIB:.1f} GiB, {request / GIB:.2f} GiB of it KV cache. "
            f"vLLM may take {taken / GIB:.1f} GiB, {plan.settings.utilization:.0%} of the device."
        )
        yield why if least <= taken else too_large
    if plan.concurrency.value is not None:
        yield f"How many requests of {length:,} tokens fit? {plan.concurrency.value:,.2f}, shorter ones in proportion."
    if plan.largest_length.value is not None:
        yield f"What is the largest length? {plan.largest_length.value:,.0f} tokens for one request alone."
    if plan.concurrency.value is not None and plan.concurrency.value < 1:
        yield (
            "So the model does not fit. With config.json in spec.model.architecture.config, `pdinference validate` "
            "names changes that are sufficient."
        )


def _what_if(inputs: Inputs, role: Role, plan: RolePlan) -> Table:
    table = Table(title="what if", title_justify="left")
    for column in ("change", "weights", "KV cache", "KV tokens", "concurrency", "largest length"):
        table.add_column(column, justify="left" if column == "change" else "right", no_wrap=column != "change")
    rows = [("as it is", plan), *((option.change, option.plan) for option in what_if(inputs, role, plan))]
    for change, other in rows:
        table.add_row(
            change, gib(other.stage.weights), gib(other.stage.kv_cache), count(other.tokens),
            count(other.concurrency, "x"), count(other.largest_length),
        )  # fmt: skip
    return table
