"""Writes the status subresource, and Events for its changes."""

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import Gauge
from pydantic import ValidationError

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Condition, Status
from pdinference.api.v1alpha1.base import ApiModel
from pdinference.api.v1alpha1.conditions import KV_TRANSFER, OBJECTIVES_MET, READY
from pdinference.cluster.cache import Cache
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import RESOURCE_BY_NAME, Owner
from pdinference.cluster.state.records import ResourceRecord
from pdinference.controller.events import EventRecorder
from pdinference.controller.metrics import Metrics
from pdinference.planning.condition_changes import find
from pdinference.planning.transitions import Transition, transitions

_LOG = logging.getLogger(__name__)


class Reporter:
    """Writes a status if it differs from the stored one."""

    def __init__(self, api: ApiServer, cache: Cache, events: EventRecorder, metrics: Metrics) -> None:
        self._api = api
        self._cache = cache
        self._events = events
        self._metrics = metrics
        self._ready: dict[Owner, bool] = {}
        gauges = {KV_TRANSFER: metrics.kv_transfer, OBJECTIVES_MET: metrics.objectives}
        self._reasons = [(type_, ReasonGauge(gauge)) for type_, gauge in gauges.items()]

    async def report(
        self, resource: ResourceRecord, status: Status, *, loads: Mapping[Role, str] | None = None
    ) -> bool:
        """Write the status of a PDInference if it changed. Returns False if the write failed and should be retried.

        Args:
            resource: The resource.
            status: Its new status.
            loads: The load of each role on which its HPA based the current count, if known.
        """
        self._note_readiness(resource.owner, status)
        for type_, gauge in self._reasons:
            gauge.note(resource.owner, find(status.conditions, type_))
        happened = transitions(status_of(resource), status, loads=loads or {})
        return await self.publish(resource, status, happened, revision=status.revision)

    async def publish(
        self, resource: ResourceRecord, status: ApiModel, happened: Iterable[Transition], **extra: str
    ) -> bool:
        """Write any resource's status if it changed, then the Events. Returns False if the write should be retried.

        Args:
            resource: The resource.
            status: Its new status.
            happened: The Events for the change; evaluated only after the status was written.
            extra: Further fields of the log records.
        """
        fresh = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        patch = merge_patch(json.loads(resource.status), fresh)
        if not patch:
            return True
        if not await self._write(resource, patch):
            return False
        where = {"namespace": resource.owner.namespace, "resource": resource.owner.name}
        for transition in happened:
            _LOG.info("%s: %s", transition.reason, transition.note, extra={**where, **extra})
            await self._events.record(resource.owner, resource.uid, transition)
        return True

    def forget(self, owner: Owner) -> None:
        """Drop a deleted resource from the metrics."""
        self._ready.pop(owner, None)
        for _, gauge in self._reasons:
            gauge.note(owner, None)
        self._count()

    async def _write(self, resource: ResourceRecord, patch: dict[str, Any]) -> bool:
        """Patch the status. The uid prevents a write to a new object of the same name."""
        kind = RESOURCE_BY_NAME[resource.owner.kind]
        path = kind.path(resource.owner.namespace, resource.owner.name) + "/status"
        try:
            body = await self._api.merge(path, {"metadata": {"uid": resource.uid}, "status": patch})
        except ApiError as error:
            if error.gone_or_changed:
                return True  # deleted or replaced; a watch event follows
            self._metrics.errors.labels(error.reason).inc()
            _LOG.warning("Writing the status of %s failed: %s", resource.owner, error)
            return False
        self._metrics.status_writes.inc()
        self._cache.status_written(kind.name, body)
        return True

    def _note_readiness(self, owner: Owner, status: Status) -> None:
        self._ready[owner] = any(c.type == READY and c.status == "True" for c in status.conditions)
        self._count()

    def _count(self) -> None:
        ready = sum(self._ready.values())
        self._metrics.resources.labels("true").set(ready)
        self._metrics.resources.labels("false").set(len(self._ready) - ready)


class ReasonGauge:
    """A gauge that is 1 for the reason of a condition of each resource."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._reasons: dict[Owner, str] = {}

    def note(self, owner: Owner, condition: Condition | None) -> None:
        """Note the condition of a resource; None if it is absent."""
        before = self._reasons.pop(owner, None)
        if before is not None and (condition is None or condition.reason != before):
            self._gauge.remove(owner.namespace, owner.name, before)
        if condition is not None:
            self._reasons[owner] = condition.reason
            self._gauge.labels(owner.namespace, owner.name, condition.reason).set(1)


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) from `old` to `new`; empty when they are equal.

    Removed members are null in it; otherwise members of an old object would remain in the new one.
    """
    patch: dict[str, Any] = dict.fromkeys(old.keys() - new.keys())
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            if inner := merge_patch(before, value):
                patch[name] = inner
        elif before != value or name not in old:
            patch[name] = value
    return patch


def status_of(resource: ResourceRecord) -> Status:
    """The stored status. If another version wrote it and it does not parse, only its revisions."""
    stored = json.loads(resource.status)
    try:
        return Status.model_validate(stored, extra="ignore")  # a newer operator may have written more
    except ValidationError:
        return Status(revision=str(stored.get("revision", "")), serving_revision=str(stored.get("servingRevision", "")))
