"""Storing an earlier spec again, by the user's own rights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pdinference.cli.history.changes import changes
from pdinference.cli.history.gitops import managed_by
from pdinference.cli.history.stored import Entry, stored
from pdinference.cluster.client import ApiServer
from pdinference.cluster.kinds import RESOURCE

Json = dict[str, Any]

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class Undo:
    """An update that is not written yet.

    Attributes:
        body: The live resource; its resource version is the precondition.
        target: The entry whose spec is restored.
        after: The spec that is written.
    """

    body: Json
    target: Entry
    after: Json

    @classmethod
    async def planned(cls, api: ApiServer, namespace: str, name: str, number: int | None) -> Self:
        """From what the cluster holds now.

        Args:
            api: The API server.
            namespace: Of the resource.
            name: Of the resource.
            number: Revision to restore; None for the last valid spec other than the stored one.

        Raises:
            ApiError: The API server refused, or there is no such resource.
            NoSuchEntryError: The history lacks the revision.
            UnreadableSpecError: The stored spec cannot be read.
        """
        found = await stored(api, namespace, name)
        target = found.last if number is None else found.entry(number)
        # While the stored spec is invalid, the pods are those of the last valid one.
        valid = found.current or found.entries[0]
        return cls(found.body, target, with_decode_replicas(target.spec, valid.spec))

    @property
    def before(self) -> Json:
        """The stored spec."""
        spec: Json = self.body["spec"]
        return spec

    @property
    def changes(self) -> bool:
        """Whether anything is different."""
        return any(changes(self.before, self.after))

    @property
    def warnings(self) -> list[str]:
        """Who may write the undone edit again."""
        metadata = self.body["metadata"]
        if program := managed_by(metadata):
            return [f"{program} manages this resource and will write the undone edit again. Undo it at its source too."]
        if _LAST_APPLIED in (metadata.get("annotations") or {}):
            return ["The next `kubectl apply` of the same file brings the undone edit back. Correct the file too."]
        return []

    async def write(self, api: ApiServer) -> None:
        """Store the spec, unless the resource was changed since it was read.

        Raises:
            ApiError: The API server refused: with status 409 because of such a change.
        """
        metadata = self.body["metadata"]
        path = RESOURCE.path(metadata["namespace"], metadata["name"])
        await api.replace(path, {**self.body, "spec": self.after})


def with_decode_replicas(spec: Json, source: Mapping[str, Any]) -> Json:
    """A spec with the number of decode pods of another one."""
    decode = source.get("decode") or {}
    if "replicas" not in decode:
        return spec
    return {**spec, "decode": {**(spec.get("decode") or {}), "replicas": decode["replicas"]}}
