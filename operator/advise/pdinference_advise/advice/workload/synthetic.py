"""Workloads from a rate and distributions of lengths."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat, takewhile
from random import Random
from typing import Final, Protocol

from pdinference.api.words import cut
from pdinference_advise.advice.workload import lengths
from pdinference_advise.advice.workload.bounds import LONGEST_S, MOST_RATE, MOST_REQUESTS, MOST_TOKENS, WorkloadError
from pdinference_advise.advice.workload.distribution import Distribution
from pdinference_advise.advice.workload.trace import Trace
from pdinference_advise.simulation.arrivals import PREFIX_BLOCK, Arrival

_MOST_BURSTINESS: Final = 10.0
_EVEN: Final = 0.01
"""Burstiness below which the pace is even."""
_MOST_PREFIXES: Final = 100_000
_MOST_BLOCKS: Final = 1_000_000
"""Blocks of all shared prefixes together."""
_LONGEST_KIND: Final = 63


@dataclass(frozen=True, slots=True)
class RequestClass:
    """Requests of one class. Prompt and answer lengths are independent of each other.

    Attributes:
        prompt: Prompt lengths.
        answer: Answer lengths.
        kind: Name of the class; empty without classes.
        percent: Percent of all requests.
    """

    prompt: Distribution
    answer: Distribution
    kind: str = ""
    percent: float = 100.0


class Prefixes(Protocol):
    """Beginnings that prompts have in common."""

    def draw(self, prompt: int, random: Random) -> tuple[int, ...]:
        """The prefix of a prompt with this many tokens, as in `Arrival.prefix`."""


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """Some requests begin with one of several long texts, such as system prompts; each is equally likely.

    Attributes:
        tokens: Length of each text. The prompt includes it.
        percent: Percent of the requests that begin with one.
        number: How many texts there are.
    """

    tokens: int
    percent: float
    number: int = 1

    def draw(self, prompt: int, random: Random) -> tuple[int, ...]:
        """The prefix of a prompt; a part of the text if the prompt is shorter."""
        chosen, which = 100 * random.random() < self.percent, random.randrange(self.number)
        if not chosen:
            return ()
        first = which * (self.tokens // PREFIX_BLOCK)
        return tuple(range(first, first + min(self.tokens, prompt) // PREFIX_BLOCK))


@dataclass(frozen=True, slots=True)
class RepeatedShare:
    """A share of each prompt is the beginning of one common text, on average.

    Attributes:
        share: Share of the prompt tokens, 0 to 1.
    """

    share: float

    def draw(self, prompt: int, random: Random) -> tuple[int, ...]:
        """The prefix of a prompt, rounded at random to whole blocks so that the mean share is right."""
        blocks = int(self.share * prompt / PREFIX_BLOCK + random.random())
        return tuple(range(min(blocks, prompt // PREFIX_BLOCK)))


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Independent requests at a steady rate.

    Attributes:
        rate: Requests per second.
        classes: The classes, 100 % together.
        burstiness: Coefficient of variation of the times between requests, which are gamma-distributed: 0 is an even
            pace, 1 a Poisson process, more comes in bursts. vLLM's `--burstiness` is one over its square.
        prefixes: Beginnings that prompts have in common.
    """

    rate: float
    classes: tuple[RequestClass, ...]
    burstiness: float = 1.0
    prefixes: Prefixes | None = None

    def __post_init__(self) -> None:
        if not 0 < self.rate <= MOST_RATE:
            raise WorkloadError(f"--rate: {self.rate:g} requests/s is not above 0 and at most {MOST_RATE:,.0f}.")
        if not 0 <= self.burstiness <= _MOST_BURSTINESS:
            raise WorkloadError(
                f"--burstiness: {self.burstiness:g} is not between 0 (an even pace) and {_MOST_BURSTINESS:g}; 1 is a "
                "Poisson process."
            )

    def trace(self, seconds: float, *, seed: int = 0) -> Trace:
        """The requests of some time. The lengths of the first n requests do not depend on the rate or the burstiness.

        Raises:
            WorkloadError: It would be empty, longer than a year, or have too many requests.
        """
        if not (0 < seconds <= LONGEST_S and self.rate * seconds <= MOST_REQUESTS):
            raise WorkloadError(
                f"{seconds:g} s at {self.rate:g} requests/s cannot be simulated: at most {MOST_REQUESTS:,} requests "
                f"and {LONGEST_S / 86_400:.0f} days are possible."
            )
        return Trace(tuple(self._arrivals(seconds, seed)), seconds, self._source)

    def _arrivals(self, seconds: float, seed: int) -> Iterator[Arrival]:
        requests = self._requests(Random(f"lengths {seed}"))  # noqa: S311 - no secret
        times = list(takewhile(lambda at: at < seconds, self._times(seed))) or [0.0]
        for at, (kind, prompt, answer, prefix) in zip(times, requests, strict=False):
            yield Arrival(at, prompt, answer, prefix, kind)

    def _times(self, seed: int) -> Iterator[float]:
        """When the requests come, without an end."""
        mean, cv = 1 / self.rate, self.burstiness
        random = Random(f"times {seed}")  # noqa: S311 - no secret
        if cv < _EVEN:
            return accumulate(repeat(mean))
        return accumulate(random.gammavariate(1 / cv**2, mean * cv**2) for _ in repeat(None))

    def _requests(self, random: Random) -> Iterator[tuple[str, int, int, tuple[int, ...]]]:
        """Class, lengths and prefix of each request, without an end."""
        weights = list(accumulate(one.percent for one in self.classes))
        while True:
            (one,) = random.choices(self.classes, cum_weights=weights)
            prompt, answer = one.prompt.draw(random), one.answer.draw(random)
            yield one.kind, prompt, answer, self.prefixes.draw(prompt, random) if self.prefixes else ()

    @property
    def _source(self) -> str:
        pace = {0.0: "at an even pace", 1.0: "as a Poisson process"}
        requests = "request" if self.rate == 1 else "requests"
        return f"{self.rate:g} {requests}/s {pace.get(self.burstiness, f'with burstiness {self.burstiness:g}')}"


