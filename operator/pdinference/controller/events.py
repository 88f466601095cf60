"""Kubernetes Events about a resource, with limits on repetitions and on their number."""

import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from pdinference.api import names
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import Kind, Owner
from pdinference.controller.metrics import Metrics
from pdinference.planning.transitions import Transition

_LOG = logging.getLogger(__name__)
_EVENT = Kind("Event", "events.k8s.io", "v1", "events")
_NOTE_LIMIT = 1024  # of the API
_REMEMBERED = 4096
_REPEAT_S = 600.0
_BURST = 20
_REFILL_S = 30.0


@dataclass(slots=True)
class _Written:
    """An Event that exists, for its repetitions."""

    name: str
    count: int
    at: float


@dataclass(slots=True)
class _Budget:
    """A token bucket: a resource that flaps may write `_BURST` Events, then one every `_REFILL_S`."""

    tokens: float
    at: float

    def take(self, now: float) -> bool:
        self.tokens = min(_BURST, self.tokens + (now - self.at) / _REFILL_S)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class EventRecorder:
    """Writes Events; a repetition raises the count of the one that exists, at most every ten minutes.

    An Event that cannot be written is logged and dropped; status and logs contain the same information.
    """

    def __init__(
        self, api: ApiServer, metrics: Metrics, *, instance: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._metrics = metrics
        self._instance = instance
        self._clock = clock
        self._written: OrderedDict[tuple[str, Transition], _Written] = OrderedDict()
        self._budgets: OrderedDict[str, _Budget] = OrderedDict()

    async def record(self, owner: Owner, uid: str, transition: Transition) -> None:
        """Write one Event, or count it as a repetition."""
        now = self._clock()
        known = self._written.get((uid, transition))
        if known is not None and now - known.at < _REPEAT_S:
            known.count += 1
            return
        if not self._budget(uid, now).take(now):
            _LOG.debug("Event %s dropped: too many", transition.reason, extra={"resource": str(owner)})
            return
        try:
            await self._write(owner, uid, transition, known, now)
        except ApiError as error:
            _LOG.warning("Event %s not written: %s", transition.reason, error, extra={"resource": str(owner)})

    async def _write(self, owner: Owner, uid: str, transition: Transition, known: _Written | None, now: float) -> None:
        if known is not None:
            known.count, known.at = known.count + 1, now
            series = {"series": {"count": known.count, "lastObservedTime": _now()}}
            try:
                await self._api.merge(_EVENT.path(owner.namespace, known.name), series)
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:  # Events expire after an hour: write a new one
                    raise
            else:
                self._metrics.events.inc()
                return
        name = f"{owner.name}.{uuid.uuid4().hex[:16]}"
        await self._api.create(_EVENT.path(owner.namespace), self._manifest(owner, uid, transition, name))
        self._metrics.events.inc()
        self._written[uid, transition] = _Written(name, 1, now)
        _drop_oldest(self._written)

    def _manifest(self, owner: Owner, uid: str, transition: Transition, name: str) -> Json:
        return {
            "apiVersion": _EVENT.api_version,
            "kind": _EVENT.name,
            "metadata": {"name": name, "namespace": owner.namespace},
            "eventTime": _now(),
            "reportingController": f"{names.GROUP}/operator",
            "reportingInstance": self._instance[:128],
            "action": "Reconcile",
            "type": transition.type,
            "reason": transition.reason,
            "note": transition.note[:_NOTE_LIMIT],
            "regarding": {
                "apiVersion": names.API_VERSION,
                "kind": owner.kind,
                "namespace": owner.namespace,
                "name": owner.name,
                "uid": uid,
            },
        }

    def _budget(self, uid: str, now: float) -> _Budget:
        budget = self._budgets.setdefault(uid, _Budget(_BURST, now))
        _drop_oldest(self._budgets)
        return budget


def _drop_oldest(entries: OrderedDict[Any, Any]) -> None:
    """Drop the entries that were added first, beyond `_REMEMBERED`."""
    while len(entries) > _REMEMBERED:
        entries.popitem(last=False)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
