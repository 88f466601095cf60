"""Sends a request with retries until it completes, fails, or the service is unavailable."""

import asyncio
import random
from dataclasses import dataclass
from http import HTTPStatus
from io import BytesIO
from typing import Any

import aiohttp

from pdinference.api.names import HEADER_SHOULD_RETRY
from pdinference.runner.access import Access
from pdinference.runner.answers import HEADERS, InvalidAnswerError, answered, failed
from pdinference.runner.lines import BatchRequestOutput, PreparedRequest
from pdinference.runner.room import Share
from pdinference.runner.suspects import MOST_STRIKES, Suspects

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
_PROBE_S = 2.0
_KEPT = "The stored responses are kept."
_PROBE_TIMEOUT = aiohttp.ClientTimeout(total=10)


class ServiceAwayError(Exception):
    """The service is unavailable. The request has not failed and stays in the queue."""


class KeyRefusedError(Exception):
    """The service rejects the API key. No request has failed."""


class KeyMissingError(KeyRefusedError):
    """The service requires an API key, and there is none."""


@dataclass(frozen=True)
class Service:
    """Address of the service, and limits of its requests.

    Attributes:
        url: Base URL without a trailing slash and without `/v1/...`.
        model: Model for every request; None for the model of each line.
        default_model: Model of requests without one.
        max_retries: Maximum number of retries after a transient error.
        timeout_s: Timeout of one response.
        patience_s: Maximum time that the service may be unavailable, or reject the API key.
        first_pause_s: Pause before the first retry. It doubles with each retry.
    """

    url: str
    model: str | None
    default_model: str | None
    max_retries: int
    timeout_s: float
    patience_s: float
    first_pause_s: float = _FIRST_PAUSE_S


@dataclass(frozen=True)
class _Attempt:
    """Result of one attempt to send a request.

    Attributes:
        settled: Whether a retry would not help.
        pause_s: Retry-After of the response in seconds.
        limited: Whether the service only delays the request. Such attempts do not count as retries.
    """

    line: BatchRequestOutput
    settled: bool = False
    pause_s: float = 0.0
    limited: bool = False


