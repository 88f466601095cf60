"""The front: what clients may call, limits, and the answers.

Tests: tests/router/test_door.py, tests/router/test_hops.py, tests/router/test_keys.py
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from uuid import uuid4

import aiohttp
import msgspec
from aiohttp import HttpVersion11, web
from multidict import CIMultiDict, MultiMapping

from pdinference.api.names import HEADER_SHOULD_RETRY, Role
from pdinference.http_connections import Connector
from pdinference.router.activity import Activity
from pdinference.router.bodies import Bodies
from pdinference.router.calls import REQUEST_ID, Call, MalformedError, is_empty, read_call, read_form
from pdinference.router.connections import ConnectionLimits
from pdinference.router.dispatch import Dispatcher, PoisonError, RefusedError, UnavailableError
from pdinference.router.endpoints import FORMS, GET, POST, WITHOUT_MODEL
from pdinference.router.errors import problem
from pdinference.router.exchange import LONGEST_REPORT, PodFailure, Stream, Whole, exchange
from pdinference.router.fair_shares import FairShares
from pdinference.router.hops import to_clients, to_pods
from pdinference.router.keys import KeyLimitError, Keys, UnknownKeyError
from pdinference.router.leaving import Leaving
from pdinference.router.migration import StreamFaultError, StreamProgress, can_migrate, with_token_ids
from pdinference.router.models import PATH as MODELS
from pdinference.router.models import Models
from pdinference.router.record import Record, Telemetry
from pdinference.router.relay import Relay
from pdinference.router.room import Answers, FullError, Room, Shares, owner_of
from pdinference.router.timing import timed
from pdinference.router.untrusted import NotJsonError, check_text
from pdinference.router.usage import Usage, usage_of
from pdinference.router.ways import Way

_LOG = logging.getLogger("pdinference.router.access")
_LONGEST_ID: Final = 128
_SESSION: Final = "X-Session-Id"
_PREFILLED_BY: Final = "X-PDInference-Prefill"
"""Header of a response: which role computed the prompt. It is there only for requests that can be split."""
_WAY: Final = "X-PDInference-Way"
"""Header of a response: the way that was chosen for it (`router.disaggregation: Adaptive`)."""
_RETRY_AFTER_S: Final = "5"
_BEAM_SEARCH: Final = "use_beam_search"
"""vLLM takes such requests before all others (vllm/entrypoints/generate/beam_search/online.py)."""
_HEALTH: Final = ("/health", "/readiness")
"""The second one is for batch runners of version 0.1, which may run on after an upgrade of the router."""
_LETTERS: Final[Mapping[Role, str]] = {Role.PARAMETER: "P", Role.DECODE: "D"}
_MOST_MIGRATIONS: Final = 3
_CLIENT_CLOSED: Final = 499
"""Status in metrics and logs of a request whose client has gone (nginx's)."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits on what clients send, and on what is held for them.

    Attributes:
        body: Bytes of a body.
        bodies: Bytes of all bodies that are held, which clients share.
        answers: Bytes of all answers that are held as a whole, which clients share, and pods.
        body_seconds: Seconds until the body has come.
        room_seconds: Seconds for which a body or an answer waits for room.
        requests: Number of requests at a time, which clients share.
        unread_seconds: Time in which a client has to read something of what was sent to it.
        connections: RequestLimits before a request is complete.
    """

    body: int = 16 * 2**20
    bodies: int = 144 * 2**20
    answers: int = 112 * 2**20
    body_seconds: float = 60.0
    room_seconds: float = 10.0
    requests: int = 5500
    unread_seconds: float = 60.0
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)


_Handle = Callable[[web.Request, Record], Awaitable[tuple[web.StreamResponse, str]]]
"""Gives the response, and how the request ended."""


class Front:
    """Handles the requests of clients.

    Attributes:
        leaving: The connections of clients while the process ends.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        activity: Activity,
        telemetry: Telemetry,
        limits: RequestLimits,
        *,
        keys: Keys | None,
        fair_shares: FairShares | None,
        models: Models,
    ) -> None:
        self._dispatcher = dispatcher
        self._activity = activity
        self._keys = keys
        self._fair_shares = fair_shares
        self._models = models
        self._telemetry = telemetry
        room = Room(limits.bodies, limits.room_seconds)
        self._bodies = Bodies(longest=limits.body, room=room, seconds=limits.body_seconds)
        self._answers = Answers(limits.answers, limits.room_seconds)
        self._places = Shares(limits.requests)
        self.leaving = Leaving()

    def leave(self) -> None:
        """From now on, close each connection after its next response, so that clients connect to another router pod."""
        self.leaving.begun = True

    async def _prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.popall("Server", None)
        await self.leaving.mark(request, response)

    def application(self) -> web.Application:
        """The routes. Every other path or method is 404."""
        app = web.Application(middlewares=[self.leaving.middleware, _as_json])
        app.on_response_prepare.append(self._prepare)
        app.add_routes([web.post(path, self._post, expect_handler=invite) for path in POST])
        app.add_routes([web.get(path, self._get, expect_handler=invite) for path in GET])
        app.add_routes([web.get(path, self._health, expect_handler=invite) for path in _HEALTH])
        app.add_routes([web.route("*", "/{path:.*}", unknown, expect_handler=invite)])
        return app

    async def _post(self, request: web.Request) -> web.StreamResponse:
        return await self._admitted(request, self._answered)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        return await self._admitted(request, self._from_any_pod)

    async def _health(self, _request: web.Request) -> web.Response:
        """Whether requests are answered now. It needs no key, and is not a request of a client."""
        if self._dispatcher.can_answer:
            return web.Response(text="ok")
        return web.Response(text="No pod is ready.", status=HTTPStatus.SERVICE_UNAVAILABLE)

    async def _admitted(self, request: web.Request, handle: _Handle) -> web.StreamResponse:
        """Handle a request within the limits, and record how it ended."""
        record = Record(_request_id(request.headers), self._telemetry, request.path)
        status, outcome = int(HTTPStatus.INTERNAL_SERVER_ERROR), "failed"
        try:
            with self._telemetry.tracer.request(request.path, request.headers) as span:
                response, outcome = await self._limited(request, record, handle)
                span.set_attribute("http.response.status_code", response.status)
                span.set_attribute("pdinference.outcome", outcome)
            status = response.status
        except asyncio.CancelledError:
            status, outcome = _CLIENT_CLOSED, "cancelled"
            raise
        except ConnectionError:  # to the client; those to pods are `PodFailure`
            status, outcome = _CLIENT_CLOSED, "cancelled"
            response = web.Response(status=status)  # aiohttp finds that it cannot send it
        finally:
            if self._keys is not None and record.spent is not None:
                self._keys.spent(record.client, record.spent.computed)
            record.ended(request.path, status, outcome)
            _log(request, record, status, outcome)
        return response

    async def _limited(self, request: web.Request, record: Record, handle: _Handle) -> tuple[web.StreamResponse, str]:
        try:
            with self._place(request, record):
                return await handle(request, record)
        except UnknownKeyError:
            return _error(HTTPStatus.UNAUTHORIZED, "The API key is missing or unknown.", record), "refused"
        except KeyLimitError as error:
            response = _error(HTTPStatus.TOO_MANY_REQUESTS, str(error), record)
            response.headers["Retry-After"] = str(error.retry_after)
            return response, "limited"
        except FullError:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, "The router has too many requests.", record), "limited"

    @contextmanager
    def _place(self, request: web.Request, record: Record) -> Iterator[None]:
        """Count a request against the limits."""
        with ExitStack() as stack:
            if self._keys is not None:
                record.client = self._keys.name(request.headers)
                stack.enter_context(self._keys.request(record.client, is_list=request.path in GET))
            record.owner = f"key {record.client}" if self._keys is not None else _address(request)
            record.answers = self._answers.of(record.owner)
            with self._places.one(record.owner):
                yield

    async def _answered(self, request: web.Request, record: Record) -> tuple[web.StreamResponse, str]:
        try:
            async with self._bodies.body(request, record.owner) as body:
                if request.path not in FORMS:
                    await check_text(body)
                call = await self._call(request, body, record)
                with self._activity.request(), self._queued(call, record):
                    return await self._sent(request, call, record)
        except MalformedError as error:
            return _error(error.status, str(error), record), "malformed"
        except PoisonError as error:
            response = _error(error.status, str(error), record)
            response.headers[HEADER_SHOULD_RETRY] = "false"
            return response, "poison"
        except NotJsonError as error:
            return _error(HTTPStatus.BAD_REQUEST, f"The body is not JSON, or too large: {error}", record), "malformed"
        except UnavailableError as error:
            return _error(error.status, str(error), record, error.retry_after), "unavailable"
        except RefusedError as error:
            refused = error.answer
            headers = _from_pod(refused.headers, record)
            return web.Response(status=refused.status, headers=headers, body=refused.body), "refused"

    @contextmanager
    def _queued(self, call: Call, record: Record) -> Iterator[None]:
        """A request has a place in the queues of pods for as long as the block."""
        if self._fair_shares is None or call.path in WITHOUT_MODEL | FORMS:  # vLLM takes forms first
            yield
            return
        if call.found is not None and not is_empty(call.found.get(_BEAM_SEARCH)):
            raise MalformedError(f"`{_BEAM_SEARCH}` is not supported where clients share by order: FairShares.")
        record.place = place = self._fair_shares.begin(record.client, call.tokens)
        try:
            yield
        finally:
            self._fair_shares.end(place, record.spent)

    async def _call(self, request: web.Request, body: bytes, record: Record) -> Call:
        path, content_type = request.path, request.headers.get("Content-Type", "")
        headers = to_pods(request.headers)
        headers[REQUEST_ID] = record.request_id
        session = request.headers.get(_SESSION, "")[:_LONGEST_ID]
        custom = self._dispatcher.rules.custom_arguments
        if path in FORMS:
            return await read_form(path, body, content_type, headers, session, custom_arguments=custom)
        return await read_call(path, body, content_type, headers, session, custom_arguments=custom)

    async def _sent(self, request: web.Request, call: Call, record: Record) -> tuple[web.StreamResponse, str]:
        call, record.timing = timed(call)
        progress = StreamProgress(call) if self._dispatcher.rules.migration and can_migrate(call) else None
        with ExitStack() as stack:
            async with self._dispatcher.answer(call if progress is None else with_token_ids(call), record) as answer:
                if (
                    self._fair_shares is not None
                    and record.place is not None
                    and answer.status < HTTPStatus.BAD_REQUEST
                ):
                    self._fair_shares.begun(record.place)
                headers = _headers(answer.headers, record)
                if isinstance(answer, Whole):
                    _count(answer, call, record)
                    return await _written(request, answer, headers), "answered"
                if record.timing is not None:
                    record.timing.came()
                response = web.StreamResponse(status=answer.status, headers=headers)
                if request.version < HttpVersion11:  # it has no chunks, so the end of the connection is its end
                    response.force_close()
                relay = Relay(response, progress, record.timing, record.text)
                stack.enter_context(relay.counted(record))
                await relay.response.prepare(request)
                fault = await self._passed_on(relay, answer, call, record)
            while fault and relay.can_continue and not record.poison and record.migrations < _MOST_MIGRATIONS:
                fault = await self._migrated(relay, record)
            if not fault:
                relay.is_complete = True
                with suppress(ConnectionResetError):  # many clients leave at the last event
                    await relay.response.write_eof()
                return relay.response, "answered"
            await relay.fail(request.path, f"The {_LETTERS[answer.pod.observed.role]} pod failed ({fault}).")
            if request.transport is not None:
                request.transport.close()  # without the last chunk of the encoding, the response is not complete
            return relay.response, "cut"

    async def _passed_on(self, relay: Relay, answer: Stream, call: Call, record: Record) -> str:
        """Pass on a stream. Returns why the pod stopped; empty if the stream is complete."""
        try:
            await relay.pass_on(answer, record)
        except PodFailure as failure:
            await self._dispatcher.note(answer.pod, failure, call, record)
            return failure.label
        except StreamFaultError as error:
            return str(error)
        return ""

    async def _migrated(self, relay: Relay, record: Record) -> str:
        """Continue a stream at another D pod. Returns why that failed; empty if the stream is complete."""
        call = relay.next_call()
        if call is None:
            await relay.end()
            return ""
        record.migrated()
        try:
            async with self._dispatcher.answer(call, record) as answer:
                if isinstance(answer, Whole):
                    return f"status_{answer.status}"
                return await self._passed_on(relay, answer, call, record)
        except RefusedError as error:
            return f"status_{error.answer.status}"
        except UnavailableError as error:
            return str(error)
        except FullError:  # the status that it would be otherwise cannot be sent any more
            return "no_room"

    async def _from_any_pod(self, request: web.Request, record: Record) -> tuple[web.StreamResponse, str]:
        """What each pod answers alike. It does not wake the model: clients list models again and again."""
        asked = set()
        for pod in sorted(
            self._dispatcher.pods, key=lambda pod: (not pod.observed.ready, pod.paused_until, pod.requests)
        ):
            if pod.observed.server in asked:  # by way of another rank
                continue
            asked.add(pod.observed.server)
            try:
                async with exchange(pod, self._dispatcher.session, 0) as sent:
                    named = {REQUEST_ID: record.request_id}
                    answer = await sent.begin("GET", request.path, named, None, longest=LONGEST_REPORT)
            except PodFailure:
                continue
            if isinstance(answer, Whole):
                headers = _from_pod(answer.headers, record)
                return web.Response(status=answer.status, headers=headers, body=answer.body), "answered"
        if request.path == MODELS and self._models.names:
            return web.json_response(self._models.listed(), headers={REQUEST_ID: record.request_id}), "answered"
        return _error(HTTPStatus.SERVICE_UNAVAILABLE, "No pod is ready.", record), "unavailable"


