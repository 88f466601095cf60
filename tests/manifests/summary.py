"""The pinned summary of most examples' children: a digest of each, and commands and environment of pods."""

import hashlib
import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

Json = dict[str, Any]


def summary(objects: Sequence[Json]) -> Json:
    """The children by kind and name; a digest shows that one has changed, `pdinference render` shows what."""
    return {f"{item['kind']}/{item['metadata']['name']}": _digest(item) for item in objects} | {
        f"{item['metadata']['name']}/{name}": facts for item in objects for name, facts in _containers(item)
    }


def _digest(item: Json) -> str:
    return hashlib.sha256(json.dumps(item, sort_keys=True).encode()).hexdigest()[:16]


def _containers(item: Json) -> Iterator[tuple[str, Json]]:
    pod = item["spec"].get("template", {}).get("spec", {}) if "spec" in item else {}
    for container in [*pod.get("initContainers", ()), *pod.get("containers", ())]:
        yield (
            container["name"],
            {
                "image": container["image"],
                "runs": shlex.join([*container.get("command", ()), *container.get("args", ())]),
                "resources": json.dumps(container.get("resources", {})),
            },
        )
