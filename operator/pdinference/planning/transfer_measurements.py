"""The KV transfer of a resource: what its routers measured over some minutes, and the numbers that follow from it."""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Literal

from pdinference.api.names import Verification
from pdinference.memory.link_speeds import FASTEST_TCP, SLOW_DIRECT, SLOW_TCP, TCP_OF_VLLM
from pdinference.planning.router_window import WINDOW_S

_STEPS: Final = 20
"""Steps of a share in an outline."""
_AT_MOST: Final = 1.25
"""Prompt tokens that D computed by choice are an estimate of the router's. So much more of them is no fault; canaries
find one that hides there."""
_LARGEST: Final = 1e15
"""Largest rate. The counts of pods are untrusted."""
_LEAST_BYTES: Final = 1e8
"""Bytes in the window from which on a speed is computed. The speed of a few transfers varies."""
_LATENCY_S: Final = 0.005
"""Time that a transfer may take beside its bytes and the steps of D that it spans."""
_STEPS_OF_TRANSFER: Final = 2
"""Steps that its duration may have in it. D begins a transfer in a step, and finds that it has ended in a later one."""
_LONG_STEP_S: Final = 0.02
"""A step of unknown length."""


FAULTS: Final = (Verification.WRONG_ANSWER, Verification.COMPUTED_BY_DECODE, Verification.FAILED)
"""Faults that a canary finds, the worst one first."""


MOST_PAIRS: Final = 256
"""Pairs of P and D that a router tries, reports, and is read of at most. With more, those of some pods are missing."""
PROVEN_FAULTS: Final = 3
"""Canaries in a row that have to find a fault before it is proven."""
PROVEN_S: Final = 60.0
"""Time that it has to last. The network may come back until then."""


@dataclass(frozen=True, slots=True)
class Path:
    """How the KV cache goes from P to D.

    Attributes:
        gpus: Whether P and D both have GPUs. The speed between CPUs is not judged.
        rdma: Number of RDMA devices of a pod; 0 without `transfer.rdma`.
        ranks: Tensor-parallel ranks of a D instance, which transfer at the same time.
        parameter_data: Data-parallel ranks of a P instance, each with transfers of its own.
        decode_data: The same of a D instance.
        reason: Why P and D share pods, or do not.
        decode_instances: D instances of a pod.
        parameter_instances: P instances of a pod that P and D share; 0 where each instance has its own pod.
        token_bytes: Bytes of KV cache that move for each prompt token; None if unknown.
        fp8_token_bytes: The same with a KV cache in FP8; None if unknown, or if it is in a type of one byte.
    """

    gpus: bool = False
    rdma: int = 0
    ranks: int = 1
    parameter_data: int = 1
    decode_data: int = 1
    reason: str = ""
    decode_instances: int = 1
    parameter_instances: int = 0
    token_bytes: int | None = None
    fp8_token_bytes: int | None = None

    @property
    def pairs(self) -> int:
        """Pairs of data-parallel ranks between a P and a D instance."""
        return self.parameter_data * self.decode_data

    @property
    def host_local(self) -> bool:
        """Whether P and D share pods."""
        return self.parameter_instances > 0

    @property
    def name(self) -> Literal["HostLocal", "Network"]:
        """The path in the status."""
        return "HostLocal" if self.host_local else "Network"

    @property
    def direct(self) -> bool:
        """Whether KV cache should go by NVLink or RDMA."""
        return self.host_local or self.rdma > 0

    @property
    def least_speed(self) -> float:
        """GB/s of a D instance below which the path is slow. Ranks share the network of a pod and its RDMA devices."""
        if self.host_local:
            return SLOW_DIRECT * self.ranks
        if self.rdma:
            return SLOW_DIRECT * min(self.ranks, self.rdma)
        return min(SLOW_TCP * self.ranks, TCP_OF_VLLM)

    @property
    def fastest_tcp(self) -> float:
        """GB/s of a D instance above which KV cache does not go by TCP."""
        return FASTEST_TCP * self.ranks


ON_CPU: Final = Path()


