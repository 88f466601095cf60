"""From a call to an answer: prefill on P, decode on D, and another pod where one fails before it has answered.

Tests: tests/router/test_failures.py, tests/router/test_whole_requests.py
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from typing import Final
from uuid import uuid4

import aiohttp
import msgspec

from pdinference.api.names import ENGINE_ROLES, PodFault, Role
from pdinference.api.v1alpha1.router import Disaggregation, WhenNoPrefill
from pdinference.engine.connectors.handover import (
    MEMBER,
    Handover,
    HandoverError,
    Prefill,
    TransferParams,
    WrongHandoverError,
)
from pdinference.router.adaptive import Adaptive, Choice
from pdinference.router.answer_text import PATH, AnswerText, content_of
from pdinference.router.calls import Call
from pdinference.router.choice import Choose
from pdinference.router.deaths import Deaths
from pdinference.router.exchange import (
    LONGEST_PREFILL,
    LONGEST_REPORT,
    PodFailure,
    Stream,
    Whole,
    exchange,
    members,
    transfer_params,
)
from pdinference.router.failure_reason import FAILURES_OF_SERVER, FailureReason
from pdinference.router.links import Links, linked
from pdinference.router.pod import Pod
from pdinference.router.pods import Pods
from pdinference.router.record import Record
from pdinference.router.retries import Failures, NoPrefill
from pdinference.router.speeds import Speeds
from pdinference.router.usage import usage_in
from pdinference.router.waits import Waits
from pdinference.router.ways import NO_OBJECTIVES, Way, WayObjectives, allowed_ways

_LOG = logging.getLogger(__name__)
_LONGEST_ENGINE_ID: Final = 512


class UnavailableError(Exception):
    """No pod answered the request in time.

    Attributes:
        status: HTTP status for the client.
        retry_after: Seconds until a pod should be there; None if that is not known.
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class PoisonError(UnavailableError):
    """The request seems to kill pods, so it gets no further one."""

    def __init__(self) -> None:
        super().__init__(
            HTTPStatus.BAD_GATEWAY,
            "The engines of pods died while they had this request, so it is not sent to another one. Do not repeat it; "
            "the logs of the router name the pods.",
        )


class RefusedError(Exception):
    """Pods answered the request with an error, so the fault seems to be in the request.

    Attributes:
        answer: The response for the client.
    """

    def __init__(self, answer: Whole) -> None:
        super().__init__(answer.status)
        self.answer = answer


class _Rank(msgspec.Struct):
    """What a bootstrap server says of an engine."""

    engine_id: str | int | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """How requests are routed.

    Attributes:
        handover: What goes from P to D; None without P, so that D gets whole requests.
        choose: The policy for each role.
        when_no_prefill: What happens without P.
        max_wait: Seconds that a request may wait for pods in all.
        max_queued: Number of requests that may wait at a time.
        migration: Whether a stream that loses its D pod continues at another one.
        disaggregation: Whether each request goes the way that costs least.
        objectives: What requests should keep. The cheapest way that does is taken.
        step_tokens: Prompt tokens of a step at most, where that is known of a role.
        custom_arguments: Whether vLLM runs logits processors of the user's, which have arguments of their own.
    """

    handover: Handover | None
    choose: Mapping[Role, Choose]
    when_no_prefill: WhenNoPrefill = "Serve"
    max_wait: float = 60.0
    max_queued: int = 100
    migration: bool = False
    disaggregation: Disaggregation = "Always"
    objectives: WayObjectives = NO_OBJECTIVES
    step_tokens: Mapping[Role, float] = field(default_factory=dict)
    custom_arguments: bool = False

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles that there are."""
        return (Role.DECODE,) if self.handover is None else ENGINE_ROLES

    @property
    def ways(self) -> frozenset[Way]:
        """The ways to choose from."""
        return allowed_ways(self.when_no_prefill)


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A prompt that P has computed.

    Attributes:
        pod: The P pod that has the KV cache.
        params: With these, D reads it. None: D finds it by the prompt.
        transfer: Id of the hand-over.
    """

    pod: Pod
    params: TransferParams | None
    transfer: str


