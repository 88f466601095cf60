"""API keys of clients, from a Secret that is mounted as a folder, and the limits of each."""

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from pdinference.api.api_keys import LONGEST_VALUE, keys_in

_LOG = logging.getLogger(__name__)
_PERIOD_S: Final = 2.0
_MOST_NAMES: Final = 100
_LISTS_PER_MINUTE: Final = 600
_BEARER: Final = "bearer "


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits of one name; None is unlimited.

    Attributes:
        requests_per_minute: Requests that may begin in a minute.
        concurrent_requests: Requests at a time.
        tokens_per_minute: Tokens of prompts and answers in a minute, without those of a cache.
    """

    requests_per_minute: int | None = None
    concurrent_requests: int | None = None
    tokens_per_minute: int | None = None


class UnknownKeyError(Exception):
    """The request has no key, or one that is not in the Secret."""


class KeyLimitError(Exception):
    """The name has too many requests.

    Attributes:
        retry_after: Seconds until another request may begin.
    """

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Keys:
    """The keys that are valid now.

    Each file of the folder has the name of a client, and its keys. Without a single key, no request is admitted.

    Args:
        folder: Where the Secret is mounted.
        limits: By name.
        clock: Monotonic clock, in seconds.
    """

    def __init__(
        self, folder: Path, limits: Mapping[str, KeyLimits], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._clock = clock
        self._digests: tuple[tuple[bytes, str], ...] = ()
        self._usage: dict[str, _Usage] = {}
        self._without_key: frozenset[str] = frozenset()
        self.load()

    async def forever(self) -> None:
        """Read the folder again and again, until cancelled. The kubelet updates it within about a minute."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            self.load()

    def load(self) -> None:
        """Read the folder. Keys stay as they were while it cannot be read."""
        try:
            found = tuple(self._read())
        except OSError as error:
            _LOG.warning("Cannot read the API keys: %s", error)
            return
        self._digests = found
        self._usage = {name: self._usage.get(name) or _Usage() for _, name in found}
        self._report_limits_without_key()

    def _report_limits_without_key(self) -> None:
        """Only the router knows the names of the Secret: the operator may not read it."""
        without = self._limits.keys() - self._usage.keys()
        if without and without != self._without_key:
            names = ", ".join(sorted(without))
            _LOG.warning("spec.router.apiKeys.limits has names without a key in the Secret: %s", names)
        self._without_key = frozenset(without)

    def _read(self) -> Iterator[tuple[bytes, str]]:
        # A Secret's files are links into a folder whose name begins with two dots.
        files = sorted(path for path in self._folder.iterdir() if not path.name.startswith(".") and path.is_file())
        for path in files[:_MOST_NAMES]:
            with path.open("rb") as file:
                value = file.read(LONGEST_VALUE)
            for key in keys_in(value):
                yield sha256(key).digest(), path.name

    def name(self, headers: Mapping[str, str]) -> str:
        """The name of the client that sent these headers.

        Raises:
            UnknownKeyError: There is none.
        """
        sent = headers.get("Authorization", "")
        key = sent[len(_BEARER) :].strip() if sent[: len(_BEARER)].lower() == _BEARER else headers.get("X-Api-Key", "")
        digest = sha256(key.encode("utf-8", "surrogateescape")).digest()
        # All are compared, each in constant time, so that the time says nothing of a key.
        names = [name for known, name in self._digests if hmac.compare_digest(known, digest)]
        if not names:
            raise UnknownKeyError
        return names[0]

    @contextmanager
    def request(self, name: str, *, is_list: bool = False) -> Iterator[None]:
        """Count a request of a client.

        Args:
            name: The client.
            is_list: Whether it asks for no tokens, as for the list of models. Programs do so again and again, also
                those that may ask for no tokens now, so such requests have a limit of their own.

        Raises:
            KeyLimitError: The client has reached a limit.
        """
        limits, usage = self._limits.get(name, KeyLimits()), self._usage.setdefault(name, _Usage())
        if is_list:
            usage.admit_list(name, self._clock())
            yield
            return
        usage.admit(name, limits, self._clock())
        usage.running += 1
        try:
            yield
        finally:
            usage.running -= 1

    def spent(self, name: str, tokens: int) -> None:
        """Count the tokens of an answer. They are known only at its end, so the next requests wait for them."""
        limit = self._limits.get(name, KeyLimits()).tokens_per_minute
        if limit is not None:
            self._usage.setdefault(name, _Usage()).tokens.take(tokens, limit, self._clock())


@dataclass(slots=True)
class _Bucket:
    """A token bucket, which is full again after a minute.

    Attributes:
        missing: What is missing from the full bucket; more than it holds after an answer that was longer.
        at: When that was so.
    """

    missing: float = 0.0
    at: float = 0.0

    def seconds_until(self, wanted: float, limit: int, now: float) -> float:
        """Seconds until so much is there; 0 if it is."""
        each = 60 / limit
        self.missing, self.at = max(0.0, self.missing - (now - self.at) / each), now
        return max(0.0, (self.missing + wanted - limit) * each)

    def take(self, number: float, limit: int, now: float) -> None:
        """Take so much, be it there or not."""
        self.seconds_until(number, limit, now)
        self.missing += number


@dataclass(slots=True)
class _Usage:
    """What a client has used lately, and its requests that run."""

    running: int = 0
    requests: _Bucket = field(default_factory=_Bucket)
    tokens: _Bucket = field(default_factory=_Bucket)
    lists: _Bucket = field(default_factory=_Bucket)

    def admit_list(self, name: str, now: float) -> None:
        if wait := self.lists.seconds_until(1, _LISTS_PER_MINUTE, now):
            raise KeyLimitError(f"Key {name} has listed models {_LISTS_PER_MINUTE} times in a minute.", 1 + int(wait))
        self.lists.take(1, _LISTS_PER_MINUTE, now)

    def admit(self, name: str, limits: KeyLimits, now: float) -> None:
        if limits.concurrent_requests is not None and self.running >= limits.concurrent_requests:
            raise KeyLimitError(f"Key {name} has {self.running} requests, its maximum at a time.", 1)
        if (tokens := limits.tokens_per_minute) is not None and (wait := self.tokens.seconds_until(1, tokens, now)):
            raise KeyLimitError(f"Key {name} has used its maximum of {tokens} tokens a minute.", 1 + int(wait))
        if (requests := limits.requests_per_minute) is None:
            return
        if wait := self.requests.seconds_until(1, requests, now):
            raise KeyLimitError(f"Key {name} has sent its maximum of {requests} requests a minute.", 1 + int(wait))
        self.requests.take(1, requests, now)
