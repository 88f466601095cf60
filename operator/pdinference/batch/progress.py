"""Reads the counts of batch runners from their metrics, so that runners need no permissions on the API server.

This runs beside the reconciles, so a slow runner delays no worker.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pdinference.api.names import BATCH_KIND, METRIC_BATCH_REQUESTS, RUNNER_METRICS_PORT
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import Owner
from pdinference.cluster.state.records import PodRecord
from pdinference.loadmetrics.scraping.fetch import Share, fetch
from pdinference.loadmetrics.scraping.rounds import Rounds
from pdinference.loadmetrics.scraping.text_format import name_of, sample
from pdinference.loadmetrics.scraping.unreadable import UnreadableError
from pdinference.planning.batch import Progress

INTERVAL_S: Final = 5.0
_TIMEOUT_S: Final = 2.0
_METRIC: Final = METRIC_BATCH_REQUESTS.encode()
_STATES: Final = tuple(name.encode() for name in Progress._fields)


async def read_progress(address: str, port: int = RUNNER_METRICS_PORT, *, share: Share) -> Progress | None:
    """The counts of the runner at this address; None if it does not report them."""
    counts = dict.fromkeys(_STATES, math.nan)

    def take(line: bytes) -> None:
        if name_of(line) == _METRIC:
            found = sample(line)
            if (state := found.labels.get(b"state", b"")) in counts:
                counts[state] = found.value

    try:
        await fetch(address, port, take, prefix=_METRIC, share=share, seconds=_TIMEOUT_S)
    except UnreadableError:
        return None
    if any(math.isnan(count) for count in counts.values()):
        return None
    return Progress(*(int(counts[state]) for state in _STATES))


class BatchProgress:
    """The last counts of each running runner.

    Args:
        on_change: Called with each batch whose counts changed.
        interval: Seconds between two rounds.
        port: Port of the runners' metrics.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        on_change: Callable[[Owner], None],
        interval: float = INTERVAL_S,
        port: int = RUNNER_METRICS_PORT,
    ) -> None:
        self._cache = cache
        self._on_change = on_change
        self._port = port
        self._rounds = Rounds(self._targets, self._read, interval=interval)
        self._seen: dict[str, Progress] = {}

    async def forever(self) -> None:
        """Read at intervals, without end."""
        await self._rounds.forever()

    async def round(self) -> None:
        """Read every runner once."""
        await self._rounds.once()

    def counts(self, uid: str) -> Progress | None:
        """The counts of a runner, by the uid of its pod; None before they were read."""
        return self._seen.get(uid)

    def _targets(self) -> Mapping[str, Sequence[PodRecord]]:
        found: defaultdict[str, list[PodRecord]] = defaultdict(list)
        for pod in [pod for _, pod in self._cache.pods.items() if _runs(pod)]:
            found[pod.namespace].append(pod)
        live = {pod.uid for pods in found.values() for pod in pods}
        self._seen = {uid: seen for uid, seen in self._seen.items() if uid in live}
        return found

    async def _read(self, pod: PodRecord, share: Share) -> None:
        progress = await read_progress(pod.address, self._port, share=share)
        if progress is None or pod.owner is None:
            return
        changed = progress != self.counts(pod.uid)
        self._seen[pod.uid] = progress
        if changed:
            self._on_change(pod.owner)


def _runs(pod: PodRecord) -> bool:
    """Whether it is the running runner of a batch."""
    batch = pod.owner is not None and pod.owner.kind == BATCH_KIND
    return batch and bool(pod.address) and pod.summary.phase == "Running" and not pod.summary.terminating