def parse_class(text: str, where: str) -> RequestClass:
    """A class of requests, from `chat:80%:500..1500:200`: name, share, prompt tokens and answer tokens.

    Raises:
        WorkloadError: It is none.
    """
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 4:
        raise WorkloadError(
            f'{where}: "{cut(text, 60)}" is no class of requests. Write NAME:SHARE:PROMPT:ANSWER, as in '
            "chat:80%:500..1500:200~600. In place of a mix of lengths, write several classes."
        )
    kind, percent, prompt, answer = parts
    if not (kind.isidentifier() or kind.replace("-", "_").isidentifier()) or len(kind) > _LONGEST_KIND:
        raise WorkloadError(f'{where}: "{cut(kind, 40)}" is no name of a class. Write a word, such as chat.')
    where = f"{where} {kind}"
    return RequestClass(
        lengths.single(prompt, f"{where}, prompt tokens"),
        lengths.single(answer, f"{where}, answer tokens"),
        kind,
        lengths.share(percent, where),
    )


def parse_classes(texts: Sequence[str], where: str) -> tuple[RequestClass, ...]:
    """The classes of a workload.

    Raises:
        WorkloadError: One is none, two have one name, or they are not 100 % together.
    """
    classes = tuple(parse_class(text, where) for text in texts)
    kinds = [one.kind for one in classes]
    if twice := sorted({kind for kind in kinds if kinds.count(kind) > 1}):
        raise WorkloadError(f"{where}: the class {twice[0]} is there twice.")
    lengths.require_whole([one.percent for one in classes], where)
    return classes


def parse_prefixes(text: str, where: str) -> SharedPrefixes:
    """Shared prefixes, from `2048/80%` or, for ten different ones, `2048/80%/10`.

    Raises:
        WorkloadError: The text describes none.
    """
    tokens, *rest = (part.strip() for part in text.split("/"))
    number = rest[1] if len(rest) == 2 else "1"
    if len(rest) not in (1, 2) or not all(part.isascii() and part.isdigit() for part in (tokens, number)):
        raise WorkloadError(
            f'{where}: "{cut(text, 60)}" is no shared prefix. Write TOKENS/SHARE, as in 2048/80% for 80 % of requests '
            "that begin with the same 2048 tokens, or TOKENS/SHARE/NUMBER, as in 2048/80%/10 for ten such beginnings."
        )
    percent = lengths.share(rest[0], where)
    if len(tokens) > 9 or not PREFIX_BLOCK <= int(tokens) <= MOST_TOKENS:
        raise WorkloadError(
            f"{where}: a prefix of {cut(tokens, 20)} tokens is not between {PREFIX_BLOCK} and {MOST_TOKENS:,}. "
            f"Prefixes count in blocks of {PREFIX_BLOCK} tokens; leave a shorter one out."
        )
    if len(number) > 6 or not 1 <= int(number) <= _MOST_PREFIXES:
        raise WorkloadError(f"{where}: {cut(number, 20)} prefixes are not between 1 and {_MOST_PREFIXES:,}.")
    if int(tokens) // PREFIX_BLOCK * int(number) > _MOST_BLOCKS:
        raise WorkloadError(f"{where}: {text} is more than {_MOST_BLOCKS * PREFIX_BLOCK:,} tokens of prefixes in all.")
    return SharedPrefixes(int(tokens), percent, int(number))
