"""A compact set of custom_ids, which needs 10 to 24 bytes for each name of any length.

Tests: tests/runner/test_hostile_places.py, tests/runner/test_requests.py
"""

import os
from array import array
from hashlib import blake2b

_FIRST_SLOTS = 1 << 12
_FULLEST = (2, 3)
"""Maximum load factor."""


class IdSet:
    """A set of custom_ids, stored as 64-bit hashes.

    The key of the hash is random, so that users cannot construct collisions. Among 5 million names, a collision occurs
    in one of a million batches. That request gets an error line.
    """

    def __init__(self) -> None:
        self._key = os.urandom(16)
        self._slots = array("Q", [0]) * _FIRST_SLOTS
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        number = self._hash(name)
        return self._slots[_slot(self._slots, number)] == number

    def add(self, name: str) -> bool:
        """Add a name. Returns whether it is new."""
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
        larger = array("Q", [0]) * (2 * len(self._slots))
        for number in self._slots:
            if number:
                larger[_slot(larger, number)] = number
        self._slots = larger


def _slot(slots: "array[int]", number: int) -> int:
    """The slot of a number, or the empty slot for it."""
    mask = len(slots) - 1
    slot = number & mask
    while slots[slot] not in (0, number):
        slot = (slot + 1) & mask
    return slot
