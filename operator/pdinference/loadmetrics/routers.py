"""Reads router pods: their requests, pods that do not answer, prompts of D, the KV transfer, latencies of streams."""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from pdinference.api.latencies import PREFIX as STREAMS_PREFIX
from pdinference.api.names import (
    METRIC_FALLBACK_AGE_SECONDS,
    METRIC_IDLE_SECONDS,
    METRIC_QUEUED_REQUESTS,
    ROUTER_STATE_PORT,
    PodFault,
    Role,
)
from pdinference.api.v1alpha1.conditions import NOT_ANSWERING
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import Owner
from pdinference.cluster.state.records import PodRecord
from pdinference.loadmetrics.pod_faults import PodFaultExposition, merged
from pdinference.loadmetrics.policies import Policies
from pdinference.loadmetrics.scraping.fetch import Share, fetch
from pdinference.loadmetrics.scraping.rounds import Rounds
from pdinference.loadmetrics.scraping.text_format import name_of, sample
from pdinference.loadmetrics.scraping.unreadable import UnreadableError
from pdinference.loadmetrics.stream_windows import StreamWindows
from pdinference.loadmetrics.transfers import TransferExposition, TransferWindow, transfer_facts
from pdinference.planning.objectives import StreamCounts
from pdinference.planning.router_window import WINDOW_S
from pdinference.planning.scaling.sleep_and_wake import ReportedActivity
from pdinference.planning.transfer_measurements import TransferFacts, outline

INTERVAL_S: Final = 1.0
"""Time between two rounds. A waiting request of a resource with scaleToZero is detected within this time."""
_OTHERS_S: Final = 30.0
"""Time between two readings of the routers of other resources."""
_FAULTY_S: Final = 5.0
"""The same while a router reports pods that do not answer, or pairs of P and D with a fault, so that the status soon
says when they do again."""
_FRESH_S: Final = 10.0
_RECENT_S: Final = 300.0
"""Time for which a prompt that D computed counts as recent."""
_TIMEOUT_S: Final = 3.0
_PREFIX: Final = b"pdinference_router_"
_STREAMS_PREFIX: Final = STREAMS_PREFIX.encode()
_QUEUED: Final = METRIC_QUEUED_REQUESTS.encode()
_IDLE: Final = METRIC_IDLE_SECONDS.encode()
_MARK: Final = f'"{NOT_ANSWERING}"'.encode()
"""In a stored status that says that a pod does not answer."""
_FALLBACK_AGE: Final = METRIC_FALLBACK_AGE_SECONDS.encode()


class _Report(NamedTuple):
    """The state of one pod.

    Attributes:
        at: When it was read.
        activity: Its requests; None if it did not report them.
        fell_back: Whether D has recently computed a prompt in place of P.
        faults: The pods that do not answer.
    """

    at: float
    activity: ReportedActivity | None
    fell_back: bool
    faults: Mapping[str, PodFault]


class _View(NamedTuple):
    """What reconciles of a resource depend on."""

    queued: bool | None
    fell_back: bool | None
    faults: Mapping[str, PodFault]
    transfer: Hashable = None
    streams: Hashable = None


