"""An entry of a resource's history: a ControllerRevision with a valid spec, and its record in the cache.

Tests: tests/cluster/test_history.py, tests/cli/test_history.py
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from sys import intern
from typing import Any

from pdinference.api import names
from pdinference.cluster.kinds import CONTROLLER_REVISION, ChildKey, Owner
from pdinference.cluster.objects import why_unreadable
from pdinference.cluster.state.records import ResourceRecord, compact, controller_of, version_of
from pdinference.manifests.children import owner_reference

Json = Mapping[str, Any]

_LARGEST_NUMBER = 2**53
_DIGEST_BYTES = 8
_SERVED = {"true": True, "false": False}


@dataclass(slots=True)
class HistoryRecord:
    """A ControllerRevision without its data, which is read from the API server on demand.

    Attributes:
        number: Revision number, which grows with each valid spec; 0 if it is out of range.
        shape: Identity of the spec without D's replica count.
        served: Whether requests went to the spec; None for an entry of an older operator, which did not record it.
    """

    key: ChildKey
    uid: str
    version: int
    owner: Owner | None
    owner_uid: str
    number: int
    shape: str
    deleting: bool = False
    served: bool | None = None


def history_record(body: Json) -> HistoryRecord:
    """The record of a ControllerRevision from a list, a watch event or the response to a write."""
    metadata = body["metadata"]
    owner, owner_uid = controller_of(metadata)
    number = body.get("revision")
    return HistoryRecord(
        key=ChildKey(CONTROLLER_REVISION.name, intern(metadata["namespace"]), metadata["name"]),
        uid=metadata["uid"],
        version=version_of(metadata["resourceVersion"]),
        owner=owner,
        owner_uid=owner_uid,
        number=number if isinstance(number, int) and 0 < number < _LARGEST_NUMBER else 0,
        shape=(metadata.get("labels") or {}).get(names.LABEL_SPEC, ""),
        deleting="deletionTimestamp" in metadata,
        served=_SERVED.get((metadata.get("annotations") or {}).get(names.ANNOTATION_SERVED, "")),
    )


def entry_name(resource: ResourceRecord) -> str:
    """Name of the entry for the stored spec of a resource."""
    return names.history_entry(resource.owner.name, _digest(resource.spec))


def entry_manifest(resource: ResourceRecord, number: int) -> dict[str, Any]:
    """Manifest of the entry for the stored spec of a resource."""
    owner, spec = resource.owner, json.loads(resource.spec)
    return {
        "apiVersion": CONTROLLER_REVISION.api_version,
        "kind": CONTROLLER_REVISION.name,
        "metadata": {
            "name": entry_name(resource),
            "namespace": owner.namespace,
            "labels": {**names.instance_labels(owner.name), names.LABEL_SPEC: shape_of(spec)},
            "annotations": {names.ANNOTATION_SERVED: "false"},
            "ownerReferences": [owner_reference(owner.kind, owner.name, resource.uid)],
        },
        "revision": number,
        "data": {"spec": spec},
    }


def shape_of(spec: Json) -> str:
    """Digest of a spec without the replica count of D, which `kubectl scale` and autoscalers write."""
    decode = {key: value for key, value in (spec.get("decode") or {}).items() if key != "replicas"}
    return _digest(compact({**spec, "decode": decode}))


def with_decode_replicas(spec: Json, source: Json) -> Json:
    """A spec with the replica count of D of another spec, if that has one."""
    decode = source.get("decode")
    if not isinstance(decode, Mapping) or "replicas" not in decode:
        return spec
    return {**spec, "decode": {**(spec.get("decode") or {}), "replicas": decode["replicas"]}}


def spec_of(body: Json, owner_uid: str) -> dict[str, Any] | None:
    """The spec in a ControllerRevision; None if it is not an entry of this resource's history.

    Other clients may write ControllerRevisions, so the caller validates the spec like any other. This function checks
    size, depth and owner, and that the name matches the content.
    """
    metadata = body["metadata"]
    owner, uid = controller_of(metadata)
    data = body.get("data")
    spec = data.get("spec") if isinstance(data, Mapping) else None
    if owner is None or uid != owner_uid or not isinstance(spec, dict) or why_unreadable({"spec": spec}):
        return None
    return spec if metadata["name"] == names.history_entry(owner.name, _digest(compact(spec))) else None


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
