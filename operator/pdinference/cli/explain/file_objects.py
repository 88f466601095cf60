"""Reads the objects of a PDInference from the output of `kubectl get -o yaml`.

Tests: tests/cli/test_explain_files.py
"""

from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import IO, Any, Final

import click

from pdinference.api import names
from pdinference.api.bounds import broken_bound
from pdinference.cli.explain.live_objects import ObjectCache
from pdinference.cli.yaml_files import objects_in
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import BATCH, RESOURCE, Kind, watched
from pdinference.cluster.state.records import ResourceRecord

Json = dict[str, Any]

_MOST_OBJECTS: Final = 20_000
_NEW: Final = {"namespace": "default", "uid": "new", "resourceVersion": "0", "generation": 1}
"""Metadata for a resource that is not stored in an API server yet."""
_MOST_NAMED: Final = 10


class StoredObjects(ApiServer):
    """An API server that reads objects from a file. All other requests fail."""

    def __init__(self, objects: Mapping[str, Json]) -> None:
        self._objects = objects

    async def get(self, path: str, *, accept: str = "application/json", **query: str) -> Json:
        """Read an object."""
        if path not in self._objects:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", f"the file has no {path}")
        return self._objects[path]


def read_file(
    source: IO[str], name: str | None, namespace: str | None, *, keda: bool
) -> tuple[StoredObjects, ObjectCache, ResourceRecord]:
    """Read a PDInference and its objects from a file.

    Args:
        source: The file: a List, or several documents.
        name: Name of the PDInference; None if the file has only one.
        namespace: Namespace of the PDInference, and default namespace of objects.
        keda: Whether the operator is installed with KEDA support.

    Raises:
        ClickException: The file is not YAML, is too large, or does not have exactly one such PDInference.
    """
    cache, objects = ObjectCache(), {}
    for kind, body in _objects(source, namespace, watched(keda=keda)):
        if broken_bound({"object": body}) is not None:  # including the status: YAML aliases can multiply values
            cache.left_out[kind.name] += 1
            continue
        cache.observe(kind, body, deleted=False)
        metadata = body["metadata"]
        objects[kind.path(str(metadata.get("namespace")), str(metadata.get("name")))] = body
    return StoredObjects(objects), cache, _chosen(cache, source.name, name, namespace)


def _objects(source: IO[str], namespace: str | None, read: Iterable[Kind]) -> Iterator[tuple[Kind, Json]]:
    kinds = {(kind.api_version, kind.name): kind for kind in read if kind != BATCH}
    for number, item in enumerate(objects_in(source)):
        if number >= _MOST_OBJECTS:
            raise click.ClickException(f"{source.name} has more than {_MOST_OBJECTS} objects. Use fewer.")
        if not isinstance(item, dict) or not isinstance(metadata := item.get("metadata"), dict):
            continue
        kind = kinds.get((str(item.get("apiVersion")), str(item.get("kind"))))
        if kind == RESOURCE:
            own = {"namespace": namespace} if namespace is not None else {}
            yield kind, {**item, "metadata": {**_NEW, **own, **metadata}}
        elif kind is not None:
            yield kind, item


def _chosen(cache: ObjectCache, file: str, name: str | None, namespace: str | None) -> ResourceRecord:
    found = [
        record
        for _, record in cache.resources.items()
        if name in {None, record.owner.name} and namespace in {None, record.owner.namespace}
    ]
    if len(found) == 1:
        return found[0]
    if cache.left_out[names.KIND]:
        raise click.ClickException(f"{file} has a {names.KIND} that cannot be read.")
    if not found:
        wanted = f" of the name {name}" if name is not None else ""
        raise click.ClickException(f"{file} has no {names.KIND}{wanted}.")
    known = ", ".join(str(record.owner) for record in found[:_MOST_NAMED])
    raise click.ClickException(f"{file} has several resources: {known}. Add NAME, or -n NAMESPACE.")