class _Step(Enum):
    """What a request does next."""

    WAIT_FOR_DECODE = auto()
    """Wait for a D pod: before the prefill, because P keeps the KV cache for 30 s only."""
    CHOOSE_WAY = auto()
    """Split the request, or let one pod answer it alone."""
    PREFILL = auto()
    """Let a P pod compute the prompt, if the request is split."""
    WAIT_FOR_PARAMETER = auto()
    """Wait for a P pod, because D may not compute the prompt."""
    CHOOSE_DECODE = auto()
    """Choose the D pod."""
    ANSWER = auto()
    """Let the chosen pod answer."""


_REASONS: Final = {
    NoPrefill.NO_POD: "no_pod",
    NoPrefill.NO_LINK: FailureReason.NO_KV_CACHE,
    NoPrefill.NO_HANDOVER: "no_handover",
}
"""Why D computes a prompt, for metrics and logs; failures of P have reasons of their own."""


@dataclass(slots=True)
class _Route:
    """A request between its steps.

    Attributes:
        until: When it ends if it still waits for pods, on the clock of the event loop.
        handover: What goes from P to D; None if D computes the prompt.
        failed: The pods that failed to answer it.
        failed_prefills: The P pods that failed to compute the prompt for the next answer.
        prefilled: The prompt that P has computed for the next answer; None if the pod computes it.
        choice: Its way; None if it has no other one.
        pod: The pod for the answer.
    """

    call: Call
    record: Record
    until: float
    handover: Handover | None
    failed: Failures = field(default_factory=Failures)
    failed_prefills: Failures = field(init=False)
    prefilled: Prefilled | None = None
    choice: Choice | None = None
    pod: Pod = field(init=False)


