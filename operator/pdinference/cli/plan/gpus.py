"""Table of a role's plans on common GPUs.

Tests: tests/cli/test_plan_comparison.py
"""

from collections.abc import Sequence

from rich.table import Table

from pdinference.cli.plan.figures import count, gib
from pdinference.memory.comparison.common_gpus import GPUPlan

_FITS = {True: "yes", False: "no", None: "unknown"}


def gpu_table(plans: Sequence[GPUPlan]) -> Table:
    """One row for each GPU."""
    length = plans[0].plan.settings.max_length
    fits = f'; "fits": one request of {length:,} tokens has room' if length else ""
    table = Table(title=f"no product is named: one device of common GPUs{fits}", title_justify="left")
    table.add_column("product", no_wrap=True)
    table.add_column("fits")
    for column in ("memory", "weights", "KV cache", "KV tokens", "concurrency"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in plans:
        plan = each.plan
        sizes = (gib(plan.memory), gib(plan.stage.weights), gib(plan.stage.kv_cache))
        table.add_row(each.product, _FITS[each.fits], *sizes, count(plan.tokens), count(plan.concurrency, "x"))
    return table
