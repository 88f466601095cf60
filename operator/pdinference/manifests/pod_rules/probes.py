"""Probes and lifecycle hooks: commands in the container and calls to the pod itself, never to another host.

Tests: tests/manifests/test_pod_rules.py
"""

from pdinference.manifests.pod_rules.shapes import Check, either, list_of, object_of, only, text, whole

_NO_HOST = {"host": "the kubelet would call another host from the node; remove it to call the pod"}
PORT_NAME = text(r"(?=.*[a-z])(?!.*--)[a-z0-9]([a-z0-9-]*[a-z0-9])?", "http", most=15)
_PORT = either(str, PORT_NAME, whole(1, 65535))
_HEADERS = list_of(
    object_of({"name": text(r"[A-Za-z0-9-]+", "X-Probe", most=256), "value": text()}, required=("name", "value")),
    most=16,
)
_EXEC = object_of({"command": list_of(text(most=65536))}, required=("command",))
_HTTP = object_of(
    {"path": text(), "port": _PORT, "scheme": only("HTTP", "HTTPS"), "httpHeaders": _HEADERS},
    _NO_HOST,
    required=("port",),
)
_TCP = object_of({"port": _PORT}, _NO_HOST, required=("port",))
_TIMES: dict[str, Check] = {
    "initialDelaySeconds": whole(),
    "timeoutSeconds": whole(1),
    "periodSeconds": whole(1),
    "successThreshold": whole(1),
    "failureThreshold": whole(1),
    "terminationGracePeriodSeconds": whole(1),
}
_CALLS: dict[str, Check] = {
    "httpGet": _HTTP,
    "tcpSocket": _TCP,
    "grpc": object_of({"port": whole(1, 65535), "service": text(most=256)}, required=("port",)),
}
_HANDLER = object_of(
    {"exec": _EXEC, "httpGet": _HTTP, "sleep": object_of({"seconds": whole(1, 86400)}, required=("seconds",))}
)

PROBE: Check = object_of({**_TIMES, **_CALLS, "exec": _EXEC})
LIFECYCLE: Check = object_of({"postStart": _HANDLER, "preStop": _HANDLER})
