"""Restores an earlier spec, with the user's credentials.

Tests: tests/cli/test_history.py, tests/cli/test_pause.py
"""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self

from pdinference.cli.history.changes import changes
from pdinference.cli.history.gitops import managed_by
from pdinference.cli.history.stored import Entry, stored
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.history.entry import with_decode_replicas
from pdinference.cluster.kinds import RESOURCE

Json = dict[str, Any]

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ATTEMPTS = 5
"""While a roll-out starts, the operator writes the status every second or so, and each write is a new version."""


@dataclass(frozen=True, slots=True)
class Undo:
    """A planned update.

    Attributes:
        body: The live resource; its resource version is the precondition.
        target: The entry whose spec is restored.
        after: The spec to write.
        skipped: Numbers of later revisions that were left out because they never served.
    """

    body: Json
    target: Entry
    after: Json
    skipped: tuple[int, ...] = ()

    @classmethod
    async def planned(cls, api: ApiServer, namespace: str, name: str | None, number: int | None) -> Self:
        """Plan an update from the current state of the cluster.

        Args:
            api: The API server.
            namespace: Namespace of the resource.
            name: Name of the resource; None for the only one of the namespace.
            number: Revision to restore; None for the last valid spec that served, other than the stored one.

        Raises:
            ApiError: The API server returned an error.
            ClickException: The resource does not exist.
            NoSuchEntryError: The history does not have the revision.
            UnreadableSpecError: The stored spec cannot be read.
        """
        found = await stored(api, namespace, name)
        target = found.last_served if number is None else found.entry(number)
        skipped = () if number is not None else tuple(entry.number for entry in found.between(target))
        # While the stored spec is invalid, the pods are those of the last valid one. A paused resource scales.
        counted = found.spec if found.current or found.paused else found.entries[0].spec
        return cls(found.body, target, dict(with_decode_replicas(target.spec, counted)), skipped)

    @property
    def resource(self) -> str:
        """Name of the resource."""
        return str(self.body["metadata"]["name"])

    @property
    def before(self) -> Json:
        """The stored spec."""
        spec: Json = self.body["spec"]
        return spec

    @property
    def changes(self) -> bool:
        """Whether the update changes the spec."""
        return any(changes(self.before, self.after))

    @property
    def warnings(self) -> list[str]:
        """What the user may not expect: a target that never served, and tools that may apply the undone edit again."""
        never = [f"Revision {self.target.number} has never served requests."] if self.target.served is False else []
        return never + self._edits_that_return()

    def _edits_that_return(self) -> list[str]:
        metadata = self.body["metadata"]
        if program := managed_by(metadata):
            return [f"{program} manages this resource and will write the undone edit again. Undo it at its source too."]
        if _LAST_APPLIED in (metadata.get("annotations") or {}):
            return ["The next `kubectl apply` of the same file brings the undone edit back. Correct the file too."]
        return []

    async def write(self, api: ApiServer) -> None:
        """Write the spec, unless the stored spec has changed since it was read.

        Raises:
            ApiError: The API server returned an error; status 409 if the spec has changed.
        """
        metadata = self.body["metadata"]
        path = RESOURCE.path(metadata["namespace"], metadata["name"])
        body = self.body
        for left in reversed(range(_ATTEMPTS)):
            try:
                await api.replace(path, {**body, "spec": self.after})
            except ApiError as error:
                if error.status != HTTPStatus.CONFLICT or not left:
                    raise
                body = await api.get(path)
                if not self._describes(body):
                    raise
            else:
                return

    def _describes(self, latest: Json) -> bool:
        """Whether this is the resource that was read, with the same spec; its status may differ."""
        same: bool = latest["metadata"]["uid"] == self.body["metadata"]["uid"] and latest["spec"] == self.before
        return same
