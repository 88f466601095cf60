"""The few questions that this package asks an API server or a health endpoint itself."""

import json
import ssl
import urllib.error
import urllib.request
from typing import Any

import yaml

from e2e.cluster.spec import ClusterSpec

_TIMEOUT_SECONDS = 5


def healthy(url: str) -> bool:
    """Say whether a health endpoint answers 200; its certificate is self-signed, and nothing secret is said to it."""
    return _fetch(url, {}, ssl._create_unverified_context()) is not None  # noqa: S323


def get(cluster: ClusterSpec, path: str) -> Any:
    """Read from the API server as administrator; None where it does not answer or has no such thing."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    token = config["users"][0]["user"]["token"]
    authority = (cluster.folder / "pki" / "ca.crt").read_text()
    headers = {"Authorization": f"Bearer {token}"}
    body = _fetch(cluster.server + path, headers, ssl.create_default_context(cadata=authority))
    return None if body is None else json.loads(body)


def node_ready(cluster: ClusterSpec, name: str) -> bool:
    """Say whether a node is Ready."""
    return has_condition(get(cluster, f"/api/v1/nodes/{name}"), "Ready")


def has_condition(resource: Any, condition: str) -> bool:
    """Say whether a resource exists and reports a condition as True."""
    conditions = ((resource or {}).get("status") or {}).get("conditions") or []
    return any(entry["type"] == condition and entry["status"] == "True" for entry in conditions)


def _fetch(url: str, headers: dict[str, str], context: ssl.SSLContext) -> bytes | None:
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - all URLs are our own
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
            content: bytes = response.read()
            return content
    except OSError:  # refused, reset, timed out, or an HTTP error status
        return None