async def invite(request: web.Request) -> None:
    """Let a client that asks for it send the body. aiohttp's own function fails with a header that is not UTF-8."""
    if request.version >= HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the response has not begun


def _count(answer: Whole, call: Call, record: Record) -> None:
    """Count the tokens of a whole answer."""
    if answer.status == HTTPStatus.OK and call.path not in WITHOUT_MODEL:
        usage = usage_of(answer.body)
        record.count(usage, known=usage is not None)


async def _written(request: web.Request, answer: Whole, headers: Mapping[str, str]) -> web.StreamResponse:
    """The response with a whole answer, after all of it has been sent: until then it takes room."""
    response = web.Response(status=answer.status, headers=headers, body=answer.body)
    await response.prepare(request)
    await response.write_eof()
    return response


def _address(request: web.Request) -> str:
    """The address that a request comes from."""
    return owner_of(None if request.transport is None else request.transport.get_extra_info("peername"))


@web.middleware
async def _as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """What aiohttp answers itself, in the form of the endpoint's API."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.json_response(problem(request.path, error.status, error.reason), status=error.status)


async def unknown(request: web.Request) -> web.Response:
    """The answer to every path or method that is not listed."""
    status = HTTPStatus.NOT_FOUND
    return web.json_response(problem(request.path, status, "There is no such endpoint."), status=status)


def _from_pod(found: MultiMapping[str], record: Record) -> CIMultiDict[str]:
    """The headers of a pod's response, for the client."""
    headers = to_clients(found)
    headers[REQUEST_ID] = record.request_id
    return headers


