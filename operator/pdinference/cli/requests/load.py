"""A short load of requests of one size, and its latencies.

Tests: tests/cli/test_bench.py
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pdinference.cli.requests.router import RouterForward
from pdinference.cli.requests.stream import Json, RequestError, StreamedAnswer

_PATH: Final = "/v1/completions"
_WORDS: Final = (
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "for",
    "it",
    "as",
    "was",
    "with",
    "be",
    "by",
    "on",
    "not",
)
"""Words of one token each in the usual vocabularies."""
_PERCENTILES: Final = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent.

    Attributes:
        requests: Number of requests.
        concurrency: Most requests at a time.
        rate: Requests a second; None for as fast as the concurrency allows.
        prompt_tokens: Tokens of a prompt, about.
        answer_tokens: Tokens of an answer.
        seconds: After which no further request is sent.
    """

    requests: int
    concurrency: int
    rate: float | None
    prompt_tokens: int
    answer_tokens: int
    seconds: float

    def body(self) -> Json:
        """A request, whose prompt no prefix cache knows."""
        words = [secrets.token_hex(4), *(secrets.choice(_WORDS) for _ in range(self.prompt_tokens - 1))]
        tokens = {"max_tokens": self.answer_tokens, "ignore_eos": True, "temperature": 0}
        return {"prompt": " ".join(words), **tokens}


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """What came back.

    Attributes:
        seconds: From the first request to the last answer.
        errors: Why requests have no answer, each once, with their number.
    """

    seconds: float
    answers: Sequence[StreamedAnswer]
    errors: dict[str, int]

    def latencies(self) -> dict[str, dict[str, float]]:
        """Percentiles in seconds.

        Of answers: the time to first token, the mean time per output token, and the whole answer. Of all parts of all
        answers: the gap to the part before, which shows stalls that the mean of an answer hides.
        """
        betweens = [one.between for one in self.answers if one.between is not None]
        measured = {
            "ttft": [one.first for one in self.answers],
            "tpot": betweens,
            "gap": [gap for one in self.answers for gap in one.gaps],
            "total": [one.total for one in self.answers],
        }
        return {name: percentiles(values) for name, values in measured.items() if values}

    def as_json(self) -> dict[str, Any]:
        """Everything, for programs."""
        prompt, answer = self.tokens()
        by_decode = sum(one.prefill == "decode" for one in self.answers)
        return {
            "seconds": self.seconds,
            "answers": len(self.answers),
            "errors": self.errors,
            "promptTokens": prompt,
            "answerTokens": answer,
            "promptsByDecode": by_decode,
            "latencySeconds": self.latencies(),
        }

    def tokens(self) -> tuple[int, int]:
        """Tokens of prompts and of answers, in all."""
        return sum(one.prompt_tokens for one in self.answers), sum(one.answer_tokens for one in self.answers)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Percentiles of a few values: each is one of them, at least as large as that share of them."""
    ordered = sorted(values)
    return {f"p{share}": ordered[-(-share * len(ordered) // 100) - 1] for share in _PERCENTILES}


async def measure(router: RouterForward, load: Load, progress: Callable[[int], None]) -> LoadOutcome:
    """Send the load.

    Args:
        router: Where to.
        load: What to send.
        progress: Called with the number of requests that have ended.
    """
    answers: list[StreamedAnswer] = []
    errors: dict[str, int] = {}
    free = asyncio.Semaphore(load.concurrency)
    began = time.perf_counter()

    async def one() -> None:
        try:
            answers.append(await router.ask(_PATH, load.body()))
        except RequestError as error:
            errors[str(error)] = errors.get(str(error), 0) + 1
        finally:
            free.release()
            progress(len(answers) + sum(errors.values()))

    async with asyncio.TaskGroup() as group:
        for number in range(load.requests):
            if load.rate is not None:
                await asyncio.sleep(max(0.0, began + number / load.rate - time.perf_counter()))
            await free.acquire()
            if time.perf_counter() - began > load.seconds:
                free.release()
                break
            group.create_task(one())
    return LoadOutcome(time.perf_counter() - began, answers, errors)
