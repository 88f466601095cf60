"""Who says how many pods a workload has, where an HPA is to decide.

The manifest of such a workload has no `replicas`. But server-side apply removes a field that its last owner gives up,
and the API server would fill in 1. So before the operator lets go of the field, a second field manager takes hold of
the value that is there; the HPA takes it from that one with its first change. The same manager sets the count while no
HPA follows the workload yet.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pdinference.api import names
from pdinference.cluster.client import ApiServer
from pdinference.cluster.kinds import CHILD_BY_NAME, ChildKey

Json = dict[str, Any]


def starting(manifest: Json, count: int) -> Json:
    """A manifest that creates the workload with so many pods, rather than with one that others join."""
    return {**manifest, "spec": {**manifest["spec"], "replicas": count}}


async def set_count(api: ApiServer, key: ChildKey, count: int) -> Json:
    """Change the count; the live object comes back."""
    return await api.apply(_path(key), _count_alone(key, count), manager=names.REPLICAS_MANAGER)


async def keep_count(api: ApiServer, key: ChildKey) -> None:
    """See to it that an apply of a manifest without `replicas` leaves the count alone.

    Raises:
        ApiError: Somebody changed the count at the same moment, which a new attempt finds; or any other.
    """
    live = await api.get(_path(key))
    if _is_owned(live["metadata"].get("managedFields") or ()):
        count = live["spec"].get("replicas", 1)
        await api.apply(_path(key), _count_alone(key, count), manager=names.REPLICAS_MANAGER, force=False)


def _is_owned(entries: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the operator's own manager still has the field."""
    return any(
        entry.get("manager") == names.FIELD_MANAGER and "f:replicas" in (entry.get("fieldsV1") or {}).get("f:spec", {})
        for entry in entries
    )


def _path(key: ChildKey) -> str:
    return CHILD_BY_NAME[key.kind].path(key.namespace, key.name)


def _count_alone(key: ChildKey, count: int) -> Json:
    return {
        "apiVersion": CHILD_BY_NAME[key.kind].api_version,
        "kind": key.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {"replicas": count},
    }
