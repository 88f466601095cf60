"""Finds pod templates in objects of any kind: at any depth, a map with `containers` or Dynamo's `mainContainer`.

Tests: tests/conversion/test_kinds.py
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pdinference.api.names import Role
from pdinference.conversion.yaml_values import mapping, mappings, number, text, text_map

_MAIN = "mainContainer"
_GROUPS = {
    "ModelServing": ("spec", "replicas"),
    "StormService": ("spec", "replicas"),
    "DisaggregatedSet": ("spec", "slices"),
}
"""Kinds in which another number multiplies the replicas of each role."""
_WORKERS = frozenset({"worker", "workerTemplate"})
_OTHER_FOLDERS = frozenset({"status", "managedFields", "annotations", "initContainers"})
_P = re.compile(r"pre-?fill|producer", re.IGNORECASE)
_D = re.compile(r"decod|consumer", re.IGNORECASE)


@dataclass(frozen=True)
class PodTemplate:
    """A pod template within an object.

    Attributes:
        document: The object.
        path: Path of the pod spec within the object.
        above: The maps that contain the pod spec, the object first.
        pod: The pod spec.
    """

    document: Mapping[str, Any]
    path: tuple[str, ...]
    above: tuple[Mapping[str, Any], ...]
    pod: Mapping[str, Any]

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        """The containers of the pod."""
        main = self.pod.get(_MAIN)
        return [*mappings(self.pod.get("containers")), *([main] if isinstance(main, Mapping) else [])]

    @property
    def place(self) -> str:
        """The object and the path, for messages."""
        name = text(mapping(self.document.get("metadata")).get("name")) or ""
        return f"{text(self.document.get('kind')) or 'values'} {name}".strip() + f", {'.'.join(self.path)}"

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the pod."""
        return text_map(mapping(self.above[-1].get("metadata")).get("labels"))

    @property
    def worker_of(self) -> tuple[str, ...] | None:
        """The path of the instance in which the pods are workers; None if they may start it."""
        at = next((at for at, part in enumerate(self.path) if part in _WORKERS), None)
        return None if at is None else self.path[:at]

    @property
    def replicas(self) -> int | None:
        """The number of instances: of the nearest map that has one, times that of a group of roles."""
        if self.document.get("kind") == "Pod":
            return None
        own = next((n for each in reversed(self.above) if (n := number(each.get("replicas"))) is not None), None)
        group = _GROUPS.get(text(self.document.get("kind")) or "")
        outer: Any = self.document
        for part in group or ():
            outer = mapping(outer).get(part)
        nearest = next((each for each in reversed(self.above) if "replicas" in each), None)
        times = number(outer) if group and nearest is not self.document.get("spec") else None
        return own if times is None else (1 if own is None else own) * times

    @property
    def nodes(self) -> int:
        """The number of pods of an instance, each on a node of its own."""
        for each in reversed(self.above):
            workers = number(each.get("workerReplicas"))
            sizes = (
                number(each.get("size")) if "workerTemplate" in each else None,
                number(mapping(each.get("multinode")).get("nodeCount")),
                number(each.get("podGroupSize")),
                None if workers is None else workers + 1,
            )
            if (size := next((size for size in sizes if size), None)) is not None:
                return size
        return 1

    def role(self, container: Mapping[str, Any]) -> Role | None:
        """The role that the nearest name or label suggests: of the container, of the maps around it, of the object."""
        return next((role for name in self._names(container) if (role := role_named(name))), None)

    def _names(self, container: Mapping[str, Any]) -> Iterator[str]:
        yield text(container.get("name")) or ""
        for at in range(len(self.above) - 1, -1, -1):
            each = self.above[at]
            yield self.path[at] if at < len(self.path) else ""
            for key in ("subComponentType", "componentType", "type", "name", "role"):
                yield text(each.get(key)) or ""
            metadata = mapping(each.get("metadata"))
            yield text(metadata.get("name")) or ""
            yield from text_map(metadata.get("labels")).values()
            yield self.path[at - 1] if at else ""


def role_named(name: str) -> Role | None:
    """The role that a name has a word for; None for both or neither."""
    p, d = _P.search(name) is not None, _D.search(name) is not None
    return None if p == d else Role.PARAMETER if p else Role.DECODE


def pod_templates(document: Mapping[str, Any]) -> list[PodTemplate]:
    """All pod templates of an object that is within the bounds of api/bounds.py, in their order."""
    return list(_templates(document, document, (), ()))


def _templates(
    document: Mapping[str, Any], node: Any, path: tuple[str, ...], above: tuple[Mapping[str, Any], ...]
) -> Iterator[PodTemplate]:
    if isinstance(node, Mapping):
        if isinstance(node.get(_MAIN), Mapping) or next(mappings(node.get("containers")), None) is not None:
            yield PodTemplate(document, path, above or (node,), node)
            return
        for key, value in node.items():
            if key not in _OTHER_FOLDERS:
                yield from _templates(document, value, (*path, str(key)), (*above, node))
    elif isinstance(node, list):
        for at, item in enumerate(node):
            name = text(mapping(item).get("name"))
            inner = (*path[:-1], f"{path[-1] if path else ''}[{name or at}]")
            yield from _templates(document, item, inner, above)
