"""Snapshot and decision of a reconcile, on objects that were read for the explanation. Read-only.

Tests: tests/cli/test_explain_any_moment.py, tests/cli/test_explain.py
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from pdinference.cli.explain.live_objects import ObjectCache
from pdinference.cluster.cache import Cache
from pdinference.cluster.child import Child
from pdinference.cluster.client import ApiServer
from pdinference.cluster.drift import contains
from pdinference.cluster.errors import ApiError
from pdinference.cluster.history.store import History
from pdinference.cluster.kinds import CHILD_BY_NAME, ChildKey
from pdinference.cluster.state.records import ChildRecord, ResourceRecord, comparable
from pdinference.cluster.verdict import Verdict
from pdinference.examination.client import Examinations
from pdinference.examination.effective_spec import EffectiveSpecs
from pdinference.examination.tasks import tasks
from pdinference.inference.decide import decide
from pdinference.inference.plan import Plan
from pdinference.inference.snapshot import Snapshot
from pdinference.inference.snapshotter import Snapshotter
from pdinference.isolation.calls import InProcess
from pdinference.manifests import RenderSettings

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Moment:
    """A snapshot with its decision, and with inputs of the reasons.

    Attributes:
        children: Rendered children of the spec in effect.
        live: Comparable content of the live objects that would be applied.
    """

    snapshot: Snapshot
    plan: Plan
    children: Mapping[ChildKey, Child]
    live: Mapping[ChildKey, Json] = field(default_factory=dict)


async def look(api: ApiServer, cache: ObjectCache, resource: ResourceRecord, settings: RenderSettings) -> Moment:
    """Make the operator's decision for a resource.

    Args:
        api: API server for objects that the cache lacks.
        cache: The objects that were read. It gets children of kinds that the user may not list, as they are rendered.
        resource: The resource.
        settings: Settings of the operator.

    Raises:
        InvalidSpecError: The stored spec is invalid, and there is no valid one.
        ApiError: An object could not be read.
    """
    history = History(api, cache)
    specs = EffectiveSpecs(Examinations(InProcess(tasks(settings))), history)
    spec = await specs.find(resource)
    children = {child.key: child for child in await specs.children(spec)}
    _assume(cache, children.values())
    snapshotter = Snapshotter(cache, history)

    def decided() -> tuple[Snapshot, Plan]:
        snapshot = snapshotter.take(resource, spec)
        return snapshot, decide(snapshot)

    _, plan = decided()
    await _find(api, cache, plan)
    snapshot, plan = decided()
    live = await _contents(api, snapshot, plan)
    _settle(snapshot, plan, children, live)
    return Moment(*decided(), children, live)


def _assume(cache: ObjectCache, children: Iterable[Child]) -> None:
    """Take children that the user may not see as up to date. As absent ones, they would hold back all others."""
    refused = {kind.name: kind for kind in cache.refused}
    for child in children:
        if child.key.kind in refused:
            body = child.marked()
            metadata = {**body["metadata"], "uid": "", "resourceVersion": ""}
            cache.observe(refused[child.key.kind], {**body, "metadata": metadata}, deleted=False)


async def _find(api: ApiServer, cache: Cache, plan: Plan) -> None:
    """Look up children that would be created, because lists lack objects without the operator's label."""
    created = [key for key, verdict in plan.apply.items() if verdict is Verdict.CREATE]
    for key, body in zip(created, await asyncio.gather(*(_get(api, key) for key in created)), strict=True):
        if body is not None:
            cache.observe(CHILD_BY_NAME[key.kind], body, deleted=False)


async def _contents(api: ApiServer, snapshot: Snapshot, plan: Plan) -> dict[ChildKey, Json]:
    """Live content of the objects that may be applied. Large objects are read again, because records lack them."""
    keys = [key for key, verdict in plan.apply.items() if verdict in {Verdict.APPLY, Verdict.VERIFY}]
    bodies = await asyncio.gather(*(_content(api, snapshot.children[key]) for key in keys))
    return {key: comparable(key.kind, body) for key, body in zip(keys, bodies, strict=True) if body is not None}


async def _content(api: ApiServer, record: ChildRecord) -> Json | None:
    if record.content is None:
        return await _get(api, record.key)
    found: Json = json.loads(record.content)
    return found


async def _get(api: ApiServer, key: ChildKey) -> Json | None:
    try:
        return await api.get(CHILD_BY_NAME[key.kind].path(key.namespace, key.name))
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise


def _settle(snapshot: Snapshot, plan: Plan, children: Mapping[ChildKey, Child], live: Mapping[ChildKey, Json]) -> None:
    """Mark objects that contain their manifests. The operator compares them, too, before it applies them."""
    for key in _to_verify(plan):
        if key in live and contains(live[key], comparable(key.kind, children[key].manifest)):
            record = snapshot.children[key]
            record.settled = record.digest


def _to_verify(plan: Plan) -> Iterable[ChildKey]:
    return (key for key, verdict in plan.apply.items() if verdict is Verdict.VERIFY)
