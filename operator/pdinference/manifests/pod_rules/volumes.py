"""Volumes of an overlay, without access to the node, the API server or arbitrary Secrets.

Tests: tests/manifests/test_pod_rules.py
"""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pdinference.api.installation_policy import VolumeType
from pdinference.api.names import SCRIPTS_VOLUME
from pdinference.api.quantities import quantity
from pdinference.api.validation import Problem
from pdinference.manifests.pod_rules.selectors import LABEL_SELECTOR
from pdinference.manifests.pod_rules.shapes import (
    DOMAIN,
    Allowance,
    Check,
    amount,
    any_object,
    both,
    flag,
    list_of,
    listed,
    not_allowed,
    object_of,
    only,
    text,
    whole,
)

OBJECT_NAME = DOMAIN
SECRET_NAME = both(OBJECT_NAME, listed("secrets", "podTemplate to read the Secret"))
VOLUME_NAME = text(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "adapters", most=63)
KEY = text(r"\.?[A-Za-z0-9_-][A-Za-z0-9._-]*", "chat.jinja", most=253)
_FILE = text(r"(?s)(?!\.\.)(?!.*/\.\.(/|$))[^/:][^:]*", "chat.jinja", most=1023)
_MODE = whole(0, 0o777)
_ITEMS = list_of(object_of({"key": KEY, "path": _FILE, "mode": _MODE}, required=("key", "path")), key="key")
FIELD_KEY = r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_POD_FIELD = text(
    rf"metadata\.(name|namespace|uid)|metadata\.(labels|annotations)(\['{FIELD_KEY}'\])?", "metadata.labels", most=350
)
RESOURCE_FIELD = text(
    r"(limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-[0-9]+([KMGTPE]i)?)", "limits.memory", most=317
)
_DIVISORS = {"cpu": ("0", "1m", "1"), "": ("0", "1", *(f"1{unit}" for unit in "kMGTPE"), *(f"1{u}i" for u in "KMGTPE"))}


def resource_field(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    """The unit in which a container gets an amount."""
    divisors = _DIVISORS["cpu" if value["resource"].endswith(".cpu") else ""]
    if str(value.get("divisor", "0")) not in divisors:
        yield Problem(f"{path}.divisor", f"Write one of {', '.join(divisors)}.")


_POD_FIELDS = {
    "path": _FILE,
    "mode": _MODE,
    "fieldRef": object_of({"apiVersion": only("v1"), "fieldPath": _POD_FIELD}, required=("fieldPath",)),
    "resourceFieldRef": both(
        object_of(
            {"containerName": VOLUME_NAME, "resource": RESOURCE_FIELD, "divisor": amount},
            required=("containerName", "resource"),
        ),
        resource_field,
    ),
}
_DOWNWARD_ITEMS = list_of(object_of(_POD_FIELDS, required=("path",)), key="path")


def _some_storage(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    if quantity(value["storage"]) == 0:
        yield Problem(f"{path}.storage", "Write more than 0, for example 100Gi.")


def _some_modes(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    if not value:
        yield Problem(path, "Write at least one access mode, for example ReadWriteOnce.")


_STORAGE = both(object_of({"storage": amount}, required=("storage",)), _some_storage)
_CLAIM = object_of(
    {
        "accessModes": both(
            list_of(only("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"), most=4), _some_modes
        ),
        "storageClassName": DOMAIN,
        "volumeMode": only("Filesystem"),
        "resources": object_of(
            {"requests": _STORAGE, "limits": object_of({"storage": amount})}, required=("requests",)
        ),
        "selector": LABEL_SELECTOR,
        "volumeAttributesClassName": DOMAIN,
    },
    required=("accessModes", "resources"),
)
_PROJECTED = object_of(
    {
        "configMap": object_of({"name": OBJECT_NAME, "items": _ITEMS, "optional": flag}, required=("name",)),
        "downwardAPI": object_of({"items": _DOWNWARD_ITEMS}),
        "secret": object_of({"name": SECRET_NAME, "items": _ITEMS, "optional": flag}, required=("name",)),
    },
    {
        "serviceAccountToken": "vLLM does not need access to the API server",
        "podCertificate": "pods have no certificates",
        "clusterTrustBundle": "use a ConfigMap with the certificates",
    },
)
_TYPES: dict[str, Check] = {
    "configMap": object_of(
        {"name": OBJECT_NAME, "items": _ITEMS, "optional": flag, "defaultMode": _MODE}, required=("name",)
    ),
    "downwardAPI": object_of({"items": _DOWNWARD_ITEMS, "defaultMode": _MODE}),
    "emptyDir": object_of({"medium": only("", "Memory"), "sizeLimit": amount}),
    "ephemeral": object_of(
        {"volumeClaimTemplate": object_of({"spec": _CLAIM}, required=("spec",))}, required=("volumeClaimTemplate",)
    ),
    "image": object_of(
        {
            "reference": text(r"\S+", "registry.example/data:1", most=512),
            "pullPolicy": only("Always", "IfNotPresent", "Never"),
        },
        required=("reference",),
    ),
    "persistentVolumeClaim": object_of({"claimName": OBJECT_NAME, "readOnly": flag}, required=("claimName",)),
    # sources is required: merged into a volume of the operator, an entry without sources would expose its token.
    "projected": object_of({"sources": list_of(_PROJECTED, most=16), "defaultMode": _MODE}, required=("sources",)),
    "secret": object_of(
        {"secretName": SECRET_NAME, "items": _ITEMS, "optional": flag, "defaultMode": _MODE}, required=("secretName",)
    ),
}
_MORE_TYPES = frozenset(get_args(VolumeType))
_NO_HOST_PATH = (
    "podTemplate cannot mount folders of the node. Use spec.model.source.hostPath, spec.model.cache.hostPath or "
    "kvTiers.disk.hostPath, which the chart value allowedHostPaths must allow, or use a PersistentVolumeClaim."
)


def volume(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    """A volume with a name and an allowed type."""
    if not isinstance(value, Mapping):
        yield from object_of({"name": VOLUME_NAME})(value, path, allowance)
        return
    more: dict[str, Check] = dict.fromkeys(allowance.policy.volume_types, any_object)
    for name in value:
        if name == "hostPath":
            yield Problem(f"{path}.hostPath", _NO_HOST_PATH)
        elif name in _MORE_TYPES and name not in more:
            allowed = [*_TYPES, *more]
            yield Problem(f"{path}.{name}", not_allowed(f"volumes of type {name}", "volumeTypes", allowed))
    if value.get("name") == SCRIPTS_VOLUME:
        yield Problem(f"{path}.name", f"The operator uses the volume {SCRIPTS_VOLUME}. Use another name.")
    rest = {name: member for name, member in value.items() if name != "hostPath" and name not in _MORE_TYPES - {*more}}
    yield from object_of({"name": VOLUME_NAME, **_TYPES, **more}, required=("name",))(rest, path, allowance)
