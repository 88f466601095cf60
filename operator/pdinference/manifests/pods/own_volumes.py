"""The volume with which one container of a pod talks to the API server, and what overlays may not do to it.

Kubernetes mounts an account's token into every container of a pod, unless the pod projects it itself. So pods with a
token turn that off (`automountServiceAccountToken: false`), and the one container that needs the token mounts it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pdinference.api.validation import Problem

Json = Mapping[str, Any]

API_ACCESS_VOLUME: Final = "api-access"
API_ACCESS_MOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where every client looks for it."""
_TOKEN_SECONDS: Final = 3600
"""The kubelet renews it before that. Of 3607 the API server would make a year, for clients that read it once."""


def token_volume() -> dict[str, Any]:
    """The token of the pod's account, the API server's CA, and the namespace."""
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources: list[Json] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": API_ACCESS_VOLUME, "projected": {"sources": sources}}


def token_mount() -> dict[str, Any]:
    """Where it goes in the one container that has it."""
    return {"name": API_ACCESS_VOLUME, "mountPath": API_ACCESS_MOUNT, "readOnly": True}


def own_volume_problems(field: str, overlay: Json) -> Iterator[Problem]:
    """What an overlay (`podTemplate`) does to the volume. The router's own container takes no mounts (`pod_rules`).

    Args:
        field: Path of the overlay.
        overlay: Any JSON object; members of wrong types are left to others to refuse.
    """
    spec = overlay.get("spec")
    if not isinstance(spec, Mapping):
        return
    for volume in _items(spec, "volumes"):
        if volume.get("name") == API_ACCESS_VOLUME:
            yield Problem(
                f"{field}.spec.volumes[{API_ACCESS_VOLUME}]", "The operator has a volume of this name. Rename it."
            )
    for kind in ("initContainers", "containers"):
        for container in _items(spec, kind):
            for mount in _items(container, "volumeMounts"):
                if mount.get("name") == API_ACCESS_VOLUME:
                    yield Problem(
                        f"{field}.spec.{kind}[{container.get('name')}].volumeMounts[{API_ACCESS_VOLUME}]",
                        "This volume holds a token for the API server, which the router's container alone gets. A "
                        "container that needs the API server needs an account and a pod of its own.",
                    )


def _items(given: Json, member: str) -> Iterator[Json]:
    items = given.get(member)
    yield from (item for item in items if isinstance(item, Mapping)) if isinstance(items, list) else ()
