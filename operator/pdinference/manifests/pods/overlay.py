"""`podTemplate`: a user's additions to a pod, merged the way `kubectl patch` would (strategic merge).

Lists of things with a name are merged by it, so that an overlay can change one container or add one volume; tolerations
and the like are added; any other list replaces the one that was there.
"""

from collections.abc import Mapping
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
    """A pod template with an overlay merged into it; neither is changed. What the overlay leaves alone is shared."""
    result = dict(template)
    for key, value in overlay.items():
        result[key] = _merged_value(key, result.get(key), value)
    return result


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
    """Whether an item is what the API takes at all: one that is not is left for the API server to refuse."""
    return isinstance(item, Mapping) and isinstance(item.get(name), str | int | None)


def _merged_by(name: str, old: list[Json], new: list[Json]) -> list[Json]:
    """Change what has the same name, in its place, and add the rest at the end."""
    overlays = {other.get(name): other for other in new}
    names = {item.get(name) for item in old}
    changed = [merged(item, overlays.get(item.get(name), {})) for item in old]
    return [*changed, *(deepcopy(other) for other in new if other.get(name) not in names)]
