"""The objects of a PDInference, from what `kubectl get -o yaml` printed."""

from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, Final

import click

from pdinference.api import names
from pdinference.api.bounds import broken_bound
from pdinference.cli.explain.live_objects import ObjectCache
from pdinference.cli.yaml_files import yaml_documents
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import BATCH, RESOURCE, Kind, watched
from pdinference.cluster.state.records import ResourceRecord

Json = dict[str, Any]

_MOST_OBJECTS: Final = 20_000
_NEW: Final = {"namespace": "default", "uid": "new", "resourceVersion": "0", "generation": 1}
"""Metadata of a resource that no API server has stored yet."""
_NOT_FOUND: Final = 404
_MOST_NAMED: Final = 10


class StoredObjects(ApiServer):
    """Answers reads from objects of a file. Every other request fails: there is no connection."""

    def __init__(self, objects: Mapping[str, Json]) -> None:
        self._objects = objects

    async def get(self, path: str, *, accept: str = "application/json", **query: str) -> Json:
        """Read an object."""
        if path not in self._objects:
            raise ApiError(_NOT_FOUND, "NotFound", f"the file has no {path}")
        return self._objects[path]


def read_file(
    source: IO[str], name: str | None, namespace: str | None, *, keda: bool
) -> tuple[StoredObjects, ObjectCache, ResourceRecord]:
    """Read a PDInference and its objects from a file.

    Args:
        source: The file: a List, or several documents.
        name: Of the PDInference; None where the file has only one.
        namespace: Of the PDInference; also that of one that names none.
        keda: Whether the operator is installed to use KEDA.

    Raises:
        ClickException: It is not YAML, or exceeds what can be read, or it has no such PDInference or several.
    """
    cache, objects = ObjectCache(), {}
    for kind, body in _objects(source, namespace, watched(keda=keda)):
        if broken_bound({"object": body}) is not None:  # status included: aliases of YAML can multiply anything
            cache.left_out[kind.name] += 1
            continue
        cache.observe(kind, body, deleted=False)
        metadata = body["metadata"]
        objects[kind.path(str(metadata.get("namespace")), str(metadata.get("name")))] = body
    return StoredObjects(objects), cache, _chosen(cache, source.name, name, namespace)


def _objects(source: IO[str], namespace: str | None, read: Iterable[Kind]) -> Iterator[tuple[Kind, Json]]:
    kinds = {(kind.api_version, kind.name): kind for kind in read if kind != BATCH}
    for number, item in enumerate(_items(source)):
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


def _items(source: IO[str]) -> Iterator[Any]:
    for document in yaml_documents(source):
        items = document.get("items") if isinstance(document, dict) else None
        if isinstance(items, list):
            yield from items
        else:
            yield document


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
