"""The volume with the service account token for one container of a pod, protected against overlays.

By default, Kubernetes mounts the token into all containers of a pod. So pods with a token disable that
(`automountServiceAccountToken: false`), and only the container that needs the token mounts this volume.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pdinference.api.validation import Problem

Json = Mapping[str, Any]

API_ACCESS_VOLUME: Final = "api-access"
API_ACCESS_MOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Path at which clients look for the token."""
_TOKEN_SECONDS: Final = 3600
"""The kubelet renews the token earlier. The API server would extend 3607 seconds to a year."""


def token_volume() -> dict[str, Any]:
    """Volume with the token of the pod's service account, the CA of the API server, and the namespace."""
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources: list[Json] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": API_ACCESS_VOLUME, "projected": {"sources": sources}}


def token_mount() -> dict[str, Any]:
    """Mount of the volume in the container that needs the token."""
    return {"name": API_ACCESS_VOLUME, "mountPath": API_ACCESS_MOUNT, "readOnly": True}


def own_volume_problems(field: str, overlay: Json) -> Iterator[Problem]:
    """Conflicts of an overlay (`podTemplate`) with the volume. `pod_rules` rejects mounts of the router container.

    Args:
        field: Path of the overlay.
        overlay: Any JSON object. Members of wrong types are ignored here.
    """
    spec = overlay.get("spec")
    if not isinstance(spec, Mapping):
        return
    for volume in _items(spec, "volumes"):
        if volume.get("name") == API_ACCESS_VOLUME:
            yield Problem(
                f"{field}.spec.volumes[{API_ACCESS_VOLUME}]", "The operator uses this volume name. Rename the volume."
            )
    for kind in ("initContainers", "containers"):
        for container in _items(spec, kind):
            for mount in _items(container, "volumeMounts"):
                if mount.get("name") == API_ACCESS_VOLUME:
                    yield Problem(
                        f"{field}.spec.{kind}[{container.get('name')}].volumeMounts[{API_ACCESS_VOLUME}]",
                        "This volume has the API server token of the router container. Remove the mount; a container "
                        "that needs the API server must run in its own pod with its own service account.",
                    )


def _items(given: Json, member: str) -> Iterator[Json]:
    items = given.get(member)
    yield from (item for item in items if isinstance(item, Mapping)) if isinstance(items, list) else ()
