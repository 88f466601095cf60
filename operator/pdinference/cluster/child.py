"""A rendered manifest with what identifies it. Imports little: processes without a client make these, too."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Self

from pdinference.api import names
from pdinference.cluster.kinds import ChildKey
from pdinference.planning.scaling.replicas import WantedCount

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Child:
    """A manifest with what identifies it.

    Attributes:
        pods: How many pods the workload should have, where its manifest leaves that open.
        last: Whether it is applied only when all others are in order. The existence of such a child means that the
            others are complete.
    """

    key: ChildKey
    manifest: Json
    fingerprint: str
    pods: WantedCount | None = None
    last: bool = False

    @classmethod
    def of(cls, manifest: Json) -> Self:
        """From a rendered manifest."""
        return cls(child_key(manifest), manifest, applied_hash(manifest))

    def counted(self, counts: Mapping[ChildKey, WantedCount]) -> Self:
        """The same with how many pods it should have, if that is among the counts."""
        return replace(self, pods=counts.get(self.key))

    def marked(self) -> Json:
        """The manifest with its own hash in an annotation."""
        metadata = self.manifest["metadata"]
        annotations = {**(metadata.get("annotations") or {}), names.ANNOTATION_APPLIED_HASH: self.fingerprint}
        return {**self.manifest, "metadata": {**metadata, "annotations": annotations}}


def applied_hash(manifest: Mapping[str, Any]) -> str:
    """Identity of a manifest."""
    text = json.dumps(manifest, separators=(",", ":"), sort_keys=True).encode()
    return blake2b(text, digest_size=12).hexdigest()


def child_key(manifest: Mapping[str, Any]) -> ChildKey:
    """Where a manifest's object is."""
    return ChildKey(manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"])
