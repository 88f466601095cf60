"""Restores an earlier spec, with the user's credentials.

Tests: tests/cli/test_history.py, tests/cli/test_pause.py
"""

from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self

from pdinference.api.plain_text import first_of
from pdinference.cli.connection import CommandError
from pdinference.cli.history.changes import ABSENT, changes
from pdinference.cli.history.gitops import managed_by
from pdinference.cli.history.stored import Entry, NoSuchEntryError, stored
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.history.entry import with_decode_replicas
from pdinference.cluster.kinds import RESOURCE

Json = dict[str, Any]

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MOST_FIELDS = 8
_ATTEMPTS = 5
"""While a roll-out starts, the operator writes the status every second or so, and each write is a new version."""


class ChangedMeanwhileError(CommandError):
    """The spec was changed after it had been read."""


@dataclass(frozen=True, slots=True)
class Undo:
    """A planned update.

    Attributes:
        body: The live resource; its resource version is the precondition.
        target: The entry whose spec is restored.
        after: The spec as the API server will store it, in which its CRD may lack fields and add defaults.
        skipped: Numbers of later revisions that were left out because they never served.
        altered: Fields of the entry that the API server will store with another value, or not at all.
    """

    body: Json
    target: Entry
    after: Json
    skipped: tuple[int, ...] = ()
    altered: tuple[str, ...] = ()

    @classmethod
    async def planned(cls, api: ApiServer, namespace: str, name: str | None, number: int | None) -> Self:
        """Plan an update from the current state of the cluster. Sends updates as dry runs.

        Args:
            api: The API server.
            namespace: Namespace of the resource.
            name: Name of the resource; None for the only one of the namespace.
            number: Revision to restore; None for the last valid spec that served, other than the stored one. A spec
                that differs only in what the installed CRD drops or adds by default counts as the stored one.

        Raises:
            ApiError: The API server returned an error.
            ChangedMeanwhileError: The spec was changed after it had been read.
            ClickException: The resource does not exist.
            NoSuchEntryError: The history does not have the revision.
            UnreadableSpecError: The stored spec cannot be read.
        """
        found = await stored(api, namespace, name)
        targets = found.served if number is None else [found.entry(number)]
        # While the stored spec is invalid, the pods are those of the last valid one. A paused resource scales.
        counted = found.spec if found.current or found.paused else found.entries[0].spec
        for target in targets:
            spec = dict(with_decode_replicas(target.spec, counted))
            after: Json = (await _replaced(api, found.body, spec, dryRun="All"))["spec"]
            if after != found.spec or number is not None:
                skipped = () if number is not None else tuple(found.never_served_after(target))
                return cls(found.body, target, after, skipped, tuple(_altered(spec, after)))
        raise NoSuchEntryError(
            "With the defaults of the installed CRD, each other spec of the history is the stored one."
        )

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
        """What the user may not expect: fields that stay lost, a target that never served, edits that return."""
        found = self._fields_of_another_version()
        if self.changes:
            if self.target.served is False:
                found.append(f"Revision {self.target.number} has never served requests.")
            found += self._edits_that_return()
        return found

    def _fields_of_another_version(self) -> list[str]:
        if not self.altered:
            return []
        fields = first_of(self.altered, _MOST_FIELDS)
        number = self.target.number
        return [f"Revision {number} is of another version than the installed CRD, which does not keep {fields}."]

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
            ApiError: The API server returned an error.
            ChangedMeanwhileError: The spec was changed after it had been read.
        """
        await _replaced(api, self.body, self.after)


async def _replaced(api: ApiServer, body: Json, spec: Json, **query: str) -> Json:
    """Replace the spec of a resource as it was read, whose status may change meanwhile. Returns what is stored."""
    metadata = body["metadata"]
    path = RESOURCE.path(metadata["namespace"], metadata["name"])
    latest, left = body, _ATTEMPTS
    while True:
        try:
            return await api.replace(path, {**latest, "spec": spec}, **query)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            left -= 1
            latest = await api.get(path)
            same = latest["metadata"]["uid"] == metadata["uid"] and latest["spec"] == body["spec"]
            if not (left and same):
                name = metadata["name"]
                raise ChangedMeanwhileError(f"{name} was changed meanwhile. Nothing was written; try again.") from None


def _altered(spec: Json, after: Json) -> Iterator[str]:
    """Fields that the API server does not store as they are; defaults that it adds are none."""
    return (change.path for change in changes(spec, after) if change.before is not ABSENT)
