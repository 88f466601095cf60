"""A canary: two prompts that were never sent before, through P and D, and to P alone. The answers have to be alike."""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

import aiohttp
import msgspec
from multidict import CIMultiDict

from pdinference.api.names import METRIC_KV_PROMPT_TOKENS, KvSource, Verification
from pdinference.api.words import cut
from pdinference.engine.connectors.handover import Handover, HandoverError
from pdinference.loadmetrics.scraping.exposition import Exposition, Reading
from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.loadmetrics.scraping.unreadable import UnreadableError
from pdinference.router.calls import REQUEST_ID, Call
from pdinference.router.canary_outcome import CanaryOutcome, Distribution, judged
from pdinference.router.canary_prompts import NoPromptError, lengths, prompts
from pdinference.router.dispatch import Dispatcher, RefusedError
from pdinference.router.events import problem_in
from pdinference.router.exchange import LONGEST_REPORT, PodFailure, Stream, Whole, exchange, members
from pdinference.router.failure_reason import FailureReason
from pdinference.router.pod import Pod
from pdinference.router.record import Record, Telemetry
from pdinference.router.transfers import Counts, fetch_metrics, read_counts

_COMPLETIONS: Final = "/v1/completions"
_SHORTEST_PART: Final = 128
"""Tokens. The default block size on GPUs (docs/tuning.md)."""
_LONGEST_PART: Final = 8192
_MOST_LIKELY: Final = 20
"""Tokens whose probabilities are compared: vLLM's default for --max-logprobs."""
_PARAMETER_S: Final = 480.0
"""Time for each answer of P. Under load a canary waits for its turn like other prompts, and one that begins again waits
from the start. P pods that hang are found by the monitor, in a minute at most."""
_ALONE_S: Final = 10.0
"""Time for an answer of D that shows that it has no more load than it can bear."""
_COUNTERS_S: Final = (0.0, 0.2, 0.5, 1.0, 2.0)
"""Times between readings of D's counters. vLLM counts after it has answered."""
_LONGEST_REASON: Final = 300
"""Characters of a pod's reason in a log."""
_ARRIVED: Final = (METRIC_KV_PROMPT_TOKENS, KvSource.PARAMETER)
_COMPUTED: Final = (METRIC_KV_PROMPT_TOKENS, KvSource.DECODE)


class _NotApplicableError(Exception):
    """The model cannot be asked."""


class _FailedError(Exception):
    """A pod did not answer a canary."""

    def __init__(self, pod: Pod, why: str, *, of_transfer: bool = False, read_too_long: bool = False) -> None:
        super().__init__(f"{pod.observed.name} failed: {why}")
        self.pod = pod
        self.of_transfer = of_transfer
        self.read_too_long = read_too_long


def _unreadable(pod: Pod) -> _FailedError:
    """Its metrics did not come, which shows nothing of its counters."""
    return _FailedError(pod, "unreadable_metrics")


class _Card(msgspec.Struct):
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Card]


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Logprobs(msgspec.Struct):
    top_logprobs: list[dict[str, float] | None]


class _Choice(msgspec.Struct):
    logprobs: _Logprobs | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


