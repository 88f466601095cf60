"""Which pod gets a request. Pure: candidates and a request in, a pod out."""

import random
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import count
from typing import Any, Final, Protocol

from pdinference.api.names import Role
from pdinference.router.pod import Pod
from pdinference.router.prefixes import Chain, PrefixIndex


class RequestView(Protocol):
    """What the policies see of a request."""

    @property
    def body(self) -> bytes:
        """Its body, or the beginning of it."""

    @property
    def tokens(self) -> int:
        """Prompt tokens."""

    @property
    def session(self) -> str:
        """Key of the session; empty without one."""


Choose = Callable[[Sequence[Pod], RequestView], Pod]
"""Chooses from at least one pod."""
ChainOf = Callable[[Any], Chain]
"""The chain of a request; an empty one if it is not compared with others."""

_CHANCE: Final = random.Random()  # noqa: S311 - nothing secret
_PREFIX_BYTES: Final = 2048
"""Requests whose bodies start with the same bytes share a prefix: the system prompt comes first."""
_LONGEST_KEY: Final = 64
"""Of a BLAKE2b key, in bytes."""
_OF_ANSWERS: Final = 0.1
"""What an answer under way costs the requests beside it, of what its prompt did: each step reads its KV cache."""
_ANSWER: Final = 200.0
"""What it costs besides, in tokens: its share of each step, and a place among those that run."""
_COMPUTED: Final = 2.0
"""What a token of a prompt costs that is not in the cache, in tokens that wait before it: the answers of the pod wait
as well as the prompt."""


def least_tokens(pods: Sequence[Pod], _call: RequestView) -> Pod:
    """The pod with the fewest outstanding prompt tokens; of several, the one whose last request is the oldest."""
    return min(pods, key=lambda pod: (pod.tokens, pod.requests, pod.turn))


def least_requests(pods: Sequence[Pod], _call: RequestView) -> Pod:
    """The pod with the fewest running requests; of several, the one whose last request is the oldest."""
    return min(pods, key=lambda pod: (pod.requests, pod.tokens, pod.turn))


def by_session(pods: Sequence[Pod], call: RequestView) -> Pod:
    """The pod of the session. Requests without one go to the least loaded pod."""
    return _affine(pods, call.session.encode()) if call.session else least_requests(pods, call)


class ByPrefix:
    """The pod with the least to do: what is outstanding there, and what it does not have of this prompt.

    What pods have is known by what this router has sent to them. Of several without requests, it is the one of the
    prompt's first bytes, which other routers choose, too.

    Args:
        chain_of: Gives the chain of a request.
    """

    def __init__(self, chain_of: ChainOf) -> None:
        self._chain_of = chain_of
        self._index = PrefixIndex()

    def __call__(self, pods: Sequence[Pod], call: RequestView) -> Pod:
        """One of them."""
        chain = self._chain_of(call)
        known = self._index.known(chain, pods)
        saved = {pod: _COMPUTED * call.tokens * known[pod] / max(1, chain.size) for pod in pods}
        home = _affine(pods, call.body[:_PREFIX_BYTES]) if any(not pod.requests for pod in pods) else None
        pod = min(pods, key=lambda pod: (_work(pod) - saved[pod], pod.requests > 0 or pod is not home, pod.turn))
        self._index.add(chain, pod)
        return pod


class AtRandom:
    """Any pod."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def __call__(self, pods: Sequence[Pod], _call: RequestView) -> Pod:
        """One of them."""
        return self._chance.choice(pods)


class BetterOfTwo:
    """The less loaded one of two random pods."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def __call__(self, pods: Sequence[Pod], call: RequestView) -> Pod:
        """One of them."""
        return least_tokens(self._chance.sample(pods, min(2, len(pods))), call)


class RoundRobin:
    """One pod after the other."""

    def __init__(self) -> None:
        self._turn = count()

    def __call__(self, pods: Sequence[Pod], _call: RequestView) -> Pod:
        """The next pod by name."""
        return sorted(pods, key=lambda pod: pod.observed.name)[next(self._turn) % len(pods)]


def _work(pod: Pod) -> float:
    """What a pod has to do, in prompt tokens."""
    prompts = sum(pod.prompts.values())
    return prompts + _OF_ANSWERS * (pod.tokens - prompts) + _ANSWER * (pod.requests - len(pod.prompts))


def _affine(pods: Sequence[Pod], key: bytes) -> Pod:
    """Rendezvous hashing: another pod only where this one goes, or a new one comes before it."""

    def weight(pod: Pod) -> bytes:
        uid = pod.observed.uid.encode()
        return blake2b(key, key=uid if len(uid) <= _LONGEST_KEY else blake2b(uid).digest(), digest_size=8).digest()

    return max(pods, key=weight)


def _not_compared(_call: object) -> Chain:
    return Chain()


def policies(
    name: str, *, whole: bool = False, chance: random.Random = _CHANCE, chain_of: ChainOf = _not_compared
) -> Mapping[Role, Choose]:
    """The policy for each role, by its name in `spec.router.policy`.

    Args:
        name: The name.
        whole: Whether D gets whole requests, so that it is D that has the KV cache of prefixes.
        chance: Source of random numbers.
        chain_of: Gives the chain of a request. By default none are compared beyond their first bytes.
    """
    by_prefix = ByPrefix(chain_of)
    chosen: dict[str, tuple[Choose, Choose]] = {
        "least_loaded": (least_tokens, least_requests),
        "cache_aware": (by_prefix, least_requests),
        "consistent_hash": (by_session, by_session),
        "round_robin": (RoundRobin(), RoundRobin()),
        "power_of_two": (BetterOfTwo(chance), BetterOfTwo(chance)),
        "random": (AtRandom(chance), AtRandom(chance)),
    }
    parameter, decode = chosen[name]
    return {Role.PARAMETER: parameter, Role.DECODE: by_prefix if whole and parameter is by_prefix else decode}
