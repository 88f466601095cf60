"""Limited amounts that clients and pods share, so that one of them cannot take what the others need."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

_MULTIPLE: Final = 3
_MOST_WAITING: Final = 64
"""Requests that may wait for room. Each has up to 384 KiB of its body in buffers that are not counted."""
_NETWORK_BITS: Final = 64
"""An IPv6 client may use any address of its network."""


class FullError(Exception):
    """The router, or what one client or pod may have of it, is full."""


class Shares:
    """An amount with a limit. An owner may hold three times as much as then stays free.

    Thus one alone may hold three quarters, two may hold three sevenths each, and another one always finds room.

    Args:
        most: The limit.

    Attributes:
        held: What is held now.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        self._owned: Counter[str] = Counter()

    @property
    def largest(self) -> int:
        """The most that one owner may hold while no other one holds anything."""
        return self.most * _MULTIPLE // (_MULTIPLE + 1)

    def take(self, owner: str, amount: int) -> None:
        """Hold an amount.

        Raises:
            FullError: There is no room for it.
        """
        if not self.fits(owner, amount):
            raise FullError
        self.held += amount
        self._owned[owner] += amount

    def give_back(self, owner: str, amount: int) -> None:
        """Hold it no more."""
        self.held -= amount
        self._owned[owner] -= amount
        if not self._owned[owner]:
            del self._owned[owner]

    def fits(self, owner: str, amount: int) -> bool:
        """Whether there is room for an amount."""
        return self._owned[owner] + amount <= _MULTIPLE * (self.most - self.held - amount)

    @contextmanager
    def one(self, owner: str) -> Iterator[None]:
        """Hold one for as long as the block.

        Raises:
            FullError: There is no room.
        """
        self.take(owner, 1)
        try:
            yield
        finally:
            self.give_back(owner, 1)


class Room:
    """Bytes that owners share. Who finds no room waits for it.

    Args:
        most: Bytes of all.
        seconds: How long one waits.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._shares = Shares(most)
        self._waiting = Shares(_MOST_WAITING)
        self._seconds = seconds
        self._changed = asyncio.Event()

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        return self._shares.held

    @property
    def largest(self) -> int:
        """The most that one owner may hold."""
        return self._shares.largest

    @asynccontextmanager
    async def holding(self, owner: str) -> AsyncIterator["Holding"]:
        """What an owner holds for as long as the block: nothing at first."""
        found = Holding(self, owner)
        try:
            yield found
        finally:
            found.give_back()

    async def take(self, owner: str, amount: int) -> None:
        """Hold bytes.

        Raises:
            FullError: There was no room in time.
        """
        if not self._shares.fits(owner, amount):
            await self._wait(owner, amount)
        self._shares.take(owner, amount)

    def give_back(self, owner: str, amount: int) -> None:
        """Hold them no more."""
        self._shares.give_back(owner, amount)
        if self._waiting.held:
            self._changed.set()
            self._changed = asyncio.Event()

    async def _wait(self, owner: str, amount: int) -> None:
        with self._waiting.one(owner):
            try:
                async with asyncio.timeout(self._seconds):
                    while not self._shares.fits(owner, amount):
                        await self._changed.wait()
            except TimeoutError:
                raise FullError from None


class Holding:
    """Bytes of one owner. They are given back together."""

    def __init__(self, room: Room, owner: str) -> None:
        self._room = room
        self._owner = owner
        self.bytes = 0

    async def grow(self, amount: int) -> None:
        """Hold more bytes.

        Raises:
            FullError: There was no room in time.
        """
        if amount:
            await self._room.take(self._owner, amount)
            self.bytes += amount

    def give_back(self) -> None:
        """Hold nothing more."""
        amount, self.bytes = self.bytes, 0
        if amount:
            self._room.give_back(self._owner, amount)


class Answers:
    """Room for answers that are held as a whole. Clients share it, who may read slowly, and pods, which may write much.

    Args:
        most: Bytes of all.
        seconds: How long an answer waits.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._of_clients = Room(most, seconds)
        self._of_pods = Room(most, seconds)

    def of(self, client: str) -> "ClientAnswers":
        """Room for the answers to a client."""
        return ClientAnswers(client, self._of_clients, self._of_pods)


@dataclass(frozen=True, slots=True)
class ClientAnswers:
    """Room for the answers to one client."""

    client: str
    _of_clients: Room
    _of_pods: Room

    def holdings(self, pod: str) -> tuple[Holding, ...]:
        """What an answer of a pod takes: all of them have to grow by its bytes."""
        return Holding(self._of_pods, pod), Holding(self._of_clients, self.client)


def owner_of(peer: Any) -> str:
    """Who shares by the address of a connection: an IPv4 address, or the network of an IPv6 one.

    Args:
        peer: The `peername` of a transport.
    """
    if not isinstance(peer, tuple) or not peer:
        return str(peer or "")
    text = str(peer[0]).partition("%")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if not isinstance(address, IPv6Address):
        return text
    return str(address.ipv4_mapped or IPv6Address(int(address) >> _NETWORK_BITS << _NETWORK_BITS))
