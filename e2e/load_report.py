"""What became of the requests of a load: those that began count, not only those that ended."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class Report:
    """All requests of a load.

    Attributes:
        began: Number of requests that were sent.
        ended: When each of those that ended did, in seconds on the client's clock.
        open: Requests that neither ended nor failed.
        failures: What the failed ones said, those past the deadline included.
        outcomes: Number of requests that ended, by how they ended (`load_client.Result`).
        texts: Digest of the generated text of each request that was answered.
        prefilled_by_decode: Requests whose prompt D computed.
        longest_gap: The most seconds without an end of any request, between the first beginning and the last end.
        overtaken: Requests that began after an open one and have ended; of that open one for which these are the most.
    """

    began: int = 0
    ended: list[float] = field(default_factory=list)
    open: frozenset[str] = frozenset()
    failures: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    texts: Mapping[str, str] = field(default_factory=dict)
    prefilled_by_decode: int = 0
    longest_gap: float = 0.0
    overtaken: int = 0

    @property
    def answered(self) -> int:
        """Number of requests that were answered whole and in time."""
        return len(self.ended) - len(self.failures)


def report(lines: Iterable[dict[str, Any]]) -> Report:
    """Read the lines of `load_client.py`."""
    found = list(lines)
    began = [line for line in found if line["event"] == "began"]
    ended = [line for line in found if line["event"] == "ended"]
    open_at = {line["request"]: line["at"] for line in began}
    for line in ended:
        open_at.pop(line["request"], None)
    starts = [line["at"] - line["seconds"] for line in ended]
    moments = sorted([min((line["at"] for line in found), default=0.0), *(line["at"] for line in ended)])
    return Report(
        began=len(began),
        ended=[line["at"] for line in ended],
        open=frozenset(open_at),
        failures=[
            f"{line['request']} after {line['seconds']:.1f} s: {line['error']}" for line in ended if line["error"]
        ],
        outcomes=Counter[str](line["outcome"] for line in ended),
        texts={line["request"]: line["text"] for line in ended if not line["error"]},
        prefilled_by_decode=sum(line["prefill"] == "decode" for line in ended),
        longest_gap=max((after - before for before, after in pairwise(moments)), default=0.0),
        overtaken=max((sum(start > at for start in starts) for at in open_at.values()), default=0),
    )
