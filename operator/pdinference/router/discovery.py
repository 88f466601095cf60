"""The pods of one revision, from a watch of the API server."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from pdinference.api import names
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.cluster.client import ApiServer, load_configuration
from pdinference.cluster.kinds import POD
from pdinference.router.pods import Observed, Pods

_LOG = logging.getLogger(__name__)
_PAUSE_S: Final = 1.0
_WATCH_S: Final = 240
_SILENCE_S: Final = 70.0
"""API servers send a bookmark every minute."""
_USER_AGENT: Final = "pdinference-router"


class WatchEndedError(Exception):
    """The API server ended the watch with an error."""


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
        api = ApiServer(await load_configuration(), user_agent=_USER_AGENT)
        try:
            while True:
                try:
                    await self._watch(api)
                except Exception as error:  # noqa: BLE001 - with the pods that it knows, the router serves on
                    _LOG.warning("Cannot watch pods: %s: %s", type(error).__name__, error)
                    await asyncio.sleep(_PAUSE_S)
        finally:
            await api.close()

    async def _watch(self, api: ApiServer) -> None:
        """List, then take events until the API server ends the watch."""
        path = POD.path(self._namespace)
        listed = await api.get(path, labelSelector=self._selector)
        self._seen = {body["metadata"]["uid"]: observed(body) for body in listed["items"]}
        self._pods.observe(self._seen)
        events = api.watch(
            path,
            seconds=_WATCH_S,
            silence=_SILENCE_S,
            labelSelector=self._selector,
            resourceVersion=listed["metadata"]["resourceVersion"],
            allowWatchBookmarks="true",
        )
        async for event in events:
            self.take(event["type"], event["object"])

    def take(self, kind: str, body: Mapping[str, Any]) -> None:
        """Take an event.

        Raises:
            WatchEndedError: It is an error; the list has to be read again.
        """
        if kind == "ERROR":
            raise WatchEndedError(body.get("message", ""))
        if kind == "BOOKMARK":
            return
        uid = body["metadata"]["uid"]
        if kind == "DELETED":
            self._seen.pop(uid, None)
        else:
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
