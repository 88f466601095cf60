"""Volumes with secrets for one container of a pod, protected against overlays.

By default, Kubernetes mounts the service account token into all containers of a pod. So pods with a token disable that
(`automountServiceAccountToken: false`), and only the container that needs the token mounts this volume.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pdinference.api.validation import Problem

Json = Mapping[str, Any]

API_ACCESS_VOLUME: Final = "api-access"
API_KEYS_VOLUME: Final = "api-keys"
TLS_VOLUME: Final = "tls-certificate"
API_ACCESS_MOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Path at which clients look for the token."""
_TOKEN_SECONDS: Final = 3600
"""The kubelet renews the token earlier. The API server would extend 3607 seconds to a year."""
_NOT_FOR_OTHERS: Final[Mapping[str, str]] = {
    API_ACCESS_VOLUME: "This volume has the API server token of the router container. Remove the mount; a container "
    "that needs the API server must run in its own pod with its own service account.",
    **dict.fromkeys(
        (API_KEYS_VOLUME, TLS_VOLUME),
        "This volume has a Secret of the router container. Remove the mount; the chart value policy.secrets lists "
        "the Secrets that other containers may mount.",
    ),
}


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


def secret_volume(name: str, secret: str) -> dict[str, Any]:
    """Volume with a Secret."""
    return {"name": name, "secret": {"secretName": secret}}


def secret_mount(name: str, path: str) -> dict[str, Any]:
    """Mount of such a volume."""
    return {"name": name, "mountPath": path, "readOnly": True}


def own_volume_problems(field: str, overlay: Json) -> Iterator[Problem]:
    """Conflicts of an overlay (`podTemplate`) with the volumes. `pod_rules` rejects mounts of the router container.

    Args:
        field: Path of the overlay.
        overlay: Any JSON object. Members of wrong types are ignored here.
    """
    spec = overlay.get("spec")
    if not isinstance(spec, Mapping):
        return
    for volume in _items(spec, "volumes"):
        if (name := str(volume.get("name"))) in _NOT_FOR_OTHERS:
            yield Problem(f"{field}.spec.volumes[{name}]", "The operator uses this volume name. Rename the volume.")
    for kind in ("initContainers", "containers"):
        for container in _items(spec, kind):
            for mount in _items(container, "volumeMounts"):
                if (name := str(mount.get("name"))) in _NOT_FOR_OTHERS:
                    yield Problem(
                        f"{field}.spec.{kind}[{container.get('name')}].volumeMounts[{name}]", _NOT_FOR_OTHERS[name]
                    )


def _items(given: Json, member: str) -> Iterator[Json]:
    items = given.get(member)
    yield from (item for item in items if isinstance(item, Mapping)) if isinstance(items, list) else ()
