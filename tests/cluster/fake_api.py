"""An API server in memory for the operator's writes: versions, uids, preconditions, and faults on demand."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from itertools import count
from typing import Any

from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError

Json = dict[str, Any]


class FakeApi(ApiServer):
    """Objects by path; `requests` counts what was asked for, by verb."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.requests: Counter[str] = Counter()
        self.faults: dict[tuple[str, str], list[ApiError]] = {}
        self._versions = count(2)  # as in etcd: the empty store has the first

    def put(self, path: str, manifest: Json) -> Json:
        """Store an object as another client."""
        old = self.objects.get(path)
        stored = deepcopy(manifest)
        metadata = stored.setdefault("metadata", {})
        metadata["uid"] = old["metadata"]["uid"] if old else metadata.get("uid", f"uid-{len(self.objects)}-{path}")
        metadata["resourceVersion"] = str(next(self._versions))
        metadata["generation"] = (old["metadata"]["generation"] if old else 0) + 1
        self.objects[path] = stored
        return deepcopy(stored)

    def fail(self, verb: str, path: str, *errors: ApiError) -> None:
        """Let the next requests fail, one with each error."""
        self.faults[verb, path] = list(errors)

    async def get(self, path: str, *, accept: str = "application/json", **query: str) -> Json:
        self._note("get", path)
        if query.keys() & {"labelSelector", "limit"}:
            return {"items": deepcopy(self._listed(path, query))}
        return deepcopy(self._found(path))

    async def page(self, path: str, *, most: int, **query: str) -> bytes:
        """A list, complete and on one page."""
        self._note("get", path)
        items = self._listed(path, query)
        return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()

    def _listed(self, path: str, query: Mapping[str, str]) -> list[Json]:
        wanted = [part.partition("=") for part in query.get("labelSelector", "").split(",") if part]
        return [
            body
            for place, body in sorted(self.objects.items())
            if place.rpartition("/")[0] == path and _selected(body["metadata"].get("labels") or {}, wanted)
        ]

    async def apply(self, path: str, manifest: Json, *, manager: str, force: bool = True) -> Json:
        """Like the real one, in what concerns `replicas`: a manager that applies without it gives it up."""
        old = self.objects.get(path, {})
        version = manifest["metadata"].get("resourceVersion")
        conflict = old and version not in {None, old["metadata"]["resourceVersion"]}
        self._note("refused" if conflict else "apply", path)
        if conflict:
            raise ApiError(409, "Conflict", "the object has been modified")
        asked = manifest.get("spec", {}).get("replicas")
        live, holder = old.get("spec", {}).get("replicas"), old.get("metadata", {}).get("replicasHeldBy")
        if asked is not None:
            holder = manager
        elif holder not in {None, manager}:
            manifest = {**manifest, "spec": {**manifest["spec"], "replicas": live}}
        elif manifest["kind"] in {"Deployment", "StatefulSet"}:
            manifest = {**manifest, "spec": {**manifest["spec"], "replicas": 1}}
        kept = {"status": old["status"]} if "status" in old else {}
        return self.put(path, {**manifest, **kept, "metadata": {**manifest["metadata"], "replicasHeldBy": holder}})

    def scale(self, path: str, count: int) -> None:
        """What a scaler does: it takes hold of the field where it changes it."""
        body = deepcopy(self.objects[path])
        if body["spec"].get("replicas") != count:
            body["spec"]["replicas"] = count
            body["metadata"]["replicasHeldBy"] = "hpa"
            self.put(path, body)

    async def create(self, path: str, manifest: Json, **query: str) -> Json:
        self._note("create", path)
        pod, _, subresource = path.rpartition("/")
        if subresource == "eviction":
            await self.delete(pod, uid=manifest["deleteOptions"]["preconditions"]["uid"])
            return {"kind": "Status", "status": "Success"}
        full = f"{path}/{manifest['metadata']['name']}"
        if full in self.objects:
            raise ApiError(409, "AlreadyExists", "exists")
        return self.put(full, manifest)

    async def create_from_yaml(self, path: str, manifest: Json) -> Json:
        return await self.create(path, manifest)

    async def replace(self, path: str, manifest: Json, **query: str) -> Json:
        self._note("dry run" if query else "replace", path)
        if manifest["metadata"].get("resourceVersion") != self._found(path)["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        return deepcopy(manifest) if query else self.put(path, manifest)

    async def merge(self, path: str, patch: Json, *, manager: str | None = None) -> Json:
        self._note("merge", path)
        path = path.removesuffix("/status")
        found = self._found(path)
        if patch.get("metadata", {}).get("uid", found["metadata"]["uid"]) != found["metadata"]["uid"]:
            raise ApiError(409, "Conflict", "uid")
        version = found["metadata"]["resourceVersion"]
        if patch.get("metadata", {}).get("resourceVersion", version) != version:
            raise ApiError(409, "Conflict", "the object has been modified")
        if not patch:
            return deepcopy(found)
        found = _merged(found, {key: value for key, value in patch.items() if key != "metadata"})
        changed = {key: value for key, value in patch.get("metadata", {}).items() if key in {"labels", "annotations"}}
        generation = found["metadata"]["generation"] + ("spec" in patch)
        found["metadata"] = {
            **_merged(found["metadata"], changed),
            "resourceVersion": str(next(self._versions)),
            "generation": generation,
        }
        self.objects[path] = found
        return deepcopy(found)

    async def delete(self, path: str, *, uid: str, resource_version: str = "") -> None:
        self._note("delete", path)
        found = self._found(path)["metadata"]
        if uid != found["uid"] or resource_version not in {"", found["resourceVersion"]}:
            raise ApiError(409, "Conflict", "precondition failed")
        if found.get("finalizers"):
            body = self.objects[path]
            self.put(path, {**body, "metadata": {**found, "deletionTimestamp": "2026-11-21T00:00:00Z"}})
        else:
            del self.objects[path]

    async def close(self) -> None:
        """Nothing is open."""

    def names(self, *parts: str) -> list[str]:
        """Names of the objects whose path has all these parts."""
        return sorted(path.rsplit("/", 1)[1] for path in self.objects if all(part in path for part in parts))

    def writes(self) -> int:
        """How many requests changed something."""
        return sum(number for verb, number in self.requests.items() if verb not in {"get", "dry run", "refused"})

    def _note(self, verb: str, path: str) -> None:
        self.requests[verb] += 1
        errors = self.faults.get((verb, path))
        if errors:
            raise errors.pop(0)

    def _found(self, path: str) -> Json:
        if path not in self.objects:
            raise ApiError(404, "NotFound", f"{path} not found")
        return self.objects[path]


def _selected(labels: Mapping[str, str], wanted: Iterable[tuple[str, str, str]]) -> bool:
    return all(labels.get(key) == value if equals else key in labels for key, equals, value in wanted)


def _merged(target: Json, patch: Json) -> Json:
    """As RFC 7386 says."""
    result = {key: value for key, value in target.items() if patch.get(key, ...) is not None}
    for key, value in patch.items():
        if isinstance(value, dict):
            before = result.get(key)
            result[key] = _merged(before if isinstance(before, dict) else {}, value)
        elif value is not None:
            result[key] = value
    return result
