"""`spec.objectives`: latencies that requests should keep.

Tests: tests/api/test_crd.py
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, Rule
from pdinference.api.v1alpha1.durations import Duration, milliseconds


def _within(field: str, least: str, most: str) -> Rule:
    """A rule for the range in which the router's histograms are fine (`api.latencies`)."""
    return Rule(
        cel=f"!has(self.{field}) || duration(self.{field}) >= duration('{least}') "
        f"&& duration(self.{field}) <= duration('{most}')",
        holds=lambda o: (
            getattr(o, field) is None or milliseconds(least) <= milliseconds(getattr(o, field)) <= milliseconds(most)
        ),
        field=field,
        message=f"Use {least} to {most}.",
    )


class Objectives(ApiModel):
    """Latencies that streamed answers should keep. Reported, and used by `router.disaggregation`."""

    ttft: Duration | None = None
    """Time to first token, for example 500ms."""
    tpot: Duration | None = None
    """Mean time per output token after the first, for example 30ms."""
    percentile: Annotated[float, Field(ge=50, le=99.9)] = 99
    """Share of the requests, in percent, that should keep each of them."""

    @property
    def seconds(self) -> Mapping[str, float]:
        """The stated ones of `ttft` and `tpot`."""
        limits = {"ttft": self.ttft, "tpot": self.tpot}
        return {name: milliseconds(limit) / 1000 for name, limit in limits.items() if limit is not None}

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.ttft) || has(self.tpot)",
            holds=lambda o: o.ttft is not None or o.tpot is not None,
            message="Set ttft, tpot or both.",
        ),
        _within("ttft", "10ms", "100s"),
        _within("tpot", "1ms", "1s"),
    )
