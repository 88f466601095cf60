"""The pods of one revision, from a watch of the API server."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from kubernetes.aio.client import ApiClient, CoreV1Api
from kubernetes.aio.watch import Watch

from pdinference.api import names
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.cluster.client import load_configuration
from pdinference.router.pods import Observed, Pods

_LOG = logging.getLogger(__name__)
_PAUSE_S: Final = 1.0
_WATCH_S: Final = 240
_SILENCE_S: Final = 300.0
_LIST_S: Final = 30


class Discovery:
    """Keeps the pods of a revision of one PDInference. While the API server is away, the pods stay as they were."""

    def __init__(self, pods: Pods, namespace: str, name: str, revision: str) -> None:
        self._pods = pods
        self._namespace = namespace
        roles = ",".join(ENGINE_ROLES)
        self._selector = f"{names.LABEL_NAME}={name},{names.LABEL_REVISION}={revision},{names.LABEL_ROLE} in ({roles})"
        self._seen: dict[str, Observed] = {}

    async def forever(self) -> None:
        """Watch until cancelled."""
        configuration = await load_configuration()
        async with ApiClient(configuration) as client:
            while True:
                try:
                    await self._watch(CoreV1Api(client))
                except Exception as error:  # noqa: BLE001 - with the pods that it knows, the router serves on
                    _LOG.warning("Cannot watch pods: %s: %s", type(error).__name__, error)
                    await asyncio.sleep(_PAUSE_S)

    async def _watch(self, core: Any) -> None:
        """List, then take events until the API server ends the watch."""
        found = await core.list_namespaced_pod_without_preload_content(
            self._namespace, label_selector=self._selector, _request_timeout=_LIST_S
        )
        listed = await found.json()
        self._seen = {body["metadata"]["uid"]: observed(body) for body in listed["items"]}
        self._pods.observe(self._seen)
        async with (
            asyncio.timeout(_SILENCE_S),
            Watch(return_type="object").stream(  # type: ignore[no-untyped-call]
                core.list_namespaced_pod,
                self._namespace,
                label_selector=self._selector,
                resource_version=listed["metadata"]["resourceVersion"],
                timeout_seconds=_WATCH_S,
            ) as events,
        ):
            async for event in events:
                self.take(event["type"], event["raw_object"])

    def take(self, kind: str, body: Mapping[str, Any]) -> None:
        """Take an event."""
        uid = body["metadata"]["uid"]
        if kind == "DELETED":
            self._seen.pop(uid, None)
        elif kind in {"ADDED", "MODIFIED"}:
            self._seen[uid] = observed(body)
        self._pods.observe(self._seen)


def observed(body: Mapping[str, Any]) -> Observed:
    """What matters of a pod."""
    metadata, status = body["metadata"], body.get("status") or {}
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())
    address, port = status.get("podIP", ""), _port(body)
    host = f"[{address}]" if ":" in address else address
    return Observed(
        uid=metadata["uid"],
        name=metadata["name"],
        role=Role(metadata["labels"][names.LABEL_ROLE]),
        address=f"{host}:{port}" if address else "",
        ready=ready and bool(address) and "deletionTimestamp" not in metadata,
    )


def _port(body: Mapping[str, Any]) -> int:
    """The port of vLLM's API: two servers may share an address."""
    for container in (body.get("spec") or {}).get("containers") or ():
        if container.get("name") == names.ENGINE_CONTAINER:
            for port in container.get("ports") or ():
                if port.get("name") == names.ENGINE_PORT_NAME:
                    return int(port["containerPort"])
    return names.ENGINE_PORT
