"""HTTP handlers of the webhook. Every review gets a response, and reviews do not block each other."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client import Counter as Metric

from pdinference.admission.envelope import RefusedError, opened
from pdinference.admission.review import EARLY_REVIEW, REVIEW, NotAReviewError, allowed, refused
from pdinference.api import names
from pdinference.isolation.calls import BusyError, Calls, EndedError

_LOG = logging.getLogger(__name__)
PATH = "/validate"
EARLY_PATH = "/validate-early"
"""Path of the mutating webhook, called before schema validation, so that users get all problems at once."""
WEBHOOK_RULES = {
    "apiGroups": [names.GROUP],
    "apiVersions": [names.VERSION],
    "operations": ["CREATE", "UPDATE"],
    "resources": [names.PLURAL, names.BATCH_PLURAL],
    "scope": "Namespaced",
}
"""Requests for which the API server calls the webhook. The subresources status and scale are not included."""

_MAX_BODY: Final = 8 * 2**20
"""The API server accepts objects of 3 MiB and stores 1.5 MiB; a review has both, with some characters escaped."""
_MAX_BODIES: Final = 48 * 2**20
"""Maximum total size of all bodies that are being read."""
_MAX_BODIES_OF_ONE: Final = 16 * 2**20
"""Maximum total size of those of one client."""
_LARGE: Final = 2**16
_READ_S: Final = 5.0


class _TooBusyError(Exception):
    """The limit on the total size of bodies is reached."""


class _Bodies:
    """Reads bodies within limits on their total size, of one client and of all."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()

    @asynccontextmanager
    async def read(self, request: web.Request) -> AsyncIterator[bytes]:
        """Read the body, which counts towards the limit until the end of the block."""
        length = _MAX_BODY if request.content_length is None else request.content_length
        if length > _MAX_BODY:
            raise web.HTTPRequestEntityTooLarge(_MAX_BODY, length)
        client = _client(request)
        if self._held[client] + length > _MAX_BODIES_OF_ONE or self._held.total() + length > _MAX_BODIES:
            raise _TooBusyError
        self._held[client] += length
        try:
            async with asyncio.timeout(_READ_S):
                body = await request.read()
            yield body
        finally:
            self._held[client] -= length
            if not self._held[client]:
                del self._held[client]


def _client(request: web.Request) -> str:
    """The address of the caller. All else in a request can be invented: any pod may reach the port."""
    return request.remote or ""


def admission_routes(calls: Calls, registry: CollectorRegistry) -> Iterable[web.AbstractRouteDef]:
    """The routes of the webhook for the HTTPS server.

    Args:
        calls: Runs the examinations.
        registry: Registry for the metric of reviews.
    """
    reviews = Metric(
        "pdinference_admission_reviews", "Answers of the webhook, by result (allowed, refused).", ["result"],
        registry=registry,
    )  # fmt: skip
    bodies = _Bodies()
    opening = asyncio.Lock()

    async def answered(request: web.Request, *, early: bool) -> web.Response:
        try:
            async with bodies.read(request) as body:
                task = EARLY_REVIEW if early else REVIEW
                answer = await _answer(calls, body, task, opening, client=_client(request))
        except NotAReviewError as error:
            return web.Response(status=400, text=f"{error}\n")
        except _TooBusyError:
            return web.Response(status=429, text="Too many reviews are being read. Try again.\n")
        except TimeoutError:
            return web.Response(status=408, text=f"The body did not arrive within {_READ_S:g} s.\n")
        passed = answer["response"]["allowed"]
        if not (early and passed):  # the second review counts it
            reviews.labels("allowed" if passed else "refused").inc()
        if not passed:
            _LOG.info("Refused: %s", answer["response"]["status"]["message"].strip())
        return web.json_response(answer)

    async def validate(request: web.Request) -> web.Response:
        return await answered(request, early=False)

    async def validate_early(request: web.Request) -> web.Response:
        return await answered(request, early=True)

    return [web.post(PATH, validate), web.post(EARLY_PATH, validate_early)]


async def _answer(calls: Calls, body: bytes, task: str, opening: asyncio.Lock, *, client: str) -> dict[str, Any]:
    """The response to a review. After any error, the object is rejected."""
    uid = ""
    try:
        async with opening:  # one at a time, so that other tasks run in between: a large one takes 50 ms
            if len(body) > _LARGE:
                await asyncio.sleep(0)
            envelope = opened(body)
        uid = envelope.uid
        if envelope.settled:
            return allowed(uid)
        answer = await calls.call(task, envelope.reduced, turn=envelope.namespace, client=client)
        found: dict[str, Any] = msgspec.json.decode(answer)
    except NotAReviewError:
        raise
    except RefusedError as error:
        return refused(error.uid, str(error))
    except (EndedError, BusyError) as error:
        return refused(uid, str(error))
    except Exception as error:  # noqa: BLE001 - every review needs a response
        _LOG.exception("A review failed")
        return refused(
            uid,
            f"The examination failed ({type(error).__name__}). This is a fault of the operator. Its log says more.",
        )
    found["response"]["uid"] = uid
    return found