def _headers(found: MultiMapping[str], record: Record) -> Mapping[str, str]:
    headers = _from_pod(found, record)
    way = None if record.choice is None else record.choice.predicted.way
    if way is not None:
        headers[_WAY] = way
    if record.prefill or record.fallback or way is Way.DECODE:
        headers[_PREFILLED_BY] = "parameter" if record.prefill else "decode"
    return headers


def _request_id(headers: Mapping[str, str]) -> str:
    found = headers.get(REQUEST_ID, "")
    return found if 0 < len(found) <= _LONGEST_ID and found.isascii() and found.isprintable() else str(uuid4())


def _error(status: int, message: str, record: Record, retry_after: int | None = None) -> web.Response:
    headers = {REQUEST_ID: record.request_id}
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    elif status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = _RETRY_AFTER_S
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return web.json_response(problem(record.path, status, message), status=status, headers=headers)


def _log(request: web.Request, record: Record, status: int, outcome: str) -> None:
    """One line for each request, with what its metrics have."""
    fields = {
        "request_id": record.request_id,
        "client": record.client,
        "path": request.path,
        "status": status,
        "outcome": outcome,
        "prefill": record.prefill,
        "decode": record.decode,
        "fallback": record.fallback,
        "retries": record.retries,
        "migrations": record.migrations,
        **{f"{name}_seconds": round(seconds, 4) for name, seconds in record.stages.items()},
        **({} if record.spent is None else _tokens(record.spent)),
        **({} if record.choice is None else {"why": record.choice.explained(record.usage)}),
    }
    _LOG.info(msgspec.json.encode(fields).decode())


def _tokens(spent: Usage) -> dict[str, int]:
    cached = {} if spent.cached is None else {"cached_tokens": spent.cached}
    return {"prompt_tokens": spent.prompt, **cached, "answer_tokens": spent.answer}


def client_session(connect_seconds: float) -> aiohttp.ClientSession:
    """Connections to pods. Idle ones are closed before vLLM closes them, after 5 s (uvicorn's default)."""
    return aiohttp.ClientSession(
        connector=Connector(limit=0, keepalive_timeout=4),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds),
        auto_decompress=False,
        trust_env=False,
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
        cookie_jar=aiohttp.DummyCookieJar(),
    )
