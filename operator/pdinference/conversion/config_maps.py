"""ConfigMaps that are in the same file as a workload: values of variables, and scripts.

Tests: tests/conversion/test_field_points.py, tests/conversion/test_kinds.py
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pdinference.conversion.yaml_values import mapping, mappings, text, text_map

ConfigMaps = Mapping[str, Mapping[str, str]]
"""Data of the ConfigMaps of a file, by name."""


def config_maps(objects: Iterable[Mapping[str, Any]]) -> ConfigMaps:
    """The ConfigMaps among the objects of a file."""
    return {
        text(mapping(each.get("metadata")).get("name")) or "": text_map(each.get("data"))
        for each in objects
        if each.get("kind") == "ConfigMap"
    }


def mounted_files(pod: Mapping[str, Any], container: Mapping[str, Any], known: ConfigMaps) -> dict[str, str]:
    """Files from ConfigMaps in a container, by path."""
    sources = {text(volume.get("name")): dict(_files(volume, known)) for volume in mappings(pod.get("volumes"))}
    found: dict[str, str] = {}
    for mount in mappings(container.get("volumeMounts")):
        folder, inside = (text(mount.get("mountPath")) or "").rstrip("/"), text(mount.get("subPath"))
        for path, content in sources.get(text(mount.get("name")), {}).items():
            if inside is None:
                found[f"{folder}/{path}"] = content
            elif inside == path:
                found[folder] = content
    return found


def _files(volume: Mapping[str, Any], known: ConfigMaps) -> Iterator[tuple[str, str]]:
    sources = [volume, *mappings(mapping(volume.get("projected")).get("sources"))]
    for source in (mapping(each.get("configMap")) for each in sources):
        data = known.get(text(source.get("name")) or "", {})
        items = list(mappings(source.get("items")))
        if items:
            paths = {text(item.get("key")) or "": text(item.get("path")) or "" for item in items}
            yield from ((path, data[key]) for key, path in paths.items() if key in data and path)
        else:
            yield from data.items()
