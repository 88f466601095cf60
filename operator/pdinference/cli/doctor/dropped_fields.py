"""Fields that the API server drops from resources, because their CRD is older than this program.

That happens where CRDs are installed apart from the chart (`crds.install=false`).

Tests: tests/cli/doctor/test_dropped_fields.py, tests/integration/test_rollback.py
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from pdinference.api import names
from pdinference.api.crd import definitions
from pdinference.cluster.client import ApiServer, Json, PageTooLargeError
from pdinference.cluster.errors import ApiError

_PATH: Final = f"/openapi/v3/apis/{names.API_VERSION}"
"""Every user may read it, unlike CRDs (ClusterRole `system:discovery`)."""
_MOST_BYTES: Final = 16 * 1024 * 1024
_KIND: Final = "x-kubernetes-group-version-kind"
_KEEPS_ALL: Final = "x-kubernetes-preserve-unknown-fields"
_STATES: Final = ("spec", "status")


async def dropped_fields(api: ApiServer) -> tuple[str, ...] | None:
    """The fields, such as `PDInference.spec.router.limits`; None if the API server does not say which it has."""
    try:
        served: Json = msgspec.json.decode(await api.page(_PATH, most=_MOST_BYTES))
    except (ApiError, PageTooLargeError, msgspec.DecodeError):
        return None
    return tuple(missing_from(served))


def missing_from(served: Json) -> Iterator[str]:
    """The fields of this program's CRDs that an OpenAPI document of the API server lacks.

    A kind that is not served is skipped.
    """
    schemas = {
        kind["kind"]: schema
        for schema in served.get("components", {}).get("schemas", {}).values()
        for kind in schema.get(_KIND) or ()
    }
    for crd in definitions().values():
        kind = crd["spec"]["names"]["kind"]
        there = schemas.get(kind, {}).get("properties")
        ours = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        if there:
            yield from _missing({state: ours[state] for state in _STATES}, there, kind)


def _missing(ours: dict[str, Any], served: dict[str, Any], path: str) -> Iterator[str]:
    """The properties that are not served. What is below one that is missing is not listed."""
    for name, schema in ours.items():
        below = f"{path}.{name}"
        if name not in served:
            yield below
        else:
            yield from _below(schema, served[name], below)


def _below(ours: dict[str, Any], served: dict[str, Any], path: str) -> Iterator[str]:
    if served.get(_KEEPS_ALL):
        return
    yield from _missing(ours.get("properties") or {}, served.get("properties") or {}, path)
    for keyword, mark in (("items", "[]"), ("additionalProperties", ".*")):
        inner, there = ours.get(keyword), served.get(keyword)
        if isinstance(inner, dict) and isinstance(there, dict):
            yield from _below(inner, there, path + mark)
