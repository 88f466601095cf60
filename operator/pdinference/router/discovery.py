"""The pods of one revision, and the number of its router pods, from a watch of the API server."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pdinference.api import names
from pdinference.api.engines import engines_of
from pdinference.api.names import SERVING_ROLES, Role
from pdinference.api.pod_owner import is_of_workload
from pdinference.cluster.client import ApiServer, load_configuration
from pdinference.cluster.kinds import POD
from pdinference.router.pod import Observed, by_rank
from pdinference.router.pods import Pods

_LOG = logging.getLogger(__name__)
_PAUSE_S: Final = 1.0
_WATCH_S: Final = 240
_SILENCE_S: Final = 70.0
"""API servers send a bookmark every minute, but none while no pod changes and etcd does not report its progress.

kubeadm has etcd report it every 5 seconds. Without an option, etcd does so every 10 minutes.
"""
_USER_AGENT: Final = "pdinference-router"


class WatchEndedError(Exception):
    """The API server ended the watch with an error."""


class Discovery:
    """Keeps the pods of a revision of one PDInference. While the API server is away, the pods stay as they were.

    Args:
        pods: The pods.
        namespace: Namespace of the PDInference.
        name: Its name.
        revision: The revision.
        ranks: Data-parallel ranks of an instance of each role; one of a role that is not there.
    """

    def __init__(
        self, pods: Pods, namespace: str, name: str, revision: str, ranks: Mapping[Role, int] = MappingProxyType({})
    ) -> None:
        self._pods = pods
        self._ranks = ranks
        self._namespace = namespace
        roles = ",".join((*SERVING_ROLES, names.FURTHER_NODES[Role.PARAMETER]))
        self._selector = f"{names.LABEL_NAME}={name},{names.LABEL_REVISION}={revision},{names.LABEL_ROLE} in ({roles})"
        self._seen: dict[str, tuple[Observed, ...]] = {}
        self._further_nodes: dict[str, _FurtherNode] = {}
        self._routers: set[str] = set()

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
        """List, then take events until the watch ends."""
        path = POD.path(self._namespace)
        listed = await api.get(path, labelSelector=self._selector)
        self._seen, self._further_nodes, self._routers = {}, {}, set()
        for body in listed["items"]:
            self._note(body)
        self._observe()
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
            self._forget(uid)
        else:
            self._note(body)
        self._observe()

    def _note(self, body: Mapping[str, Any]) -> None:
        uid, labels = body["metadata"]["uid"], body["metadata"].get("labels") or {}
        if not is_of_workload(body):
            self._forget(uid)  # its workload may have given it up
        elif labels[names.LABEL_ROLE] == Role.ROUTER:
            self._routers.add(uid)
        elif labels[names.LABEL_ROLE] == names.FURTHER_NODES[Role.PARAMETER]:
            self._further_nodes[uid] = _further_node(body, labels.get(names.LABEL_POD_INDEX, ""))
        else:
            self._seen[uid] = observed(body, self._ranks)

    def _forget(self, uid: str) -> None:
        self._seen.pop(uid, None)
        self._further_nodes.pop(uid, None)
        self._routers.discard(uid)

    def _observe(self) -> None:
        self._pods.routers = max(1, len(self._routers))
        engines = (engine for engines in self._seen.values() for engine in engines)
        self._pods.observe({engine.uid: self._with_further_nodes(engine) for engine in engines})

    def _with_further_nodes(self, engine: Observed) -> Observed:
        """An engine of P with the addresses of the pods that have the same ordinal."""
        if not self._further_nodes or engine.role is not Role.PARAMETER:
            return engine
        ordinal = engine.name.partition("/")[0].rpartition("-")[2]
        hosts = {node.address for node in self._further_nodes.values() if node.instance == ordinal and node.address}
        return replace(engine, further_hosts=tuple(sorted(hosts)))


class _FurtherNode(NamedTuple):
    """A pod of a P instance that has no API of its own.

    Attributes:
        instance: Ordinal of the instance.
        address: Of the pod; empty before it has one.
    """

    instance: str
    address: str


def _further_node(body: Mapping[str, Any], instance: str) -> _FurtherNode:
    """One that has ended has no address: another pod may have got it. One that is about to end still has KV cache."""
    status = body.get("status") or {}
    ended = status.get("phase") in {"Failed", "Succeeded"}
    return _FurtherNode(instance, "" if ended else status.get("podIP", ""))


def observed(body: Mapping[str, Any], ranks: Mapping[Role, int] = MappingProxyType({})) -> tuple[Observed, ...]:
    """What matters of the engines of a pod, and of their data-parallel ranks.

    Args:
        body: The pod.
        ranks: Data-parallel ranks of an instance of each role; one of a role that is not there.
    """
    metadata, status = body["metadata"], body.get("status") or {}
    address = status.get("podIP", "")
    host = f"[{address}]" if ":" in address else address
    reachable = bool(address) and "deletionTimestamp" not in metadata
    found = []
    for engine in engines_of(body):
        suffix = f"/{engine.port_name}" if engine.shares_pod else ""
        found.append(
            Observed(
                uid=metadata["uid"] + suffix,
                name=metadata["name"] + suffix,
                role=engine.role,
                address=f"{host}:{engine.port}" if address else "",
                ready=engine.ready and reachable,
                group=metadata["uid"] if engine.shares_pod else "",
                restarts=engine.restarts,
            )
        )
    return tuple(rank for engine in found for rank in by_rank(engine, ranks.get(engine.role, 1)))
