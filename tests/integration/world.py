"""Access of a test to the cluster, and the actions of users and kubelets."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import takewhile
from typing import Any

from e2e.cluster import Cluster
from pdinference.api import names
from pdinference.api.names import SERVING_ROLES, Role
from pdinference.api.validation import validated
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CHILD_BY_NAME, CHILDREN, POD, RESOURCE, Kind
from pdinference.manifests import RenderSettings, render
from tests.waiting import until

READY_STATUS = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
READS = frozenset({"get", "list", "watch"})
CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_INSTALLED: dict[tuple[str, str], tuple[Any, Json]] = {}
"""What was applied last, by cluster and path, and which version of the object that made.

An API server compiles all CEL rules of a CRD at each apply, also when nothing changes: a third of its CPU here.
"""


def _is_whole(line: bytes) -> bool:
    return line.endswith(b"\n")


def _version(crd: Json) -> tuple[str, int]:
    """Another one after any change of the spec."""
    return crd["metadata"]["uid"], crd["metadata"]["generation"]


class World:
    """One namespace of a cluster."""

    def __init__(self, cluster: Cluster, api: ApiServer, namespace: str) -> None:
        self.cluster = cluster
        self.api = api
        self.namespace = namespace

    async def discard(self) -> None:
        """Let Kubernetes delete the namespace and all that is in it."""
        path = f"/api/v1/namespaces/{self.namespace}"
        await self.api.delete(path, uid=(await self.api.get(path))["metadata"]["uid"])

    async def install_crd(self, crd: Json) -> None:
        path = f"{CRD_PATH}/{crd['metadata']['name']}"
        with suppress(ApiError):
            if _INSTALLED.get((self.cluster.name, path)) == (_version(await self.api.get(path)), crd):
                return
        _INSTALLED[self.cluster.name, path] = _version(await self.api.apply(path, crd, manager="test")), crd
        spec = crd["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"

        async def served() -> bool:
            with suppress(ApiError):
                await self.api.get(path)
                return True
            return False

        await until(served, "the CRD is served")

    def resource(self, name: str = "llama", **spec: Any) -> Json:
        """A minimal resource, with parts of its spec replaced."""
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"model": {"source": {"path": "/models/tiny"}}, **spec},
        }

    async def apply(self, name: str = "llama", **spec: Any) -> Json:
        """What `kubectl apply --server-side` does."""
        path = RESOURCE.path(self.namespace, name)
        return await self.api.apply(path, self.resource(name, **spec), manager="test")

    async def delete(self, kind: Kind, name: str) -> None:
        uid = (await self.api.get(kind.path(self.namespace, name)))["metadata"]["uid"]
        await self.api.delete(kind.path(self.namespace, name), uid=uid)

    async def get(self, kind: Kind, name: str) -> Json | None:
        try:
            return await self.api.get(kind.path(self.namespace, name))
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    async def status(self, name: str = "llama") -> Json:
        found = await self.get(RESOURCE, name)
        status: Json = (found or {}).get("status", {})
        return status

    async def condition(self, type_: str, name: str = "llama") -> Json:
        conditions = (await self.status(name)).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == type_), {})

    async def says(self, type_: str, *words: str) -> None:
        """Wait until a condition has all of these words in its status, its reason or its message."""
        said = ""

        async def so() -> bool:
            nonlocal said
            found = await self.condition(type_)
            said = f"{found.get('status')} {found.get('reason')}: {found.get('message')}"
            return all(word in said for word in words)

        try:
            await until(so, f"{type_} says {words}")
        except AssertionError as error:
            raise AssertionError(said) from error

    async def rolled_out(self) -> None:
        """Wait until the roll-out is complete."""

        async def complete() -> bool:
            return (await self.condition("Progressing")).get("reason") == "RolloutComplete"

        await until(complete, "the roll-out is complete")

    async def refusal_of(self, name: str = "llama") -> str:
        """What the conditions say of a resource that is not valid."""

        async def reported() -> bool:
            return (await self.condition("Progressing", name)).get("reason") == "InvalidSpec"

        await until(reported, f"the invalid spec of {name} is reported")
        message: str = (await self.condition("Progressing", name))["message"]
        return message

    async def children(self, name: str = "llama") -> dict[tuple[str, str], Json]:
        """Live children by kind and name."""
        selector = f"{names.MANAGED_SELECTOR},{names.LABEL_NAME}={name}"
        found = {}
        for kind in CHILDREN:
            for item in await self._listed(kind, selector):
                found[kind.name, item["metadata"]["name"]] = item
        return found

    async def _listed(self, kind: Kind, selector: str) -> list[Json]:
        try:
            items: list[Json] = (await self.api.get(kind.path(self.namespace), labelSelector=selector))["items"]
        except ApiError as error:
            if error.status != 404 or not kind.optional:
                raise
            return []
        return items

    async def complete(self, name: str = "llama") -> bool:
        """Whether a minimal resource has all children that it should have, and no other."""
        objects = render(validated(self.resource(name)), RenderSettings()).objects
        return set(await self.children(name)) == {(child["kind"], child["metadata"]["name"]) for child in objects}

    async def pods(self, role: Role, revision: str | None = None) -> list[Json]:
        labels = names.role_selector("llama", role, revision)
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        items: list[Json] = (await self.api.get(POD.path(self.namespace), labelSelector=selector))["items"]
        return items

    async def settled(self, name: str = "llama") -> None:
        """Wait until the operator has acted on the latest spec."""

        async def observed() -> bool:
            found = await self.get(RESOURCE, name) or {}
            seen, latest = found.get("status", {}), found.get("metadata", {})
            return bool(seen.get("observedGeneration") == latest.get("generation"))

        await until(observed, f"{name} is observed")

    async def make_ready(self, revision: str, roles: Iterable[Role] = SERVING_ROLES) -> None:
        """Play the kubelet: all pods of this revision run and are ready, as soon as they exist."""
        for role in roles:

            async def exists(role: Role = role) -> bool:
                return bool(await self.pods(role, revision))

            await until(exists, f"there is a {role} pod of {revision}")
            for pod in await self.pods(role, revision):
                path = POD.path(self.namespace, pod["metadata"]["name"]) + "/status"
                await self.api.merge(path, {"status": READY_STATUS})

    async def serving(self, roles: Iterable[Role] = SERVING_ROLES) -> str:
        """Roll out the stored spec, which has these roles, and wait until it serves. Returns its revision."""
        await self.settled()
        revision: str = (await self.status())["revision"]
        await self.make_ready(revision, roles)

        async def serves() -> bool:
            return (await self.status()).get("servingRevision") == revision

        await until(serves, f"{revision} serves")
        return revision

    def audit_mark(self) -> int:
        """A place in the audit log, for `requests`."""
        return self.cluster.audit_log.stat().st_size

    def requests(self, mark: int) -> Counter[tuple[str, str]]:
        """The operator's requests in this namespace since a mark, by verb and resource."""
        return Counter(
            (event["verb"], event["objectRef"]["resource"])
            for event in self.audited(mark)
            if event["objectRef"]["resource"] != "leases"
        )

    def audited(self, mark: int) -> Iterator[Json]:
        """What the audit log has of the operator's requests in this namespace since a mark, in order."""
        for event in self.audit_events(mark):
            if (
                event["stage"] == "ResponseComplete"
                and event.get("userAgent") == names.FIELD_MANAGER
                and event.get("objectRef", {}).get("namespace") == self.namespace
                and "resource" in event["objectRef"]
            ):
                yield event

    def audit_events(self, mark: int) -> Iterator[Json]:
        """All of the audit log since a mark, without lines of which a part was written then, or is now."""
        with self.cluster.audit_log.open("rb") as log:
            if mark:
                log.seek(mark - 1)
                log.readline()
            yield from map(json.loads, takewhile(_is_whole, log))

    def writes(self, mark: int) -> Counter[tuple[str, str]]:
        """The same, without reads."""
        return Counter({key: n for key, n in self.requests(mark).items() if key[0] not in READS})


SERVICE = CHILD_BY_NAME["Service"]
SERVICE_ACCOUNT = CHILD_BY_NAME["ServiceAccount"]
