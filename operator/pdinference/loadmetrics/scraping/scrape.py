"""Scrapes vLLM pods: those of autoscaled resources continuously, others once for the size of their KV cache.

Pods of resources with objectives are scraped every 30 s at least. Each engine of a pod that has several (the path
HostLocal) is a pod here.

Tests: tests/loadmetrics/test_scrape.py
"""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Final

from pdinference.api.names import ENGINE_PORT, ENGINE_ROLES, Role
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import Owner
from pdinference.cluster.state.records import PodRecord
from pdinference.loadmetrics.baselines import Baselines
from pdinference.loadmetrics.metrics import ScrapeMetrics
from pdinference.loadmetrics.policies import Policies, scaler_of
from pdinference.loadmetrics.scraping.exposition import PREFIX, Exposition
from pdinference.loadmetrics.scraping.fetch import Share, fetch
from pdinference.loadmetrics.scraping.rounds import Rounds
from pdinference.loadmetrics.scraping.sparse_log import SparseLog
from pdinference.loadmetrics.scraping.unreadable import COSTLY, Reason, UnreadableError
from pdinference.loadmetrics.scraping.window import SILENT_AFTER, TimedReading, Window
from pdinference.loadmetrics.signals import PodLoad, misses_signals
from pdinference.loadmetrics.usage import UsageMeter
from pdinference.memory.observed import KvCache
from pdinference.planning.observed import PodSummary
from pdinference.planning.scale_target import ScalerState
from pdinference.planning.scaling.signals import Signal

_LOG = logging.getLogger(__name__)

INTERVAL_S: Final = 5.0
_ROUNDS_OF_OTHERS: Final = 12
"""Interval, in rounds, for pods without autoscaling, until the size of their KV cache is known."""
_ROUNDS_OF_MEASURED: Final = 6
"""Interval, in rounds, for pods of resources with objectives and without autoscaling."""
_TIMEOUT_S: Final = 4.0
_REST_ROUNDS: Final = 6
"""Interval, in rounds, for silent pods whose failures are costly."""

_PodName = tuple[str, str, str]
"""Namespace, pod, and engine in a pod with several."""


