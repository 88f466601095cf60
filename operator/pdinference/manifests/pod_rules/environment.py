"""Environment variables of an overlay's containers.

Tests: tests/manifests/test_pod_rules.py
"""

from collections.abc import Iterator
from typing import Any

from pdinference.api.v1alpha1.source import CREDENTIALS
from pdinference.api.validation import Problem
from pdinference.engine.refused import device_variable, refused_prefix, refused_variable
from pdinference.manifests.hub_access import is_about_hub, leads_elsewhere, redirects, runs_code
from pdinference.manifests.pod_rules.shapes import (
    Allowance,
    Check,
    amount,
    both,
    flag,
    list_of,
    object_of,
    only,
    text,
)
from pdinference.manifests.pod_rules.volumes import (
    FIELD_KEY,
    KEY,
    OBJECT_NAME,
    RESOURCE_FIELD,
    SECRET_NAME,
    VOLUME_NAME,
    resource_field,
)

_VARIABLE = text(r"[A-Za-z_][A-Za-z0-9_.-]{0,255}", "NCCL_DEBUG", most=256)
_POD_FIELD = text(
    r"metadata\.(name|namespace|uid)|metadata\.(labels|annotations)"
    rf"\['{FIELD_KEY}'\]"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIPs?|podIPs?)",
    "metadata.name or metadata.labels['team']",
    most=350,
)
_SOURCES: dict[str, Check] = {
    "fieldRef": object_of({"apiVersion": only("v1"), "fieldPath": _POD_FIELD}, required=("fieldPath",)),
    "resourceFieldRef": both(
        object_of(
            {"containerName": VOLUME_NAME, "resource": RESOURCE_FIELD, "divisor": amount}, required=("resource",)
        ),
        resource_field,
    ),
    "configMapKeyRef": object_of({"name": OBJECT_NAME, "key": KEY, "optional": flag}, required=("name", "key")),
    "secretKeyRef": object_of({"name": SECRET_NAME, "key": KEY, "optional": flag}, required=("name", "key")),
}
_ENTRY = object_of(
    {"name": _VARIABLE, "value": text(most=65536), "valueFrom": object_of(_SOURCES)},
    required=("name",),
)
_CONFIG_MAP = object_of({"name": OBJECT_NAME, "optional": flag}, required=("name",))
_SECRET = object_of({"name": SECRET_NAME, "optional": flag}, required=("name",))
_REFERENCES = tuple(f"$({name})" for name in ("HF_TOKEN", *CREDENTIALS))
"""How a variable refers to one from a Secret."""
_HELPERS_VARIABLES = frozenset({"TZ", "RUST_LOG", "RUST_BACKTRACE", "PYTHONUNBUFFERED", "NO_COLOR"})


def refers_to_secret(value: str) -> str | None:
    """The part of a text in whose place the kubelet puts a secret; None if it has none."""
    return next((reference for reference in _REFERENCES if reference in value), None)


def _no_devices(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    """A variable of a sidecar. With some variables, a container runtime adds devices that the pod did not request."""
    if why := device_variable(value["name"]):
        yield Problem(path, f"This variable cannot be set: {why}.")


def _not_refused(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    """A variable of the vLLM container that does not conflict with the operator, nor sends a hub token elsewhere."""
    name = value["name"]
    if why := refused_variable(name):
        yield Problem(path, f"This variable cannot be set: {why}.")
    elif (allowance.has_token and (why := redirects(name))) or (allowance.secret and (why := runs_code(name))):
        yield Problem(path, f"This variable cannot be set beside {allowance.secret}: {why}.")
    elif allowance.secret and (copied := refers_to_secret(value.get("value", ""))):
        yield Problem(path, f"This variable could send the token {copied} to another host. Remove it.")
    elif allowance.has_token and is_about_hub(name):
        if not isinstance(value.get("value"), str):
            yield Problem(path, "With tokenSecret, the operator must know the host. Use value instead of valueFrom.")
        elif problem := leads_elsewhere(name, value["value"], allowance.policy):
            yield Problem(path, problem)


def _of_helper(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    """A variable of a container that has more permissions than the author of the overlay may have."""
    if value["name"] not in _HELPERS_VARIABLES or "valueFrom" in value:
        known = ", ".join(sorted(_HELPERS_VARIABLES))
        yield Problem(path, f"podTemplate can set only these variables of this container: {known}.")


def _harmless(value: Any, path: str, _allowance: Allowance) -> Iterator[Problem]:
    """Variables whose names only the kubelet reads."""
    if ("configMapRef" in value) is ("secretRef" in value):
        yield Problem(path, "Set exactly one of configMapRef and secretRef.")
    if refused_prefix(value["prefix"]):
        yield Problem(
            f"{path}.prefix",
            "The operator cannot read the names of these variables, and with this prefix they could be ones that "
            "podTemplate cannot set. Use a prefix of your own such as APP_, or list the variables in env with "
            "valueFrom.configMapKeyRef.",
        )


_PREFIX = text(r"[A-Za-z][A-Za-z0-9]*_[A-Za-z0-9_]{0,127}", "APP_", most=256)
ENVIRONMENT_FROM: Check = list_of(
    both(
        object_of({"prefix": _PREFIX, "configMapRef": _CONFIG_MAP, "secretRef": _SECRET}, required=("prefix",)),
        _harmless,
    ),
    most=32,
)
ENVIRONMENT: Check = list_of(both(_ENTRY, _no_devices))
ENGINE_ENVIRONMENT: Check = list_of(both(_ENTRY, _not_refused))
HELPER_ENVIRONMENT: Check = list_of(both(_ENTRY, _of_helper))