class Sender:
    """Sends requests to one service."""

    def __init__(
        self, session: aiohttp.ClientSession, service: Service, access: Access, suspects: Suspects | None = None
    ) -> None:
        self._suspects = suspects or Suspects()
        self._session = session
        self._service = service
        self._access = access
        self._timeout = aiohttp.ClientTimeout(total=service.timeout_s, sock_connect=10)

    async def send(self, request: PreparedRequest, share: Share) -> BatchRequestOutput:
        """The output line for a request.

        A request fails only while the service is ready: otherwise the error may not depend on the request. If the
        service stops twice while it has the request, the request fails, too: it may be why.

        Args:
            request: The request.
            share: Its share of the memory until its line is stored.

        Raises:
            ServiceAwayError: The service is not ready for longer than `patience_s`.
            KeyRefusedError: It rejects the API key for longer than that.
        """
        strikes = self._suspects.strikes(request.custom_id)
        while strikes < MOST_STRIKES:
            async with self._suspects.turn(request.custom_id):
                if strikes:
                    await self._until_ready("it stopped before")
                attempt = await self._round(request, share)
                if attempt.settled or await self._ready():
                    return attempt.line
                strikes = await self._suspects.strike(request.custom_id)
            if strikes < MOST_STRIKES:
                await self._until_ready(_reason(attempt.line))
        return failed(
            request.custom_id, "service_stopped", f"the service stopped {strikes} times while it had this request"
        )

    async def _round(self, request: PreparedRequest, share: Share) -> _Attempt:
        """Send a request, with retries and exponential backoff after transient errors."""
        pause = self._service.first_pause_s
        retries = 0
        while True:
            attempt = await self._admitted(request, share)
            if attempt.settled or (retries == self._service.max_retries and not attempt.limited):
                return attempt
            await asyncio.sleep(max(attempt.pause_s, pause * random.uniform(0.5, 1.0)))  # noqa: S311 - no secret
            pause = min(_LONGEST_PAUSE_S, 2 * pause)
            retries += not attempt.limited

    async def _admitted(self, request: PreparedRequest, share: Share) -> _Attempt:
        """An attempt with a key and a certificate that fit.

        Kubelets update a Secret's files at different times, so those of the router and of this runner may differ.
        """
        now = asyncio.get_running_loop().time
        deadline: float | None = None
        while True:
            try:
                return await self._attempt(request, share)
            except KeyMissingError:
                raise
            except (KeyRefusedError, ServiceAwayError):
                deadline = deadline or now() + self._service.patience_s
                if now() >= deadline:
                    raise
            self._access.reload()
            await asyncio.sleep(self._service.first_pause_s)

    async def _attempt(self, request: PreparedRequest, share: Share) -> _Attempt:
        try:
            async with self._session.post(
                self._service.url + request.url,
                data=BytesIO(request.payload),
                headers={**HEADERS, **self._access.headers, "Content-Length": str(len(request.payload))},
                ssl=self._access.trust,
                timeout=self._timeout,
                allow_redirects=False,
            ) as answer:
                if answer.status == HTTPStatus.UNAUTHORIZED:
                    raise self._key_refused()
                line = await answered(request, answer, share)
                limited = answer.status == HTTPStatus.TOO_MANY_REQUESTS and "Retry-After" in answer.headers
                settled = answer.status not in _PASSING or answer.headers.get(HEADER_SHOULD_RETRY) == "false"
                return _Attempt(line, settled, _asked_pause(answer.headers), limited)
        except TimeoutError:
            return _Attempt(failed(request.custom_id, "timeout", f"no answer within {self._service.timeout_s:g} s"))
        except aiohttp.ClientSSLError as error:
            raise ServiceAwayError(
                f"{self._service.url} has no certificate that this runner trusts ({error}). If spec.router.tls of the "
                f"PDInference names another Secret than when the batch began, create the PDBatch again. {_KEPT}"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            return _Attempt(failed(request.custom_id, "connection_error", str(error) or type(error).__name__))
        except InvalidAnswerError as error:
            return _Attempt(failed(request.custom_id, "invalid_answer", str(error)))

    def _key_refused(self) -> KeyRefusedError:
        if not self._access.has_key:
            return KeyMissingError(
                f"{self._service.url} requires an API key, and this runner has none. If spec.router.apiKeys was added "
                f"to the PDInference after the batch had begun, create the PDBatch again. {_KEPT}"
            )
        return KeyRefusedError(
            f"{self._service.url} rejected the API key for {self._service.patience_s:g} s. Check whether the key in "
            f"the Secret is that of spec.router.apiKeys of the PDInference, and create the PDBatch again. {_KEPT}"
        )

    async def _until_ready(self, reason: str) -> None:
        try:
            async with asyncio.timeout(self._service.patience_s):
                while not await self._ready():  # noqa: ASYNC110 - a remote service cannot set an event
                    await asyncio.sleep(_PROBE_S)
        except TimeoutError:
            raise ServiceAwayError(
                f"{self._service.url} was not ready for {self._service.patience_s:g} s: {reason}. "
                f"Check whether the PDInference exists, is Ready and still has this URL. {_KEPT}"
            ) from None

    async def _ready(self) -> bool:
        """Whether the router has the pods that a request needs."""
        try:
            async with self._session.get(
                f"{self._service.url}/health", ssl=self._access.trust, timeout=_PROBE_TIMEOUT, allow_redirects=False
            ) as answer:
                return answer.status == HTTPStatus.OK
        except aiohttp.ClientSSLError:
            self._access.reload()
            return False
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False


def _asked_pause(headers: Any) -> float:
    try:
        return min(_LONGEST_PAUSE_S, max(0.0, float(headers["Retry-After"])))
    except (KeyError, ValueError):
        return 0.0


def _reason(line: BatchRequestOutput) -> str:
    if line.error is not None:
        return line.error.message
    return f"HTTP status {line.response.status_code}" if line.response is not None else "no answer"
