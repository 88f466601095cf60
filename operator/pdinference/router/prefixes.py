"""Which pods have the KV cache of the beginning of a prompt, by what the router has sent there. Pure.

The index knows no tokens: a prompt is a chain of pieces (pieces.py), each with the hash of all up to it. vLLM says at
the end of an answer how many prompt tokens it had in its cache, which corrects the index.

Tests: tests/router/test_prefixes.py
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final
from weakref import WeakKeyDictionary

from pdinference.router.pod import Pod

MOST_PIECES: Final = 200_000
"""Pieces that are known at a time, in about 40 MiB. Those that were used least recently go first."""
_MOST_BITS: Final = 256
"""Bits of the index. Each pod has one, and another one after each restart. When all are used, the index begins anew."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A prompt as pieces.

    Attributes:
        hashes: Of each piece with all before it.
        ends: Where each piece ends, in bytes of the prompt.
    """

    hashes: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()

    @classmethod
    def of(cls, pieces: Iterable[bytes], first: int = 0) -> "Chain":
        """The chain of some pieces.

        Args:
            pieces: The pieces.
            first: Hash of what comes before them.
        """
        return cls._after(first, 0, pieces)

    def extended(self, pieces: Iterable[bytes]) -> "Chain":
        """The chain with further pieces; an empty one stays empty, as it is not known what it begins with."""
        if not self.hashes:
            return self
        more = self._after(self.hashes[-1], self.ends[-1], pieces)
        return Chain(self.hashes + more.hashes, self.ends + more.ends)

    @classmethod
    def _after(cls, last: int, end: int, pieces: Iterable[bytes]) -> "Chain":
        hashes, ends = [], []
        for piece in pieces:
            last, end = hash((last, piece)), end + len(piece)
            hashes.append(last)
            ends.append(end)
        return cls(tuple(hashes), tuple(ends))

    @property
    def size(self) -> int:
        """Bytes of all pieces."""
        return self.ends[-1] if self.ends else 0


class PrefixIndex:
    """The known pieces, and the pods that have each.

    Args:
        most: Pieces that are known at a time.
    """

    def __init__(self, most: int = MOST_PIECES) -> None:
        self._most = most
        self._pods_of: OrderedDict[int, int] = OrderedDict()
        """By the hash of a piece: a bit for each pod that has it."""
        self._bits: WeakKeyDictionary[Pod, tuple[tuple[int, int], int]] = WeakKeyDictionary()
        """By pod: its starts, and its bit. A pod that has started again has another bit, so its pieces are gone."""
        self._next = count()

    def __len__(self) -> int:
        return len(self._pods_of)

    def known(self, chain: Chain, pods: Iterable[Pod]) -> Mapping[Pod, int]:
        """Bytes at the beginning of a prompt whose KV cache these pods have."""
        left = {pod: self._bit(pod) for pod in pods}
        found = dict.fromkeys(left, 0)
        having, end = sum(left.values()), 0
        for piece, ends in zip(chain.hashes, chain.ends, strict=True):
            still = having & self._pods_of.get(piece, 0)
            if still != having:
                found |= dict.fromkeys((pod for pod, bit in left.items() if bit & (having ^ still)), end)
                having = still
            if not having:
                return found
            end = ends
        return found | dict.fromkeys((pod for pod, bit in left.items() if bit & having), end)

    def add(self, chain: Chain, pod: Pod) -> None:
        """Note that a pod has the KV cache of a prompt."""
        bit, pods_of = self._bit(pod), self._pods_of
        for piece in chain.hashes:
            pods_of[piece] = pods_of.get(piece, 0) | bit
            pods_of.move_to_end(piece)
        while len(pods_of) > self._most:
            pods_of.popitem(last=False)

    def _bit(self, pod: Pod) -> int:
        starts, bit = self._bits.get(pod, ((-1, 0), 0))
        now = pod.observed.restarts, pod.deaths
        if starts != now:
            if (number := next(self._next)) >= _MOST_BITS:
                self._pods_of.clear()
                self._bits.clear()
                self._next, number = count(1), 0
            bit = 1 << number
            self._bits[pod] = now, bit
        return bit
