"""A role on common GPUs as a table."""

from collections.abc import Iterable

from rich.table import Table

from pdinference.cli.figures import count, gib
from pdinference.planning.memory import GPUPlan

_FITS = {True: "yes", False: "no", None: "unknown"}


def gpu_table(plans: Iterable[GPUPlan]) -> Table:
    """One row for each GPU; it fits when one request of the longest length has room."""
    table = Table(title="on common GPUs (no product is named): one device of each", title_justify="left")
    table.add_column("product", no_wrap=True)
    table.add_column("fits")
    for column in ("memory", "weights", "KV cache", "KV tokens", "concurrency"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in plans:
        plan = each.plan
        sizes = (gib(plan.memory), gib(plan.stage.weights), gib(plan.stage.kv_cache))
        table.add_row(each.product, _FITS[each.fits], *sizes, count(plan.tokens), count(plan.concurrency, "x"))
    return table