@dataclass(frozen=True, slots=True)
class Canary:
    """Sends canaries through the code that requests go through."""

    dispatcher: Dispatcher
    telemetry: Telemetry
    share: Share

    @property
    def _handover(self) -> Handover:
        handover = self.dispatcher.rules.handover
        if handover is None:
            raise _NotApplicableError("D gets whole requests")
        return handover

    async def send(self, parameter: Pod, decode: Pod, seconds: float) -> CanaryOutcome:
        """Send one canary through a P and a D pod.

        Args:
            parameter: The P pod.
            decode: The D pod. What it can answer alone, it is asked before P is.
            seconds: Time for each answer of D.
        """
        try:
            return await self._send(parameter, decode, seconds)
        except (_NotApplicableError, NoPromptError) as error:
            return CanaryOutcome(Verification.NOT_APPLICABLE, str(error))
        except HandoverError as error:
            return CanaryOutcome(Verification.COMPUTED_BY_DECODE, str(error))
        except _FailedError as error:
            by_parameter = error.pod is parameter
            unrelated = not (error.of_transfer or (error.read_too_long and await self._answers(decode)))
            return CanaryOutcome(Verification.FAILED, str(error), by_parameter=by_parameter, unrelated=unrelated)

    async def _answers(self, decode: Pod) -> bool:
        """Whether a D pod that did not answer with KV cache from P in time answers without it in much less."""
        try:
            answer = await self._completion(decode, _body("a", None), _ALONE_S)
        except _FailedError:
            return False
        return answer.status == HTTPStatus.OK

    async def serves(self, decode: Pod) -> bool:
        """Whether a D pod has answered requests of clients. Canaries alone get one token each."""
        reading = await self._reading(decode)
        answers = reading.answer_lengths if reading is not None else None
        return answers is not None and answers.total > answers.count

    async def _send(self, parameter: Pod, decode: Pod, seconds: float) -> CanaryOutcome:
        part = await self._part(decode, seconds)
        logprobs = await self._logprobs(parameter, decode, seconds)
        first, second = await prompts(part, _Tokenizer(self.dispatcher.session, parameter))
        clients = bool(decode.under_way)
        before = await read_counts(decode, self.share)
        if before is None:
            raise _unreadable(decode)
        # P computes each prompt for D first: its own answer, after that, is from no other KV cache than the one that
        # it handed over, or with a salt from none.
        through = [await self._through(parameter, decode, _body(ids, logprobs), seconds) for ids in (first, second)]
        alone = [await self._alone(parameter, _body(ids, logprobs)) for ids in (first, second)]
        clients |= bool(decode.under_way)
        arrived = await self._arrived(decode, before, part, clients=clients)
        return judged(sum(lengths(part)), through, alone, arrived=arrived)

    async def _part(self, decode: Pod, seconds: float) -> int:
        """Tokens of a part of the prompts: a block at least."""
        if (reading := await self._reading(decode)) is None:
            raise _unreadable(decode)
        block = reading.cache.block_size if reading.cache is not None else 0
        part = min(max(block, _SHORTEST_PART, self._handover.chunk), _LONGEST_PART)
        async with _asking(decode, seconds):
            answer = await _ask(self.dispatcher.session, decode, "GET", "/v1/models", None)
            cards = members(answer, _Models).data
        longest = next((card.max_model_len for card in cards if card.max_model_len), math.inf)
        needed = max(lengths(part)) + 1
        if longest < needed:
            raise _NotApplicableError(f"the maximum length of {longest} tokens is below {needed}")
        return part

    async def _logprobs(self, parameter: Pod, decode: Pod, seconds: float) -> int | None:
        """Number of probabilities that both pods may be asked for; None for none."""
        asked = _body("a", _MOST_LIKELY)
        answers = [
            await self._completion(decode, asked, seconds),
            await self._completion(parameter, asked, _PARAMETER_S),
        ]
        if all(answer.status == HTTPStatus.OK for answer in answers):
            return _MOST_LIKELY
        answer = await self._completion(parameter, _body("a", None), _PARAMETER_S)
        if answer.status != HTTPStatus.OK:
            raise _NotApplicableError(_refusal(_COMPLETIONS, answer))
        return None

    async def _through(
        self, parameter: Pod, decode: Pod, body: Mapping[str, Any], seconds: float
    ) -> Distribution | None:
        """The answer through P and D."""
        record = Record(f"canary-{uuid4()}", self.telemetry)
        headers = CIMultiDict({REQUEST_ID: record.request_id, "Content-Type": "application/json"})
        call = Call(_COMPLETIONS, msgspec.json.encode(body), json=True, split=True, one_token=True, headers=headers)
        async with _asking(parameter, _PARAMETER_S):
            prefilled = await self.dispatcher.prefill(self._handover, parameter, call, record)
        async with _asking(decode, seconds, reads=True), AsyncExitStack() as stack:
            return _distribution(await self.dispatcher.decode(stack, decode, call, record, prefilled))

    async def _alone(self, parameter: Pod, body: Mapping[str, Any]) -> Distribution | None:
        """The answer of P. The salt keeps it from KV cache that it has."""
        salted = {**body, "cache_salt": str(uuid4())}
        async with _asking(parameter, _PARAMETER_S):
            return _distribution(await _ask(self.dispatcher.session, parameter, "POST", _COMPLETIONS, salted))

    async def _completion(self, pod: Pod, body: Mapping[str, Any], seconds: float) -> Whole:
        async with _asking(pod, seconds):
            return await _ask(self.dispatcher.session, pod, "POST", _COMPLETIONS, body)

    async def _arrived(self, decode: Pod, before: Counts, part: int, *, clients: bool) -> bool | None:
        """Whether both prompts came from P, by what D counted since a reading; None if it does not count that.

        Canaries of several routers add up in the counters of one D, so the share of P is judged as well as the growth.
        Connectors may leave a part of each prompt to D.

        Args:
            decode: The D pod.
            before: The reading.
            part: Tokens of such a part.
            clients: Whether D had requests of clients. They need not be split, so they may lower the share.

        Raises:
            _FailedError: D reports none of its counters any more.
        """
        if _ARRIVED not in before:
            return None
        whole = sum(lengths(part))
        least = whole - 2 * part
        counts: Counts = {}
        for pause in _COUNTERS_S:
            await asyncio.sleep(pause)
            counts = await read_counts(decode, self.share) or counts
            arrived, computed = (counts.get(of, 0.0) - before.get(of, 0.0) for of in (_ARRIVED, _COMPUTED))
            if arrived >= least and (clients or whole * arrived >= least * (arrived + computed)):
                return True
        if not counts:
            raise _unreadable(decode)
        return False

    async def _reading(self, pod: Pod) -> Reading | None:
        exposition = Exposition()
        try:
            await fetch_metrics(pod, exposition.take, self.share)
        except UnreadableError:
            return None
        return exposition.reading()


