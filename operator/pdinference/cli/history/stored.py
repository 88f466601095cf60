"""Reads a PDInference and the entries of its history from a cluster, with the user's credentials.

Tests: tests/cli/test_history.py, tests/cli/test_pause.py
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pdinference.api import names
from pdinference.cli.chosen import chosen
from pdinference.cli.connection import CommandError
from pdinference.cluster.client import ApiServer
from pdinference.cluster.history.entry import entry_name, history_record, spec_of
from pdinference.cluster.kinds import CONTROLLER_REVISION
from pdinference.cluster.state.records import is_paused, resource_record

Json = dict[str, Any]

_MOST_ENTRIES = 500


class NoSuchEntryError(CommandError):
    """The history does not have the requested entry."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry with a valid spec.

    Attributes:
        number: Revision number, as in `kubectl get controllerrevisions`.
        since: Time at which the spec was stored last (RFC 3339).
        served: Whether requests went to the spec; None if the history does not say.
    """

    number: int
    since: str
    spec: Json
    name: str
    served: bool | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A resource and its history.

    Attributes:
        body: The live resource.
        entries: Entries, newest first.
        name: Name of the entry for the stored spec, which may not exist.
    """

    body: Json
    entries: Sequence[Entry]
    name: str

    @property
    def resource(self) -> str:
        """Name of the resource."""
        return str(self.body["metadata"]["name"])

    @property
    def spec(self) -> Json:
        """The stored spec."""
        spec: Json = self.body["spec"]
        return spec

    @property
    def paused(self) -> bool:
        """Whether edits of the spec are not rolled out."""
        return is_paused(self.body["metadata"])

    @property
    def current(self) -> Entry | None:
        """The entry of the stored spec; None if the spec is invalid, withheld, or not observed by the operator yet."""
        return next((entry for entry in self.entries if entry.name == self.name), None)

    @property
    def last(self) -> Entry:
        """The last entry with a spec other than the stored one.

        Raises:
            NoSuchEntryError: There is none.
        """
        for entry in self.entries:
            if entry.name != self.name:
                return entry
        raise NoSuchEntryError("The history holds no other spec than the stored one.")

    @property
    def served(self) -> list[Entry]:
        """The entries with a spec other than the stored one that served, as far as the history says, newest first.

        Raises:
            NoSuchEntryError: There is none.
        """
        number = self.last.number
        served = [entry for entry in self.entries if entry.name != self.name and entry.served is not False]
        if not served:
            raise NoSuchEntryError(
                f"No other spec in the history has served requests. Revision {number} is the last one; store it "
                f"again with --to-revision {number}, or edit the resource."
            )
        return served

    def never_served_after(self, target: Entry) -> Iterator[int]:
        """Numbers of the entries that are newer than an entry and never served, oldest first."""
        for entry in reversed(self.entries):
            if entry.number > target.number and entry.name != self.name and entry.served is False:
                yield entry.number

    def entry(self, number: int) -> Entry:
        """The entry with a revision number.

        Raises:
            NoSuchEntryError: There is none.
        """
        for entry in self.entries:
            if entry.number == number:
                return entry
        known = ", ".join(str(entry.number) for entry in self.entries) or "none"
        raise NoSuchEntryError(f"The history holds no revision {number}. It holds: {known}.")


class UnreadableSpecError(CommandError):
    """The stored spec is too large or too deep."""


async def stored(api: ApiServer, namespace: str, name: str | None) -> Stored:
    """Read a resource, without a name the only one of the namespace, and its history.

    Raises:
        ApiError: The API server returned an error.
        ClickException: The resource does not exist.
        UnreadableSpecError: The stored spec is too large or too deep.
    """
    body = await chosen(api, namespace, name)
    record = resource_record(names.KIND, body)
    if record.unreadable:
        raise UnreadableSpecError(f"The stored spec cannot be read. {record.unreadable}")
    selector = f"{names.HISTORY_SELECTOR},{names.LABEL_NAME}={record.owner.name}"
    place = CONTROLLER_REVISION.path(namespace)
    found = await api.get(place, labelSelector=selector, limit=str(_MOST_ENTRIES))
    entries = [entry for item in found["items"] if (entry := _entry(item, record.uid)) is not None]
    return Stored(body, sorted(entries, key=lambda entry: (entry.number, entry.name), reverse=True), entry_name(record))


def _entry(body: Json, owner_uid: str) -> Entry | None:
    spec = spec_of(body, owner_uid)
    if spec is None:
        return None
    record = history_record(body)
    return Entry(record.number, _since(body["metadata"]), spec, record.key.name, record.served)


def _since(metadata: Json) -> str:
    """Time of the operator's last write of an entry."""
    own = (e for e in metadata.get("managedFields") or () if e.get("manager") == names.FIELD_MANAGER)
    times = [str(entry["time"]) for entry in own if "time" in entry]
    return max(times, default=str(metadata.get("creationTimestamp", "")))
