"""A rendered manifest with what identifies it. Imports little: processes without a client make these, too."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Self

from pdinference.api import names
from pdinference.cluster.kinds import ChildKey

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Child:
    """A manifest with what identifies it.

    Attributes:
        replicas: How many replicas the workload should have; None where its manifest alone decides.
        last: Whether it is applied only when all others are in order. The existence of such a child means that the
            others are complete.
    """

    key: ChildKey
    manifest: Json
    fingerprint: str
    replicas: int | None = None
    last: bool = False

    @classmethod
    def of(cls, manifest: Json) -> Self:
        """From a rendered manifest."""
        return cls(child_key(manifest), manifest, applied_hash(manifest))

    def scaled(self, replicas: Mapping[ChildKey, int]) -> Self:
        """The same with its number of replicas, if that is among these."""
        return replace(self, replicas=replicas.get(self.key))

    def marked(self) -> Json:
        """The manifest with its number of replicas, and its own hash in an annotation."""
        metadata = self.manifest["metadata"]
        annotations = {**(metadata.get("annotations") or {}), names.ANNOTATION_APPLIED_HASH: self.fingerprint}
        marked = {**self.manifest, "metadata": {**metadata, "annotations": annotations}}
        if self.replicas is not None:
            marked["spec"] = {**marked["spec"], "replicas": self.replicas}
        return marked


def applied_hash(manifest: Mapping[str, Any]) -> str:
    """Identity of a manifest."""
    text = json.dumps(manifest, separators=(",", ":"), sort_keys=True).encode()
    return blake2b(text, digest_size=12).hexdigest()


def child_key(manifest: Mapping[str, Any]) -> ChildKey:
    """Where a manifest's object is."""
    return ChildKey(manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"])