def _refusal(path: str, answer: Whole) -> str:
    """Why a model cannot be asked, in the words of its pod."""
    problem = problem_in(answer.body)
    said = (problem.error.message if problem is not None else None) or answer.body.decode("utf-8", "replace")
    return f"{path} answers with status {answer.status}: {cut(said, _LONGEST_REASON)}"


def _body(prompt: list[int] | str, logprobs: int | None) -> dict[str, Any]:
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
    return body if logprobs is None else {**body, "logprobs": logprobs, "return_tokens_as_token_ids": True}


@dataclass(frozen=True, slots=True)
class _Tokenizer:
    """The tokenizer of a pod."""

    session: aiohttp.ClientSession
    pod: Pod

    async def __call__(self, text: str, opens: bool) -> list[int]:
        body = {"prompt": text, "add_special_tokens": opens}
        async with _asking(self.pod, _PARAMETER_S):
            answer = await _ask(self.session, self.pod, "POST", "/tokenize", body)
            if answer.status != HTTPStatus.OK:
                raise _NotApplicableError(_refusal("/tokenize", answer))
            return members(answer, _Tokens).tokens


@asynccontextmanager
async def _asking(pod: Pod, seconds: float, *, reads: bool = False) -> AsyncIterator[None]:
    """Time for an answer of a pod. What is wrong with the answer is a failure of that pod.

    Args:
        pod: The pod.
        seconds: The time.
        reads: Whether it reads KV cache from P for that, so that its failure may be one of the transfer.

    Raises:
        _FailedError: The time is over, or the answer is none.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise _FailedError(pod, f"no answer within {seconds:g} s", read_too_long=reads) from None
    except RefusedError as error:
        of_transfer = reads and error.answer.status == HTTPStatus.INTERNAL_SERVER_ERROR
        raise _FailedError(pod, f"status {error.answer.status}", of_transfer=of_transfer) from None
    except PodFailure as failure:
        is_500 = failure.status == HTTPStatus.INTERNAL_SERVER_ERROR
        of_transfer = reads and (failure.reason is FailureReason.NO_KV_CACHE or is_500)
        raise _FailedError(pod, failure.label, of_transfer=of_transfer) from failure


async def _ask(session: aiohttp.ClientSession, pod: Pod, method: str, path: str, body: Any) -> Whole:
    """The answer of a pod."""
    data = None if body is None else msgspec.json.encode(body)
    async with exchange(pod, session, 0) as sent:
        kind = {"Content-Type": "application/json"}
        answer = await sent.begin(method, path, kind, data, longest=LONGEST_REPORT)
    if isinstance(answer, Stream):
        raise PodFailure(FailureReason.UNEXPECTED_STREAM)
    return answer


def _distribution(answer: Whole | Stream) -> Distribution | None:
    """Probabilities of the first token; None if the answer has none.

    Raises:
        PodFailure: It is no completion.
        RefusedError: It is an error.
    """
    if isinstance(answer, Stream):
        raise PodFailure(FailureReason.UNEXPECTED_STREAM)
    if answer.status != HTTPStatus.OK:
        raise RefusedError(answer)
    choices = members(answer, _Completion).choices
    logprobs = choices[0].logprobs if choices else None
    first = logprobs.top_logprobs[0] if logprobs is not None and logprobs.top_logprobs else None
    if first is None:
        return None
    weights = {token: math.exp(min(value, 0.0)) for token, value in first.items()}
    whole = sum(weights.values())
    return {token: weight / whole for token, weight in weights.items()} if whole else None
