"""Merges the overlay of a user (`podTemplate`) into a pod template, like a strategic merge patch of `kubectl patch`.

Lists with a merge key are merged by this key, so that an overlay can change one container or add one volume.
Tolerations and similar items are appended. Other lists are replaced.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

Json = dict[str, Any]

# Merge keys as the Kubernetes API declares them (patchMergeKey in k8s.io/api/core/v1/types.go).
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
    "claims": "name",
}
_ADDED = frozenset({"tolerations", "envFrom", "schedulingGates"})


def merged(template: Json, overlay: Mapping[str, Any]) -> Json:
    """A pod template merged with an overlay. The arguments are not modified, and unchanged parts are shared."""
    result = dict(template)
    for key, value in overlay.items():
        result[key] = _merged_value(key, result.get(key), value)
    return result


def for_containers(overlay: Mapping[str, Any], name: str, names: Sequence[str]) -> Json:
    """An overlay whose changes to one container apply to several."""
    spec = overlay.get("spec", {})
    if "containers" not in spec:
        return dict(overlay)
    containers = [
        {**container, "name": other}
        for container in spec["containers"]
        for other in (names if container["name"] == name else (container["name"],))
    ]
    return {**overlay, "spec": {**spec, "containers": containers}}


def _merged_value(key: str, old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, Mapping):
        return merged(old, new)
    if isinstance(old, list) and isinstance(new, list):
        if key in _ADDED:
            return [*old, *deepcopy(new)]
        if key in _MERGE_KEYS and all(_has_name(item, _MERGE_KEYS[key]) for item in new):
            return _merged_by(_MERGE_KEYS[key], old, new)
    return deepcopy(new)


def _has_name(item: Any, name: str) -> bool:
    """Whether an item has its merge key. The API server rejects items without one."""
    return isinstance(item, Mapping) and isinstance(item.get(name), str | int | None)


def _merged_by(name: str, old: list[Json], new: list[Json]) -> list[Json]:
    """Merge items with the same name in place, and append the others."""
    overlays = {other.get(name): other for other in new}
    names = {item.get(name) for item in old}
    changed = [merged(item, overlays.get(item.get(name), {})) for item in old]
    return [*changed, *(deepcopy(other) for other in new if other.get(name) not in names)]