class RouterMonitor:
    """Reads router pods, on each replica of the operator.

    Args:
        on_change: Called with a resource when its waiting requests appear, disappear, or become known or unknown, and
            when D begins or ceases to compute prompts in place of P, when pods cease to answer or answer again, and
            when the KV transfer or the attainment of its objectives changes.
        policies: The objectives of resources. Latencies of other resources are not read.
        interval: Seconds between two rounds.
        port: Port of the routers' state.
        clock: Monotonic clock, in seconds.

    Attributes:
        first_round_done: Set once the router pods have been read of each resource with scaleToZero, and of each whose
            stored status says that a pod does not answer.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        on_change: Callable[[Owner], None],
        interval: float = INTERVAL_S,
        port: int = ROUTER_STATE_PORT,
        clock: Callable[[], float] = time.monotonic,
        policies: Policies | None = None,
    ) -> None:
        self.first_round_done = asyncio.Event()
        self._cache = cache
        self._on_change = on_change
        self._port = port
        self._clock = clock
        self._reports: dict[str, _Report] = {}
        self._transfers: dict[str, TransferWindow] = {}
        self._streams = StreamWindows(policies or Policies(cache), clock)
        self._read_at: dict[tuple[str, bool], float] = {}
        """By uid and whether the pod was ready: one that becomes ready has news, and has to be read again."""
        self._views: dict[Owner, _View] = {}
        self._owners: defaultdict[str, list[Owner]] = defaultdict(list)
        self._sleepers: set[Owner] = set()
        self._rounds = Rounds(self._targets, self._read, after=self._note, interval=interval)

    async def forever(self) -> None:
        """Run rounds until cancelled."""
        await self._rounds.forever()

    async def round(self) -> None:
        """Read each router pod that is due, and report changes."""
        await self._rounds.once()

    def activity(self, owner: Owner) -> ReportedActivity | None:
        """Requests over all router pods of a resource; None if a pod does not report and no other has requests."""
        reported, silent = [], False
        for pod in self._routers(owner):
            last = self._reports.get(pod.uid)
            if last is not None and last.activity is not None and self._clock() - last.at <= _FRESH_S:
                reported.append(last.activity)
            else:
                silent |= not pod.summary.terminating
        held = any(one.held for one in reported)
        if not reported or (silent and not held):
            return None
        return ReportedActivity(held, min(one.idle_seconds for one in reported))

    def fell_back(self, owner: Owner) -> bool | None:
        """Whether D has recently computed prompts in place of P; None if no router pod has reported."""
        known = [report.fell_back for report in self._latest(owner)]
        return any(known) if known else None

    def faults(self, owner: Owner) -> dict[str, PodFault]:
        """The P and D pods that do not answer a router pod, by name; empty if no router pod has reported recently."""
        return merged(report.faults for report in self._latest(owner))

    def _latest(self, owner: Owner) -> list[_Report]:
        """The reports of the router pods, without those that are too old."""
        oldest = self._clock() - _OTHERS_S - _FRESH_S
        reports = (self._reports.get(pod.uid) for pod in self._routers(owner))
        return [report for report in reports if report is not None and report.at >= oldest]

    def transfer(self, owner: Owner) -> TransferFacts | None:
        """What the routers report of the KV transfer; None if no router pod has reported it recently."""
        found = self._windows(owner)
        return _facts(found) if found else None

    def streams(self, owner: Owner) -> StreamCounts | None:
        """The streamed answers of the last minutes; None without objectives, or if no router pod has reported them."""
        return self._streams.counts(self._routers(owner))

    def _windows(self, owner: Owner) -> list[tuple[PodRecord, TransferWindow]]:
        """The router pods that report the KV transfer. The one whose counts are used is first, and stays so."""
        oldest = self._clock() - _OTHERS_S - _FRESH_S
        found = [
            (pod, window)
            for pod in self._routers(owner)
            if (window := self._transfers.get(pod.uid)) is not None and window.latest.at >= oldest
        ]
        return sorted(found, key=lambda one: (one[0].summary.terminating, one[1].since, one[0].uid))

    def _transfer_view(self, owner: Owner) -> Hashable:
        """Changes when the status may have to: with what is reported, and each time a window has passed."""
        found = self._windows(owner)
        if not found:
            return None
        _, window = found[0]
        return outline(_facts(found)), int((self._clock() - window.since) / WINDOW_S)

    def _targets(self) -> Mapping[str, Sequence[PodRecord]]:
        """The router pods to read now, by namespace."""
        owners = {pod.owner for _, pod in self._cache.pods.items() if pod.summary.role is Role.ROUTER}
        routers = {
            owner: pods
            for owner in owners
            if owner is not None and self._cache.resources.get(owner) is not None and (pods := self._routers(owner))
        }
        live = {pod.uid for pods in routers.values() for pod in pods}
        self._reports = {uid: report for uid, report in self._reports.items() if uid in live}
        self._transfers = {uid: window for uid, window in self._transfers.items() if uid in live}
        self._streams.keep(live)
        self._read_at = {key: at for key, at in self._read_at.items() if key[0] in live}
        self._views = {owner: view for owner, view in self._views.items() if owner in routers}
        # The pods show whether a resource has scaleToZero. The stored spec may be invalid and not in effect.
        self._sleepers = {owner for owner, pods in routers.items() if any(pod.scales_to_zero for pod in pods)}
        self._owners = defaultdict(list)
        found: defaultdict[str, list[PodRecord]] = defaultdict(list)
        for owner, pods in routers.items():
            self._owners[owner.namespace].append(owner)
            if due := [pod for pod in pods if owner in self._sleepers or self._is_due(pod)]:
                found[owner.namespace] += due
        self._note_first()
        return found

    def _is_due(self, pod: PodRecord) -> bool:
        last = self._reports.get(pod.uid)
        transfer = self._transfers.get(pod.uid)
        faulty = (last is not None and last.faults) or (transfer is not None and transfer.latest.has_fault)
        pause = _FAULTY_S if faulty else _OTHERS_S
        return self._clock() - self._read_at.get((pod.uid, pod.summary.ready), -math.inf) >= pause

    def _note(self, namespace: str) -> None:
        """Report changes after a round of a namespace."""
        for owner in self._owners.get(namespace, ()):
            found = self.activity(owner) if owner in self._sleepers else None
            view = _View(
                None if found is None else found.held,
                self.fell_back(owner),
                self.faults(owner),
                self._transfer_view(owner),
                self._streams.view(owner, self._routers(owner)),
            )
            if view != self._views.setdefault(owner, _View(None, None, {})):
                self._views[owner] = view
                self._on_change(owner)
        self._note_first()

    def _note_first(self) -> None:
        if not self.first_round_done.is_set() and all(owner in self._views for owner in self._awaited()):
            self.first_round_done.set()

    def _awaited(self) -> Iterator[Owner]:
        """The resources whose next status would be wrong before their router pods are read."""
        yield from self._sleepers
        for owner in chain.from_iterable(self._owners.values()):
            record = self._cache.resources.get(owner)
            if record is not None and _MARK in record.status:
                yield owner

    def _routers(self, owner: Owner) -> list[PodRecord]:
        return [
            pod for pod in self._cache.pods.owned_by(owner) if pod.summary.role is Role.ROUTER and not pod.summary.gone
        ]

    async def _read(self, pod: PodRecord, share: Share) -> None:
        if not pod.address:
            return
        self._read_at[pod.uid, pod.summary.ready] = self._clock()
        values: dict[bytes, float] = {}
        transfer, faults = TransferExposition(), PodFaultExposition()
        streams = self._streams.exposition(pod)

        def take(line: bytes) -> None:
            transfer.take(line)
            faults.take(line)
            if streams is not None:
                streams.take(line)
            if name_of(line) in {_QUEUED, _IDLE, _FALLBACK_AGE}:
                found = sample(line)
                values[found.name] = found.value

        try:
            prefix = _PREFIX if streams is None else (_PREFIX, _STREAMS_PREFIX)
            await fetch(pod.address, self._port, take, prefix=prefix, share=share, seconds=_TIMEOUT_S)
        except UnreadableError:
            return
        self._note_transfer(pod, transfer)
        if streams is not None:
            self._streams.note(pod, streams)
        queued, idle = values.get(_QUEUED, math.nan), values.get(_IDLE, math.nan)
        activity = None if math.isnan(queued) or math.isnan(idle) else ReportedActivity(queued > 0, idle)
        fell_back = values.get(_FALLBACK_AGE, math.inf) <= _RECENT_S  # infinity is read as NaN
        if _FALLBACK_AGE in values or activity is not None:
            self._reports[pod.uid] = _Report(self._clock(), activity, fell_back, faults.found)

    def _note_transfer(self, pod: PodRecord, exposition: TransferExposition) -> None:
        reading = exposition.reading(self._clock(), pod.summary.revision)
        window = self._transfers.get(pod.uid)
        if reading is None:
            self._transfers.pop(pod.uid, None)
        elif window is None:
            self._transfers[pod.uid] = TransferWindow(reading)
        else:
            window.add(reading)


def _facts(found: Sequence[tuple[PodRecord, TransferWindow]]) -> TransferFacts:
    (pod, window), *others = found
    return transfer_facts(pod.summary.revision, window, (other for _, other in others))
