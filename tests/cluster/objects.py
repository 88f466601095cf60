"""Small objects for tests of the cluster layer."""

from typing import Any

from pdinference.api import names
from pdinference.cluster.apply import Parent
from pdinference.cluster.kinds import CHILD_BY_NAME, Owner

Json = dict[str, Any]

OWNER = Owner("ns", "llama")
PARENT = Parent(OWNER, "cr-1")


def reference(uid: str = "cr-1", name: str = "llama") -> Json:
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": name, "uid": uid, "controller": True}


def manifest(kind: str = "Service", name: str = "llama", **spec: Any) -> Json:
    """A manifest as `render` makes it."""
    return {
        "apiVersion": CHILD_BY_NAME[kind].api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "ns",
            "labels": names.instance_labels("llama"),
            "ownerReferences": [reference()],
        },
        "spec": spec or {"type": "ClusterIP"},
    }


def live(body: Json, *, uid: str = "u1", version: int = 1, **status: Any) -> Json:
    """The same as the API server would show it."""
    metadata = {**body["metadata"], "uid": uid, "resourceVersion": str(version), "generation": 1, "managedFields": [{}]}
    return {**body, "metadata": metadata, "status": status}


def path(body: Json) -> str:
    return CHILD_BY_NAME[body["kind"]].path("ns", body["metadata"]["name"])
