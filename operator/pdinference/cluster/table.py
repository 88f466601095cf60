"""Records of one kind, by key and by owner. A record never goes back to an older resource version.

Tests: tests/cluster/test_cache.py
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from pdinference.cluster.kinds import Owner

_TOMBSTONES = 4096


class Versioned(Protocol):
    """Fields that every record has."""

    @property
    def uid(self) -> str: ...  # noqa: D102
    @property
    def version(self) -> int: ...  # noqa: D102
    @property
    def owner(self) -> Owner | None: ...  # noqa: D102


RecordT = TypeVar("RecordT", bound=Versioned)
Key = tuple[str, ...]


class Table(Generic[RecordT]):
    """Records of live objects.

    Args:
        carry: Called with the new and the replaced record of the same object, to carry over fields of the cache.
    """

    def __init__(self, carry: Callable[[RecordT, RecordT], None] = lambda new, old: None) -> None:
        self._records: dict[Key, RecordT] = {}
        self._owned: dict[Owner, dict[Key, RecordT]] = {}
        self._gone: OrderedDict[str, int] = OrderedDict()  # uid -> version at which the object was deleted
        self._carry = carry

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: Key) -> RecordT | None:
        """The record with this key."""
        return self._records.get(key)

    def owned_by(self, owner: Owner) -> list[RecordT]:
        """The records of all objects that belong to this resource."""
        return list(self._owned.get(owner, {}).values())

    def items(self) -> Iterator[tuple[Key, RecordT]]:
        """A snapshot of all records."""
        return iter(list(self._records.items()))

    def put(self, key: Key, record: RecordT) -> bool:
        """Store a newer state of an object. Returns False if the cache has a newer state or the deletion."""
        old = self._records.get(key)
        if old is not None and old.version > record.version > 0:
            return False
        if self._gone.get(record.uid, -1) >= record.version > 0:
            return False
        if old is not None:
            if old.uid == record.uid:
                self._carry(record, old)
            self._disown(key, old)
        self._records[key] = record
        if record.owner is not None:
            self._owned.setdefault(record.owner, {})[key] = record
        return True

    def remove(self, key: Key, uid: str, version: int) -> RecordT | None:
        """Remove a deleted object. A newer object with the same key stays."""
        self._gone[uid] = max(version, self._gone.get(uid, 0))
        self._gone.move_to_end(uid)
        if len(self._gone) > _TOMBSTONES:
            self._gone.popitem(last=False)
        old = self._records.get(key)
        if old is None or old.uid != uid or old.version > version > 0:
            return None
        del self._records[key]
        self._disown(key, old)
        return old

    def replace(self, listed: Iterable[tuple[Key, RecordT]], version: int, within: Callable[[Key], bool]) -> set[Owner]:
        """Replace the records by a complete list. Returns the owners of all records that differed.

        Args:
            listed: Every object of the list.
            version: Resource version of the list. Newer records stay, whether listed or not.
            within: Whether the list covers a key, for a list of one namespace.
        """
        touched: set[Owner] = set()
        seen: set[Key] = set()
        for key, record in listed:
            seen.add(key)
            old = self._records.get(key)
            if (old is None or old.version != record.version or old.uid != record.uid) and self.put(key, record):
                touched |= _owners(record) if old is None else _owners(record, old)
        for key, record in self.items():
            if key not in seen and within(key) and record.version <= version:
                self.remove(key, record.uid, version)
                touched |= _owners(record)
        return touched

    def _disown(self, key: Key, record: RecordT) -> None:
        if record.owner is None:
            return
        owned = self._owned.get(record.owner, {})
        owned.pop(key, None)
        if not owned:
            self._owned.pop(record.owner, None)


def _owners(*records: Versioned) -> set[Owner]:
    return {record.owner for record in records if record.owner is not None}
