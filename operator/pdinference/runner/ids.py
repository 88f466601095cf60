"""Which requests were seen: a set of names that needs 10 to 24 bytes for each, however long the names are."""

import os
from array import array
from hashlib import blake2b

_FIRST_SLOTS = 1 << 12
_FULLEST = (2, 3)
"""Slots taken, of all."""


class IdSet:
    """A set of custom_ids, of which it keeps hashes of 64 bits.

    The key of the hash is random, so nobody can write names that collide. Among 5 million names, two that differ are
    taken for the same once in a million batches; that request then gets an error line.
    """

    def __init__(self) -> None:
        self._key = os.urandom(16)
        self._slots = array("Q", bytes(8 * _FIRST_SLOTS))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, name: str) -> bool:
        number = self._hash(name)
        return self._slots[_slot(self._slots, number)] == number

    def add(self, name: str) -> bool:
        """Add a name; whether it is new."""
        if self._count * _FULLEST[1] >= len(self._slots) * _FULLEST[0]:
            self._grow()
        number = self._hash(name)
        slot = _slot(self._slots, number)
        if self._slots[slot]:
            return False
        self._slots[slot] = number
        self._count += 1
        return True

    def _hash(self, name: str) -> int:
        digest = blake2b(name.encode(errors="surrogatepass"), digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "little") or 1  # 0 is an empty slot

    def _grow(self) -> None:
        larger = array("Q", bytes(16 * len(self._slots)))
        for number in self._slots:
            if number:
                larger[_slot(larger, number)] = number
        self._slots = larger


def _slot(slots: "array[int]", number: int) -> int:
    """Where a number is, or the empty slot that it would take."""
    mask = len(slots) - 1
    slot = number & mask
    while slots[slot] not in (0, number):
        slot = (slot + 1) & mask
    return slot
