"""A rendered manifest with its identity. Imports no client, because processes without a client use it, too.

Tests: tests/cluster/test_apply.py
"""

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
    """A manifest with its identity.

    Attributes:
        replicas: Replica count of the workload; None if the manifest sets it.
        last: Whether it is applied only after all other children are in order. The existence of such a child means
            that the others are complete.
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
        """The same child with its replica count, if `replicas` has one for it."""
        return replace(self, replicas=replicas.get(self.key))

    def marked(self) -> Json:
        """The manifest with the replica count, and with its hash in an annotation."""
        metadata = self.manifest["metadata"]
        annotations = {**(metadata.get("annotations") or {}), names.ANNOTATION_APPLIED_HASH: self.fingerprint}
        marked = {**self.manifest, "metadata": {**metadata, "annotations": annotations}}
        if self.replicas is not None:
            marked["spec"] = {**marked["spec"], "replicas": self.replicas}
        return marked


def applied_hash(manifest: Mapping[str, Any]) -> str:
    """Hash of a manifest."""
    text = json.dumps(manifest, separators=(",", ":"), sort_keys=True).encode()
    return blake2b(text, digest_size=12).hexdigest()


def child_key(manifest: Mapping[str, Any]) -> ChildKey:
    """Key of the object of a manifest."""
    return ChildKey(manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"])