@dataclass(frozen=True, slots=True)
class CanaryFacts:
    """The canary whose outcome a router pod reports; None where it did not report a number.

    Attributes:
        state: Its result.
        revision: Revision of P and D that it went through.
        age: Seconds since then.
        tokens: Tokens of its prompt.
        distance: How far the answer through P and D was from the answer of P alone.
        limit: From this distance on, the answer is wrong.
        decode: D pod in which it found a fault; empty without one. Untrusted.
        parameter: P pod that failed; empty without one. Untrusted.
    """

    state: Verification = Verification.OFF
    revision: str = ""
    age: float | None = None
    tokens: float | None = None
    distance: float | None = None
    limit: float | None = None
    decode: str = ""
    parameter: str = ""

    @property
    def found(self) -> tuple[Verification, str, str]:
        """What it found, and where."""
        return self.state, self.decode, self.parameter

    @property
    def is_recent(self) -> bool:
        """Whether it is newer than requests that are not in the window any more."""
        return self.age is not None and self.age < WINDOW_S


@dataclass(frozen=True, slots=True)
class PairFacts:
    """A P and a D pod between which a router has sent canaries.

    Attributes:
        parameter: P pod, or its engine in a pod that P and D share. Untrusted.
        decode: D pod, in the same way. Untrusted.
        faults: Canaries in a row that found a fault; 0 after a good one.
        seconds: Time from the first to the last of them.
        age: Seconds since the last canary.
    """

    parameter: str
    decode: str
    faults: int = 0
    seconds: float = 0.0
    age: float = 0.0

    @property
    def outline(self) -> Hashable:
        """Coarse steps of it."""
        return self.parameter, self.decode, min(self.faults, PROVEN_FAULTS), self.seconds >= PROVEN_S


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of one router pod, at one moment or over a window. None where the connector has no such counter.

    Attributes:
        parameter_tokens: Prompt tokens of D whose KV cache came from P.
        decode_tokens: Prompt tokens that D computed.
        cached_tokens: Prompt tokens that were in D's cache.
        complete: Transfers.
        failed: Transfers that failed.
        expired: Requests whose KV cache P released before D had read it.
        bytes: Bytes of KV cache that D received.
        transfer_seconds: Sum of the durations of transfers.
        waiting_seconds: Time in which at least one request or canary waited for its first token from D.
        first_tokens: Requests, without canaries, that had their first token.
        first_token_seconds: Sum of their times to the first token.
        handed_over: Prompts of requests that P computed, whether D has read them or not.
        steps: Steps of D, once for each answer that is being generated.
        step_seconds: Sum of their durations.
        alone_tokens: Prompt tokens that D computed because the router chose so, so they are no fault.
        alone_cached_tokens: Prompt tokens of the same requests that were in D's cache.
    """

    parameter_tokens: float = 0.0
    decode_tokens: float = 0.0
    cached_tokens: float = 0.0
    complete: float | None = None
    failed: float | None = None
    expired: float | None = None
    bytes: float | None = None
    transfer_seconds: float | None = None
    waiting_seconds: float | None = None
    first_tokens: float = 0.0
    first_token_seconds: float = 0.0
    handed_over: float | None = None
    steps: float | None = None
    step_seconds: float | None = None
    alone_tokens: float = 0.0
    alone_cached_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class TransferFacts:
    """What the router pods of a resource report of its KV transfer.

    Attributes:
        revision: Revision of P and D that the counts are of.
        canary: The last canary; the one with the worst fault, if there are faults.
        seconds: Length of the window; 0 after a single reading.
        counted: Counts within the window.
        pairs: The pairs that canaries have tried.
    """

    revision: str
    canary: CanaryFacts = CanaryFacts()
    seconds: float = 0.0
    counted: Counted = Counted()
    pairs: tuple[PairFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class Rates:
    """Numbers of a window with requests. Shares are 0 to 1; None where the connector has no such counter.

    Attributes:
        from_parameter: Share of D's prompt tokens whose KV cache came from P.
        by_decode: Share that D computed.
        failed: Share of transfers that failed.
        expired: Share of transfers whose KV cache P released before D had read it.
        speed: Bytes a second of one way while its transfers were under way, at least.
        fastest: The same without the latency of transfers, at most; None if that may be all that they took.
        carried: Bytes a second of all ways over the whole window.
        asked: The same with the prompts that P computed and D has not read.
        size: Bytes of a transfer.
        under_way: Mean number of transfers under way on each way.
        busy: Share of time in which transfers were under way on a way, at most.
        of_first_token: Share of the time to the first token that is transfer.
    """

    from_parameter: float
    by_decode: float
    failed: float | None = None
    expired: float | None = None
    speed: float | None = None
    fastest: float | None = None
    carried: float | None = None
    asked: float | None = None
    size: float | None = None
    under_way: float | None = None
    busy: float | None = None
    of_first_token: float | None = None


def rates(facts: TransferFacts, path: Path, ways: int) -> Rates | None:
    """The numbers of the window; None without prompts in it.

    Args:
        facts: The window.
        path: How the KV cache goes.
        ways: Transfers that do not share a way: the number of P instances or of D instances, whichever are fewer.
    """
    counted = facts.counted
    by_decode = max(0.0, counted.decode_tokens - _AT_MOST * counted.alone_tokens)
    cached = max(0.0, counted.cached_tokens - counted.alone_cached_tokens)
    prompts = counted.parameter_tokens + by_decode + cached
    if facts.seconds <= 0 or prompts <= 0 or counted.first_tokens <= 0:  # a canary alone has no first token
        return None
    shares = Rates(counted.parameter_tokens / prompts, by_decode / prompts)
    if counted.complete is None or counted.bytes is None or counted.transfer_seconds is None:
        return shares
    failed, expired = counted.failed or 0.0, counted.expired or 0.0
    transfers = counted.complete + failed + expired
    # Each rank counts its own transfers; those of one request are simultaneous.
    durations = counted.transfer_seconds / path.ranks
    under_way = durations / facts.seconds / ways
    # Transfers that overlap share a way, so the sum of durations is too long then. The time in which requests waited
    # counts overlapping ones once, but has the first step of D in it, and one way works for a part of it.
    spent = min(durations, ways * (counted.waiting_seconds or durations))
    latencies = counted.complete / path.ranks * _latency(counted)
    return Rates(
        shares.from_parameter,
        shares.by_decode,
        failed=failed / transfers if transfers else 0.0,
        expired=expired / transfers if transfers else 0.0,
        speed=_speed(counted.bytes, spent),
        fastest=_speed(counted.bytes, spent - latencies),
        carried=counted.bytes / facts.seconds,
        asked=_asked(counted, path.ranks, facts.seconds),
        size=min(_LARGEST, counted.bytes * path.ranks / counted.complete) if counted.complete else None,
        under_way=under_way,
        busy=min(1.0, under_way, (counted.waiting_seconds or facts.seconds) / facts.seconds),
        of_first_token=_of_first_token(counted),
    )


def outline(facts: TransferFacts) -> Hashable:
    """Coarse steps of the facts. As long as they stay, the status does not change because of them."""
    found = rates(facts, ON_CPU, ways=1)
    pairs = frozenset(pair.outline for pair in facts.pairs)
    if found is None:
        return facts.revision, facts.canary.found, facts.canary.is_recent, pairs
    shares = (found.by_decode, found.failed, found.expired, found.busy)
    steps = tuple(math.ceil(_STEPS * (share or 0.0)) for share in shares)
    return (
        facts.revision,
        facts.canary.found,
        pairs,
        steps,
        round(2 * math.log2(1 + (found.speed or 0.0))),
    )


def _speed(moved: float, seconds: float) -> float | None:
    """Bytes a second; None if too few were moved, or in no time."""
    return min(_LARGEST, moved / seconds) if moved >= _LEAST_BYTES and seconds > 0 else None


def _latency(counted: Counted) -> float:
    """Seconds that a transfer may take beside its bytes."""
    step = counted.step_seconds / counted.steps if counted.steps and counted.step_seconds is not None else _LONG_STEP_S
    return _LATENCY_S + _STEPS_OF_TRANSFER * step


def _asked(counted: Counted, ranks: int, seconds: float) -> float | None:
    """Bytes a second, with those of requests whose transfer has not ended."""
    if counted.handed_over is None or counted.bytes is None or not counted.complete:
        return None
    return min(_LARGEST, counted.bytes * max(1.0, counted.handed_over * ranks / counted.complete) / seconds)


def _of_first_token(counted: Counted) -> float | None:
    if (
        not counted.complete
        or counted.transfer_seconds is None
        or min(counted.first_tokens, counted.first_token_seconds) <= 0
    ):
        return None
    transfer = counted.transfer_seconds / counted.complete
    return min(1.0, transfer * counted.first_tokens / counted.first_token_seconds)