class Scraper:
    """Keeps a window of readings for each pod.

    Args:
        on_change: Called with a resource when its pods become silent or respond again, or when a KV cache size or a
            better baseline is known.
        interval: Seconds between two rounds.
        port: Port of vLLM.
        clock: Monotonic clock, in seconds.

    Attributes:
        usage: How much of the roles was in use.
    """

    def __init__(
        self,
        cache: Cache,
        policies: Policies,
        metrics: ScrapeMetrics,
        *,
        on_change: Callable[[Owner], None],
        interval: float = INTERVAL_S,
        port: int = ENGINE_PORT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache = cache
        self._policies = policies
        self._metrics = metrics
        self._on_change = on_change
        self._interval = interval
        self._port = port
        self._clock = clock
        self._windows: defaultdict[_PodName, Window] = defaultdict(Window)
        self._containers: dict[_PodName, tuple[str, int]] = {}
        self._caches: dict[_PodName, KvCache] = {}
        self._baselines = Baselines()
        self.usage = UsageMeter(clock)
        self._missing_signals: set[_PodName] = set()
        self._resting: dict[_PodName, float] = {}
        self._log = SparseLog(_LOG, clock=clock)
        self._number = 0

    async def forever(self) -> None:
        """Run rounds until cancelled."""
        await Rounds(self._next, self._scrape, interval=self._interval).forever()

    async def round(self, *, others: bool) -> None:
        """Scrape each pod once.

        Args:
            others: Whether to include pods without autoscaling.
        """
        await Rounds(
            lambda: self._by_namespace(others=others, measured=others), self._scrape, interval=self._interval
        ).once()

    def _next(self) -> Mapping[str, Sequence[PodRecord]]:
        others, measured = (self._number % rounds == 0 for rounds in (_ROUNDS_OF_OTHERS, _ROUNDS_OF_MEASURED))
        self._number += 1
        return self._by_namespace(others=others, measured=measured)

    def _by_namespace(self, *, others: bool, measured: bool) -> Mapping[str, Sequence[PodRecord]]:
        """The pods to scrape now. Updates the gauge of silent pods."""
        self._forget_deleted_pods()
        self._note_gpus()
        now, silent = self._clock(), 0
        found: defaultdict[str, list[PodRecord]] = defaultdict(list)
        for pod, scaled in self._scrape_targets(others=others, measured=measured):
            silent += scaled and self._is_silent(pod)
            if pod.address and self._resting.get(_name_of(pod), 0.0) <= now:
                found[pod.namespace].append(pod)
        self._metrics.silent.set(silent)
        return found

    def pods(self, owner: Owner, role: Role) -> list[PodLoad]:
        """The pods of a role that are not terminating."""
        scaler = scaler_of(self._cache, owner, role)
        found = []
        for pod in self._engine_pods(owner, role):
            window = self._windows[_name_of(pod)]
            summary = pod.summary
            expected = pod.serves or window.answered or summary.restarts > 0
            found.append(PodLoad(window, expected=expected, counted=_is_counted(scaler, summary), serves=pod.serves))
        return found

    def engines_in_a_pod(self, owner: Owner, role: Role) -> int:
        """Number of engines of a role in each pod that an autoscaler counts. Pods of another revision may have more."""
        scaler = scaler_of(self._cache, owner, role)
        pods = [pod.summary for pod in self._engine_pods(owner, role)]
        return max(Counter(pod.name for pod in pods if _is_counted(scaler, pod)).values(), default=1)

    def silent(self, owner: Owner) -> dict[Role, tuple[str, ...]]:
        """Names of ready pods that do not report the metrics of their role's autoscaler, by role."""
        return {
            role: tuple(
                sorted({pod.summary.name for pod in self._engine_pods(owner, role) if self._is_silently_ready(pod)})
            )
            for role in ENGINE_ROLES
        }

    def _is_silently_ready(self, pod: PodRecord) -> bool:
        return pod.summary.ready and self._is_silent(pod)

    def _is_silent(self, pod: PodRecord) -> bool:
        return self._windows[_name_of(pod)].silent or _name_of(pod) in self._missing_signals

    def unread(self, owner: Owner) -> frozenset[Role]:
        """Autoscaled roles with serving pods that have an address, all of which are being read for the first time."""
        policy = self._policies.policy(owner)
        return frozenset(role for role in ENGINE_ROLES if policy.get(role) and self._is_unread(owner, role))

    def _is_unread(self, owner: Owner, role: Role) -> bool:
        pods = (pod for pod in self._engine_pods(owner, role) if pod.serves and pod.address)
        windows = [self._windows[_name_of(pod)] for pod in pods]
        return bool(windows) and not any(self._is_settled(window) for window in windows)

    def _is_settled(self, window: Window) -> bool:
        """Whether a pod has been read often enough for rates, or in vain for some time."""
        return window.silent or window.span(self._clock()) is not None

    def kv_caches(self, owner: Owner, role: Role) -> dict[str, KvCache]:
        """The known KV caches of a role's pods, by pod name. Engines of one pod are alike."""
        return {
            pod.summary.name: cache
            for pod in self._engine_pods(owner, role)
            if (cache := self._caches.get(_name_of(pod))) is not None
        }

    def idle_token_seconds(self, owner: Owner) -> float | None:
        """The baseline inter-token latency over the existing revisions of D, in seconds."""
        revisions = (pod.summary.revision for pod in self._engine_pods(owner, Role.DECODE))
        return self._baselines.shortest(owner, revisions, scaler_of(self._cache, owner, Role.DECODE))

    def baselines(self, owner: Owner) -> dict[str, float]:
        """The baseline inter-token latency of each revision of D, in seconds; empty if decode load has no target."""
        policy = self._policies.policy(owner).get(Role.DECODE, {})
        return self._baselines.of_resource(owner) if Signal.DECODE_LOAD in policy else {}

    def _engine_pods(self, owner: Owner, role: Role) -> Iterator[PodRecord]:
        for pod in _engines(self._cache.pods.owned_by(owner)):
            summary = pod.summary
            if summary.role is role and _reports_load(summary):
                yield pod

    def _note_gpus(self) -> None:
        """Note the GPUs that the pods of measured resources hold, whether they respond or not."""
        owners = self._policies.measured()
        self.usage.keep(set(owners))
        for owner in owners:
            held = dict.fromkeys(ENGINE_ROLES, 0)
            for pod in self._cache.pods.owned_by(owner):
                if pod.summary.role in held and not pod.summary.gone:
                    held[pod.summary.role] += pod.summary.gpus
            self.usage.hold(owner, held)

    def _scrape_targets(self, *, others: bool, measured: bool) -> Iterator[tuple[PodRecord, bool]]:
        """The pods to scrape, each with whether its resource is autoscaled."""
        for pod in self._all():
            summary = pod.summary
            if pod.owner is None or summary.role not in ENGINE_ROLES or not _reports_load(summary):
                continue
            scaled = bool(self._policies.policy(pod.owner))
            wanted = measured and self._policies.objectives(pod.owner) is not None
            if scaled or wanted or (others and summary.ready and _name_of(pod) not in self._caches):
                yield pod, scaled

    def _all(self) -> list[PodRecord]:
        return list(_engines(pod for _, pod in self._cache.pods.items()))

    def _forget_deleted_pods(self) -> None:
        """Remove the state of deleted pods, and the readings of replaced containers."""
        live = {_name_of(pod): (pod.uid, pod.summary.restarts) for pod in self._all()}
        for name in self._windows.keys() - live.keys():
            del self._windows[name]
        for name, container in live.items():
            known = self._containers.get(name, container)
            if known[0] != container[0]:
                self._windows.pop(name, None)
            elif known != container and name in self._windows:
                self._windows[name].restart()
            if known != container:
                self._caches.pop(name, None)
                self._missing_signals.discard(name)
                self._resting.pop(name, None)
        self._containers = live
        self._baselines.keep({(pod.owner, pod.summary.revision) for _, pod in self._cache.pods.items()})
        self._caches = {name: cache for name, cache in self._caches.items() if name in live}
        self._missing_signals &= live.keys()
        self._resting = {name: until for name, until in self._resting.items() if name in live}

    async def _scrape(self, pod: PodRecord, share: Share) -> None:
        """Scrape one pod. No response of a pod raises an exception here."""
        try:
            found = Exposition()
            with self._metrics.seconds.time():
                port = pod.port or self._port
                await fetch(pod.address, port, found.take, prefix=PREFIX, share=share, seconds=_TIMEOUT_S)
            self._succeeded(pod, TimedReading(self._clock(), datetime.now(UTC), found.reading()))
        except UnreadableError as error:
            self._failed(pod, error)
        except Exception as error:  # noqa: BLE001 - an internal error with one response must not affect other pods
            fault = UnreadableError(Reason.INTERNAL, "the response caused an internal error of the operator")
            fault.__cause__ = error
            self._failed(pod, fault)

    def _succeeded(self, pod: PodRecord, timed: TimedReading) -> None:
        self._metrics.scrapes.labels("success").inc()
        window = self._windows[_name_of(pod)]
        changed, settled = window.silent, self._is_settled(window)
        window.add(timed)
        changed |= not settled and self._is_settled(window)
        changed |= self._note_missing_signals(pod, window)
        if pod.summary.role is Role.DECODE and pod.owner is not None:
            changed |= self._baselines.note(pod.owner, pod.summary.revision, window, self._clock())
        self._note_use(pod, window)
        cache = timed.reading.cache
        if cache is not None and self._caches.get(_name_of(pod)) != cache:
            self._caches[_name_of(pod)] = cache
            changed = True
        self._note(pod, changed=changed)

    def _note_use(self, pod: PodRecord, window: Window) -> None:
        owner, role = pod.owner, pod.summary.role
        if owner is None or role is None:
            return
        idle = self.idle_token_seconds(owner) if role is Role.DECODE else None
        self.usage.note(owner, role, window, gpus=self._policies.gpus(owner, role), idle=idle)

    def _note_missing_signals(self, pod: PodRecord, window: Window) -> bool:
        """Record whether the pod lacks signals of its role. Returns whether that changed."""
        policy = self._policies.policy(pod.owner) if pod.owner is not None else {}
        signals = policy.get(pod.summary.role, {}) if pod.summary.role is not None else {}
        now = {_name_of(pod)} if misses_signals(window, signals, self._clock()) else set()
        before = {_name_of(pod)} & self._missing_signals
        self._missing_signals = self._missing_signals - before | now
        return now != before

    def _failed(self, pod: PodRecord, error: UnreadableError) -> None:
        window = self._windows[_name_of(pod)]
        if not (pod.serves or window.answered):
            return  # vLLM does not listen yet
        self._metrics.scrapes.labels("error").inc()
        self._metrics.failures.labels(error.reason).inc()
        window.failures += 1
        if error.reason is Reason.REFUSED or not pod.summary.ready:
            window.restart()  # its requests now go to other pods, which report them
        if window.silent and error.reason in COSTLY:
            self._resting[_name_of(pod)] = self._clock() + _REST_ROUNDS * self._interval
        if window.failures == SILENT_AFTER or error.reason is Reason.INTERNAL:
            self._log.warning(
                f"Cannot scrape the metrics of a pod ({error.reason}): {error}",
                namespace=pod.namespace,
                pod=pod.summary.name,
                fault=error.__cause__ if error.reason is Reason.INTERNAL else None,
            )
        self._note(pod, changed=window.failures == SILENT_AFTER)

    def _note(self, pod: PodRecord, *, changed: bool) -> None:
        if changed and pod.owner is not None:
            self._on_change(pod.owner)


def _is_counted(scaler: ScalerState | None, pod: PodSummary) -> bool:
    """Whether an autoscaler counts a pod as a replica."""
    return scaler is None or scaler.revision in {"", pod.revision}


def _reports_load(pod: PodSummary) -> bool:
    """Whether a pod reports the load of its instance. Of a multi-node instance, only the leader pod does."""
    return pod.node_rank == 0 and not pod.gone and not pod.terminating


def _engines(pods: Iterable[PodRecord]) -> Iterator[PodRecord]:
    return chain.from_iterable(pod.by_engine for pod in pods)


def _name_of(pod: PodRecord) -> _PodName:
    return pod.namespace, pod.summary.name, pod.summary.engine
