"""Gauges of a resource with objectives or autoscaling: attainment, use of its roles, cost."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from pdinference.planning.objectives import StatedObjectives, StreamCounts, attainments
from pdinference.planning.scaling.gauges import LABEL_ROLE
from pdinference.planning.utilization import Utilization

_ATTAINMENT: Final = "pdinference_objective_attainment_ratio"
_BUSY: Final = "pdinference_role_busy_ratio"
_TOKENS: Final = "pdinference_role_tokens_per_second_per_gpu"
_COST: Final = "pdinference_cost_per_million_tokens"
HELP: Final = {
    _ATTAINMENT: "Share of the streamed answers of the last 5 minutes that kept an objective.",
    _BUSY: "Share of a role's capacity that was in use in the last 5 to 10 minutes.",
    _TOKENS: "P: prompt tokens, D: generated tokens; a second and GPU, in the last 5 to 10 minutes.",
    _COST: "Cost of a million tokens of prompts and answers of the last hour, in the unit of the chart value prices.",
}
"""The gauges, and what they are."""


class GaugeSample(NamedTuple):
    """One sample of a resource: metric, label beside those of the resource, value."""

    metric: str
    label: tuple[str, str] | None
    value: float


def objective_samples(
    stated: StatedObjectives | None, counts: StreamCounts | None, use: Utilization
) -> Iterator[GaugeSample]:
    """The samples of one resource, without those of unknown values."""
    if stated is not None and counts is not None:
        for kind, found in attainments(stated, counts).items():
            yield GaugeSample(_ATTAINMENT, ("objective", kind), max(0.0, found.kept))
    for role, one in use.roles.items():
        if one.busy is not None:
            yield GaugeSample(_BUSY, (LABEL_ROLE, role), one.busy)
        if one.tokens_per_gpu is not None:
            yield GaugeSample(_TOKENS, (LABEL_ROLE, role), one.tokens_per_gpu)
    if use.cost_per_million is not None:
        yield GaugeSample(_COST, None, use.cost_per_million)
