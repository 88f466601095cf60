"""Latencies that requests should keep, as options say them: `500ms` and `chat:ttft=300ms,tpot=20ms`.

Tests: tests/advise/advice/test_options.py, tests/advise/commands/advise/test_advise.py
"""

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from pdinference.api.words import cut
from pdinference.planning import objectives as planned
from pdinference_advise.advice.problem import AdviceError

_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(us|ms|s)", re.ASCII)
_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_MOST_KINDS: Final = 16
DEFAULT_PERCENTILE: Final = 99.0


@dataclass(frozen=True, slots=True)
class Objective:
    """What one request should keep.

    Attributes:
        ttft: Most seconds to the first token; infinite without.
        tpot: Most seconds per output token after the first, as a mean of the answer; infinite without.
    """

    ttft: float = math.inf
    tpot: float = math.inf

    @property
    def given(self) -> bool:
        """Whether anything is asked for."""
        return min(self.ttft, self.tpot) < math.inf

    def __str__(self) -> str:
        parts = (("TTFT", self.ttft), ("TPOT", self.tpot))
        return ", ".join(f"{name} {1000 * value:g} ms" for name, value in parts if value < math.inf)


@dataclass(frozen=True, slots=True)
class RequestObjectives:
    """What all requests should keep.

    Attributes:
        percentile: Percent of the requests of a class that should keep each of the two.
        default: Of classes without an objective of their own.
        of_kind: By class.
    """

    percentile: float
    default: Objective
    of_kind: tuple[tuple[str, Objective], ...] = ()

    @property
    def tail(self) -> str:
        """The name of the percentile."""
        return f"p{self.percentile:g}"

    @property
    def given(self) -> bool:
        """Whether anything is asked for."""
        return self.default.given or any(objective.given for _, objective in self.of_kind)

    def of(self, kind: str) -> Objective:
        """The objective of a class."""
        return dict(self.of_kind).get(kind, self.default)

    def __str__(self) -> str:
        each = [str(self.default)] if self.default.given else []
        each += [f"{kind}: {objective}" for kind, objective in self.of_kind]
        return f"{'; '.join(each)} for {self.percentile:g} % of requests"


def objectives_of(stated: planned.StatedObjectives) -> RequestObjectives:
    """Those of a resource."""
    ttft, tpot = (math.inf if limit is None else limit for limit in (stated.ttft, stated.tpot))
    return RequestObjectives(stated.percentile, Objective(ttft, tpot))


def parse_objectives(
    ttft: str | None, tpot: str | None, percentile: float, of_kinds: Iterable[str], kinds: Collection[str]
) -> RequestObjectives:
    """Read the options.

    Args:
        ttft: --ttft.
        tpot: --tpot.
        percentile: --percentile.
        of_kinds: --objective, for classes.
        kinds: The classes that the workload has.

    Raises:
        AdviceError: One is not of its form, or about a class that the workload does not have.
    """
    default = Objective(
        math.inf if ttft is None else duration(ttft, "--ttft"), math.inf if tpot is None else duration(tpot, "--tpot")
    )
    found: dict[str, Objective] = {}
    for text in of_kinds:
        kind, objective = _of_kind(text, default)
        if kind not in kinds:
            there = f"It has {', '.join(sorted(kinds))}." if kinds else "It has none; --class makes them."
            raise AdviceError(f"--objective: the workload has no class {cut(kind, 40)}. {there}")
        if kind in found or len(found) >= _MOST_KINDS:
            raise AdviceError(f"--objective: {cut(kind, 40)} is there twice, or one class too many.")
        found[kind] = objective
    return RequestObjectives(percentile, default, tuple(found.items()))


def duration(text: str, where: str) -> float:
    """Seconds.

    Raises:
        AdviceError: The text is no duration.
    """
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0 < seconds <= 3600:
        raise AdviceError(f'{where}: "{cut(text, 40)}" is no duration up to an hour. Write for example 500ms or 1.5s.')
    return seconds


def _of_kind(text: str, default: Objective) -> tuple[str, Objective]:
    kind, _, parts = text.partition(":")
    given: dict[str, float] = {}
    for part in parts.split(","):
        name, _, value = part.strip().partition("=")
        if name not in {"ttft", "tpot"} or name in given:
            raise AdviceError(
                f'--objective: "{cut(text, 60)}" is no objective of a class. Write CLASS:ttft=300ms,tpot=20ms.'
            )
        given[name] = duration(value, f"--objective {cut(kind, 40)}, {name}")
    return kind.strip(), Objective(given.get("ttft", default.ttft), given.get("tpot", default.tpot))