@dataclass(slots=True)
class Dispatcher:
    """Sends calls to pods.

    Attributes:
        waits: The requests that wait for a pod.
    """

    pods: Pods
    session: aiohttp.ClientSession
    rules: Rules
    waits: Waits = field(init=False)
    _adaptive: Adaptive | None = field(init=False)
    links: Links = field(default_factory=Links, init=False)
    _ending: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _deaths: Deaths = field(init=False)

    def __post_init__(self) -> None:
        self.waits = Waits(self.rules.max_wait)
        self._deaths = Deaths(self.session)
        if self.rules.disaggregation == "Always":
            self._adaptive = None
        else:
            self._adaptive = Adaptive(self.pods, self.rules.objectives, Speeds(self.rules.step_tokens))

    def end(self) -> None:
        """Refuse the requests that wait, and those that would: the process ends."""
        self._ending.set()

    @property
    def ends(self) -> bool:
        """Whether the process ends."""
        return self._ending.is_set()

    @property
    def can_answer(self) -> bool:
        """Whether there are pods that can get a request now, of each role that it needs."""
        return bool(self._decode_pods()) if self.rules.when_no_prefill == "Serve" else self.pods.complete

    @asynccontextmanager
    async def answer(self, call: Call, record: Record) -> AsyncIterator[Whole | Stream]:
        """The answer to a call. Its connection is open until the end of the block.

        Raises:
            RefusedError: P refused the request, or D pods answered it with errors.
            UnavailableError: No pod answered it.
            PoisonError: Pods died while they had it, or died of the same request before.
        """
        if record.place is not None:
            call = call.placed(record.place.number)
        if self._deaths.known(call):
            raise self._poison(record)
        if self._adaptive is not None and call.path == PATH and call.stream:
            record.text = AnswerText()
        async with AsyncExitStack() as stack:
            route, answer = await self._first_answer(stack, call, record)
            self._deaths.answered(call)
            self.pods.erred(route.failed.errors)
            self.pods.worked(route.pod)
            record.decode = route.pod.observed.name
            yield answer
            self._learn(route, answer)

    async def _first_answer(self, stack: AsyncExitStack, call: Call, record: Record) -> tuple[_Route, Whole | Stream]:
        """The first answer of a pod to a call, and its route. Its connection is open until the end of the stack.

        Raises:
            RefusedError: P refused the request, or D pods answered it with errors.
            UnavailableError: No pod answered it.
        """
        until = asyncio.get_running_loop().time() + self.rules.max_wait
        route = _Route(call, record, until, self.rules.handover if call.split else None)
        step = _Step.WAIT_FOR_DECODE
        while True:
            match step:
                case _Step.WAIT_FOR_DECODE:
                    step = await self._wait_for_decode(route)
                case _Step.CHOOSE_WAY:
                    step = self._choose_way(route)
                case _Step.PREFILL:
                    step = await self._try_prefill(route)
                case _Step.WAIT_FOR_PARAMETER:
                    step = await self._wait_for_parameter(route)
                case _Step.CHOOSE_DECODE:
                    step = self._choose_decode(route)
                case _Step.ANSWER:
                    if (answer := await self._try_answer(stack, route)) is not None:
                        return route, answer
                    step = _Step.WAIT_FOR_DECODE

    async def _wait_for_decode(self, route: _Route) -> _Step:
        if self._decode_pods():
            return _Step.CHOOSE_WAY
        await self._wait(self._decode_pods, Role.DECODE, route)
        return _Step.WAIT_FOR_DECODE

    def _choose_way(self, route: _Route) -> _Step:
        route.prefilled, route.failed_prefills, route.choice = None, Failures(), None
        if route.handover is None:
            return _Step.PREFILL
        if self._adaptive is not None:
            parameter = self._linked(self._choices(Role.PARAMETER, route.failed), route.failed)
            decode = self.pods.preferred(self._choices(Role.DECODE, route.failed))
            route.choice = self._adaptive.choose(route.call, parameter, decode, self.rules.ways)
            if route.choice is not None:
                route.record.chosen(route.choice)
                if route.choice.is_alone:
                    route.pod = route.choice.predicted.pod
                    return _Step.ANSWER
        return _Step.PREFILL

    async def _try_prefill(self, route: _Route) -> _Step:
        handover, failed = route.handover, route.failed_prefills
        if handover is None:
            return _Step.CHOOSE_DECODE
        choices = self._choices(Role.PARAMETER, failed)
        pods = self._linked(choices, route.failed)
        if not pods:
            return self._without_parameter(route, choices)
        pod = self._parameter_pod(route, pods)
        try:
            async with self._deaths.watched(route.record):
                with self._computing(route, pod, ends_with_prompt=True):
                    route.prefilled = await self.prefill(handover, pod, route.call, route.record)
        except HandoverError:
            return self._without_prefill(route, NoPrefill.NO_HANDOVER)
        except PodFailure as failure:
            await self._failed(pod, failure, route.call, route.record)
            failed.add(pod, failure.label, reached=failure.reached, answered=failure.answer is not None)
        else:
            self.pods.erred(failed.errors)
            route.record.telemetry.metrics.handed_over.inc()
            return _Step.CHOOSE_DECODE
        if failed.are_too_many:
            return self._without_prefill(route, NoPrefill.FAILURES)
        if self.rules.when_no_prefill == "Wait":
            await asyncio.sleep(failed.pause)
        return _Step.PREFILL

    def _parameter_pod(self, route: _Route, pods: list[Pod]) -> Pod:
        """The P pod for which the way was chosen, as long as it can get the request."""
        choice = route.choice
        if choice is not None and not choice.learning and choice.predicted.pod in pods:
            return choice.predicted.pod
        return self.rules.choose[Role.PARAMETER](pods, route.call)

    def _without_parameter(self, route: _Route, choices: list[Pod]) -> _Step:
        """What follows if none of the P pods that are left has a link to D that works.

        Raises:
            UnavailableError: The request fails.
        """
        if self.rules.when_no_prefill == "Wait":
            return _Step.WAIT_FOR_PARAMETER
        return self._without_prefill(route, NoPrefill.of(route.failed_prefills, has_links=self._has_links(choices)))

    async def _wait_for_parameter(self, route: _Route) -> _Step:
        await self._wait(lambda: self.pods.complete, Role.PARAMETER, route)
        route.failed_prefills.forgive()
        return _Step.PREFILL

    def _without_prefill(self, route: _Route, why: NoPrefill) -> _Step:
        """Let D compute the prompt, if it may.

        Raises:
            UnavailableError: It may not.
        """
        reason = _REASONS.get(why, route.failed_prefills.last)
        if not why.is_left_to_decode(self.rules.when_no_prefill):
            raise UnavailableError(HTTPStatus.SERVICE_UNAVAILABLE, f"No P pod computed the prompt ({reason}).")
        route.record.fell_back(reason)
        route.choice = None  # it goes another way than the one that was predicted
        return _Step.CHOOSE_DECODE

    def _choose_decode(self, route: _Route) -> _Step:
        pod = self._decode_pod(route)
        if pod is None:
            return _Step.WAIT_FOR_DECODE
        route.pod = pod
        return _Step.ANSWER

    async def _try_answer(self, stack: AsyncExitStack, route: _Route) -> Whole | Stream | None:
        """The answer of the chosen pod; None if it failed, and another one may get the request.

        Raises:
            RefusedError: It was the last one that may fail, and answered with an error.
            UnavailableError: It was the last one that may fail.
        """
        pod, prefilled = route.pod, route.prefilled
        try:
            async with self._deaths.watched(route.record):
                return await self._sent(stack, route)
        except PodFailure as failure:
            await stack.aclose()
            route.failed.add(pod, failure.label, reached=failure.reached, answered=failure.answer is not None)
            if prefilled is None or failure.reason is not FailureReason.NO_KV_CACHE:
                await self._failed(pod, failure, route.call, route.record)
            elif self._lost_on_the_way(prefilled.pod, pod, route.record):
                route.handover = None
            if route.failed.are_too_many:
                raise _given_up(failure) from None
        await asyncio.sleep(route.failed.pause)
        return None

    async def _sent(self, stack: AsyncExitStack, route: _Route) -> Whole | Stream:
        pod, call, record, prefilled = route.pod, route.call, route.record, route.prefilled
        if route.choice is not None and route.choice.is_alone:
            # Its first token is not one that had to wait for KV cache.
            with record.stage("alone"), self._computing(route, pod, ends_with_prompt=call.stream):
                if pod.observed.role is Role.PARAMETER:
                    answer = await self._answered_by_parameter(stack, pod, call, record)
                else:
                    answer = await self._answered_by_decode(stack, pod, call, record, None)
            record.telemetry.metrics.ways.began(route.choice)
            return answer
        if prefilled is None or route.choice is None or self._adaptive is None:
            return await self.decode(stack, pod, call, record, prefilled)
        with self._adaptive.handing_over(route.choice, pod, ends_with_first=call.stream):
            return await self.decode(stack, pod, call, record, prefilled)

    def _computing(self, route: _Route, pod: Pod, *, ends_with_prompt: bool) -> AbstractContextManager[None]:
        """A pod computes the prompt of a request; what it takes is learned."""
        if self._adaptive is None or route.choice is None:
            return nullcontext()
        return self._adaptive.computing(route.choice, pod, ends_with_prompt=ends_with_prompt)

    def _learn(self, route: _Route, answer: Whole | Stream) -> None:
        """Learn from a complete answer. One that broke off may have a usage too, of the tokens until then."""
        if self._adaptive is None or route.choice is None or (isinstance(answer, Stream) and not answer.is_complete):
            return
        record = route.record
        seconds = None if record.timing is None else record.timing.seconds_per_token
        usage = usage_in(answer.body) if isinstance(answer, Whole) else record.timing and record.timing.usage
        if usage:
            content = content_of(answer.body) if isinstance(answer, Whole) else record.text and record.text.content
            self._adaptive.ended(route.choice, route.pod, usage, seconds, content or "")
            record.answered(usage)

    async def _answered_by_parameter(
        self, stack: AsyncExitStack, pod: Pod, call: Call, record: Record
    ) -> Whole | Stream:
        """The answer of a P pod to a whole request. Its connection is open until the end of the stack.

        Its prompt does not count for as long as the answer takes: the load of P for prompts is those that it computes.

        Raises:
            PodFailure: It failed.
        """
        stack.enter_context(pod.answering())
        sent = await stack.enter_async_context(
            exchange(pod, self.session, 0, stream=call.stream, answers=record.answers)
        )
        answer = await sent.begin("POST", call.path, call.headers, call.for_decode(None))
        record.prefilled(pod.observed.name)
        return answer

    def _decode_pod(self, route: _Route) -> Pod | None:
        """A D pod: one that has not failed the call and gets KV cache from P, if there is one. None: there is no D."""
        failed, prefilled = route.failed, route.prefilled
        if prefilled is None:
            pods = usable = self._choices(Role.DECODE, failed) or self._decode_pods()
        else:
            every = [pod for pod in self._decode_pods() if linked(prefilled.pod, pod)]
            pods = [pod for pod in every if pod not in failed.pods] or every
            usable = [pod for pod in pods if self.links.usable(prefilled.pod, pod)]
        return self.rules.choose[Role.DECODE](self.pods.preferred(usable or pods), route.call) if pods else None

    async def decode(
        self, stack: AsyncExitStack, pod: Pod, call: Call, record: Record, prefilled: Prefilled | None
    ) -> Whole | Stream:
        """The answer of a D pod. Its connection is open until the end of the stack.

        Raises:
            PodFailure: It failed.
        """
        if prefilled is not None:
            self.links.used(prefilled.pod, pod)
            call = call.with_request_id(prefilled.transfer)
        with record.stage("first_token"), record.telemetry.metrics.decode_wait.one():
            answer = await self._answered_by_decode(stack, pod, call, record, prefilled)
        if prefilled is not None:
            self.links.worked(prefilled.pod, pod)
        return answer

    async def _answered_by_decode(
        self, stack: AsyncExitStack, pod: Pod, call: Call, record: Record, prefilled: Prefilled | None
    ) -> Whole | Stream:
        params = None if prefilled is None else prefilled.params
        sent = await stack.enter_async_context(
            exchange(
                pod,
                self.session,
                call.tokens,
                stream=call.stream or call.one_token,
                reads_from=None if prefilled is None or params is None else prefilled.pod,
                answers=record.answers,
            )
        )
        return await sent.begin("POST", call.path, call.headers, call.for_decode(params))

    def _lost_on_the_way(self, parameter: Pod, decode: Pod, record: Record) -> bool:
        """Note that the KV cache of a prompt did not get from P to D. Whether D computes the prompt."""
        self.links.failed(parameter, decode)
        self.pods.doubt(parameter, decode)
        record.failed(Role.PARAMETER, FailureReason.NO_KV_CACHE)
        _LOG.warning(
            "The KV cache of request %s does not get from %s to %s",
            record.request_id,
            parameter.observed.name,
            decode.observed.name,
        )
        if self.rules.when_no_prefill != "Serve":
            return False
        record.fell_back(FailureReason.NO_KV_CACHE)
        return True

    def _linked(self, parameter: list[Pod], failed: Failures) -> list[Pod]:
        """Those of P pods from which KV cache gets to a D pod that has not failed the call, if there is one.

        If D may not compute prompts, a link or a D pod that failed is tried again.
        """
        decode = _by_group(self._choices(Role.DECODE, failed) or self._decode_pods())
        found = [pod for pod in parameter if pod.observed.group in decode]
        if self.rules.when_no_prefill == "Serve":
            found = [pod for pod in found if any(self.links.usable(pod, one) for one in decode[pod.observed.group])]
        elif not found:
            groups = {pod.observed.group for pod in self._decode_pods()}
            found = [pod for pod in parameter if pod.observed.group in groups]
        return self.pods.preferred(found)

    def _has_links(self, parameter: list[Pod]) -> bool:
        """Whether any of P pods has a link to a D pod, be it one that failed."""
        return any(linked(pod, one) for pod in parameter for one in self._decode_pods())

    async def prefill(self, handover: Handover, pod: Pod, call: Call, record: Record) -> Prefilled:
        """Let a P pod compute the prompt.

        Raises:
            HandoverError: Its answer does not say where the KV cache is.
            PodFailure: It failed.
            RefusedError: It answered with an error.
        """
        with record.stage("prefill"):
            prefill = await self._prepared(handover, pod, record)
            call = call.with_request_id(prefill.transfer)
            body = call.for_prefill(handover.to_prefill(prefill), handover.members)
            async with exchange(pod, self.session, call.tokens, answers=record.answers) as sent:
                answer = await sent.begin("POST", call.path, call.headers, body, longest=LONGEST_PREFILL)
        if isinstance(answer, Stream):
            raise PodFailure(FailureReason.STREAM_FROM_PREFILL)
        if answer.status != HTTPStatus.OK:
            raise RefusedError(answer)
        try:
            params = handover.to_decode(prefill, {MEMBER: await transfer_params(answer)})
        except WrongHandoverError as error:
            _LOG.warning("P pod %s: %s", pod.observed.name, error)
            raise PodFailure(FailureReason.WRONG_HANDOVER) from None
        self.pods.worked(pod)
        record.prefilled(pod.observed.name)
        return Prefilled(pod, params, prefill.transfer)

    async def _prepared(self, handover: Handover, pod: Pod, record: Record) -> Prefill:
        """A hand-over from a P pod, with the engine that its bootstrap server names.

        Its id is the request id at P and D. NixlPushConnector gives D the KV cache of the request of P with the same
        id, whatever the prompt. A client may send one id twice, so it is only the beginning of this one.

        It is asked each time: vLLM in a container that starts again has another engine id, and D, which cannot find the
        earlier one, would compute all prompts without an error.
        """
        port = handover.bootstrap_port
        transfer = f"{record.request_id}-{uuid4()}"
        host = pod.observed.address.rpartition(":")[0]
        if port is None:
            return Prefill(transfer, host.strip("[]"), pod.observed.further_hosts)
        bootstrap = f"http://{host}:{port}"
        async with exchange(pod, self.session, 0) as sent:
            answer = await sent.begin("GET", "/query", {}, None, url=bootstrap, longest=LONGEST_REPORT)
        if isinstance(answer, Stream) or answer.status != HTTPStatus.OK:
            raise PodFailure(FailureReason.NO_BOOTSTRAP_SERVER)
        ranks = members(answer, dict[str, _Rank])
        own = ranks.get(str(pod.observed.rank or 0), _Rank())
        engine = str(own.engine_id or "")[:_LONGEST_ENGINE_ID]
        return Prefill(transfer, host.strip("[]"), engine=engine, bootstrap=bootstrap)

    def _decode_pods(self) -> list[Pod]:
        return self.pods.available(Role.DECODE)

    def _choices(self, role: Role, failed: Failures) -> list[Pod]:
        return [pod for pod in self.pods.available(role) if pod not in failed.pods]

    async def _wait(self, holds: Callable[[], object], role: Role, route: _Route) -> None:
        """Wait until something holds that pods of a role are missing for."""
        if self.waits.present >= self.rules.max_queued:
            message = f"No pod is ready, and the queue is full ({self.waits.present} requests)."
            raise UnavailableError(HTTPStatus.SERVICE_UNAVAILABLE, message, self.waits.left_seconds)
        with self.waits.one(for_start=self.pods.complete_since is None), route.record.stage("queue"):
            ready = asyncio.ensure_future(self.pods.wait(holds, route.until))
            ending = asyncio.ensure_future(self._ending.wait())
            try:
                await asyncio.wait((ready, ending), return_when=asyncio.FIRST_COMPLETED)
            finally:
                ready.cancel()
                ending.cancel()
            if self.ends:
                raise UnavailableError(
                    HTTPStatus.SERVICE_UNAVAILABLE, "The router is shutting down. Retry the request."
                )
            if not ready.result():
                message = f"No {role} pod was ready in time."
                raise UnavailableError(HTTPStatus.GATEWAY_TIMEOUT, message, self.waits.left_seconds)

    async def _failed(self, pod: Pod, failure: PodFailure, call: Call, record: Record) -> None:
        """Note that a pod failed a request.

        Raises:
            PoisonError: The request gets no further pod.
        """
        await self.note(pod, failure, call, record)
        if record.poison:
            raise self._poison(record)

    def _poison(self, record: Record) -> PoisonError:
        record.telemetry.metrics.poison.inc()
        _LOG.warning("Request %s is given up: pods died while they had it", record.request_id)
        return PoisonError()

    async def note(self, pod: Pod, failure: PodFailure, call: Call, record: Record) -> None:
        """Note that a pod failed a request: pause it, count it, log it, and find whether it died."""
        if failure.answer is None:  # a request that makes a pod answer with an error must not take the pod from others
            fault = None if failure.reached else PodFault.REFUSES
            self.pods.failed(pod, fault, whole=failure.reason in FAILURES_OF_SERVER)
        record.failed(pod.observed.role, failure.label)
        _LOG.warning(
            "%s pod %s failed request %s: %s", pod.observed.role, pod.observed.name, record.request_id, failure.label
        )
        await self._deaths.note(pod, failure, call, record)


def _by_group(pods: list[Pod]) -> Mapping[str, list[Pod]]:
    found: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        found[pod.observed.group].append(pod)
    return found


def _given_up(last: PodFailure) -> RefusedError | UnavailableError:
    """The error for the client after too many failures."""
    if last.answer is not None:
        return RefusedError(last.answer)
    return UnavailableError(HTTPStatus.BAD_GATEWAY, f"Pods failed; the last reason was: {last.label}.")
