"""One instance of a role, all its devices together; a plan describes one of them.

Tests: tests/checks/test_decode_room.py, tests/memory/comparison/test_unsplit.py
"""

from pdinference.memory.figures import Figure, derived, unknown
from pdinference.memory.plan import NO_LENGTH, RolePlan

FEW_REQUESTS = 2
"""Requests of the longest length for each GPU of D, below which D counts as small."""


def devices(plan: RolePlan) -> int:
    """Devices of an instance; on CPU, its processes."""
    return plan.settings.tensor * plan.settings.stages * plan.settings.data


def weights(plan: RolePlan) -> Figure:
    """Bytes of weights on all devices."""
    ranks = plan.settings.tensor * plan.settings.data
    note = f"Of all {devices(plan)} devices."
    return derived(lambda *parts: ranks * sum(parts), note, *(stage.weights for stage in plan.stages))


def tokens(plan: RolePlan) -> Figure:
    """Tokens in the KV cache: each data-parallel copy of the model has its own."""
    return _of_all_copies(plan, plan.tokens)


def concurrency(plan: RolePlan) -> Figure:
    """Requests of the longest length at once."""
    return _of_all_copies(plan, plan.concurrency)


def requests_for_each_gpu(plan: RolePlan) -> Figure:
    """Requests of the longest length that the KV cache holds, divided by the number of devices."""
    if not plan.settings.max_length:
        return unknown(NO_LENGTH)
    share = devices(plan) * plan.settings.max_length
    note = f"KV tokens / {devices(plan)} devices / {plan.settings.max_length:,} tokens."
    return derived(lambda held: held / share, note, tokens(plan))


def is_small(plan: RolePlan) -> bool | None:
    """Whether an instance on GPUs holds fewer than two requests of the longest length for each GPU; None: not known."""
    held = requests_for_each_gpu(plan).value
    return None if plan.settings.cpu or held is None else held < FEW_REQUESTS


def _of_all_copies(plan: RolePlan, each: Figure) -> Figure:
    copies = plan.settings.data
    if copies == 1:
        return each
    return derived(lambda value: round(copies * value, 2), f"{copies} data-parallel copies; each: {each.note}", each)
