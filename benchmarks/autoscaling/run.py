"""One run: a trace, a seed, a policy; and what came of it."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.autoscaling import constants as const
from benchmarks.autoscaling.pods import arrangement, prefill_seconds, token_seconds
from benchmarks.autoscaling.policies import IN_FLIGHT_SECONDS, RANGE, STATIC, Policy
from benchmarks.autoscaling.scaling import Autoscaler, Autoscaling, every, pod_seconds
from benchmarks.autoscaling.signals import Metrics
from benchmarks.autoscaling.traces import Streams, Trace
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.scaling.growth import fitted
from pdinference.planning.scaling.scale_spec import ScaleSpec
from pdinference_advise.simulation.clock import Clock
from pdinference_advise.simulation.fleet import SimulatedFleet
from pdinference_advise.simulation.request import Request

SPEC = ScaleSpec(dict.fromkeys(ENGINE_ROLES, RANGE))
"""No ratio and no budget."""
_WATCH_SECONDS = 5
_USUAL_PROMPT = 5000
_SHARE = 0.75
_FLAP_SECONDS = 600
_PATIENCE = 900


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave. Shares are 0 to 1; `over` and `under` are pods, as a mean over time.

    Attributes:
        met: Requests that kept both objectives.
        ttft: Requests that kept that of the first token.
        tpot: Requests that kept that of the tokens after.
        gpu_hours: Time from a pod's creation to its end; each has one GPU.
        over: Pods beyond what the load of the moment needs.
        under: Pods short of it, counting those that are ready.
        flaps: Turns of direction within 10 minutes.
        ttft_p99: Seconds.
        decode_wait: Seconds from the end of the prefill to the first token, mean.
        preemptions: Of a hundred requests.
    """

    met: float
    ttft: float
    tpot: float
    gpu_hours: float
    over: float
    under: float
    flaps: float
    ttft_p99: float
    decode_wait: float
    preemptions: float


def simulate(
    trace: Trace,
    seed: int,
    policy: Policy,
    *,
    startup: float = const.STARTUP_SECONDS,
    routing: str = const.ROUTING,
    spec: ScaleSpec = SPEC,
) -> Outcome:
    """Run a trace to its end, and on until its last request is done."""
    random.seed(seed)  # some policies of the router choose at random
    clock, streams = Clock(), trace.streams(seed)
    first = _peak(trace, streams) if policy.name == STATIC.name else _pods(needed(streams, 0, trace.cache_tokens))
    fleet = SimulatedFleet(clock, arrangement(_fitting(spec, first), routing=routing, cache_tokens=trace.cache_tokens))
    watch = _Watch(clock, fleet, streams, trace.cache_tokens)
    spread = random.Random(f"fleet/{seed}")
    scaling = Autoscaling(
        spec,
        {role: scaler for role in ENGINE_ROLES if (scaler := policy.scaler(role)) is not None},
        lambda: startup * spread.uniform(1 - const.STARTUP_SPREAD, 1 + const.STARTUP_SPREAD),
        policy.period,
        startup if policy.ahead else None,
    )
    watch.autoscaler = Autoscaler(
        clock, fleet, scaling, metrics=lambda role, signals: _metrics(fleet, role, signals), scaled=watch.scaled
    )
    fleet.load(trace.arrivals(seed))
    every(clock, _WATCH_SECONDS, watch.look)
    clock.run(trace.seconds)
    hours = pod_seconds(fleet, trace.seconds) / 3600
    clock.run(trace.seconds + _PATIENCE)
    return _judge(fleet, hours, watch)


def _metrics(fleet: SimulatedFleet, role: Role, signals: Metrics) -> Metrics:
    """The signals, and what llm-d's templates scale prefill by."""
    if role is not Role.PARAMETER:
        return signals
    in_flight = sum(pod.known.tokens for pod in fleet.serving(role))
    return {**signals, IN_FLIGHT_SECONDS: in_flight * prefill_seconds(_USUAL_PROMPT) / _USUAL_PROMPT}


def needed(streams: Streams, at: float, cache_tokens: int) -> dict[Role, float]:
    """Pods that the load of a moment needs, when each is to do 75 % of what it can."""
    work = rounds = tokens = 0.0
    for shape, rate in streams.items():
        work += rate(at) * prefill_seconds(shape.mean_prompt)
        rounds += rate(at) * shape.kv_token_rounds
        tokens += rate(at) * shape.mean_output
    kv = rounds * token_seconds(cache_tokens, rounds / tokens) if tokens else 0.0
    return {Role.PARAMETER: work / _SHARE, Role.DECODE: kv / cache_tokens / _SHARE}


def _peak(trace: Trace, streams: Streams) -> dict[Role, int]:
    """What the highest load of the trace needs; known only afterwards, so nobody can do as well for the price."""
    moments = [needed(streams, at, trace.cache_tokens) for at in range(0, int(trace.seconds), 10)]
    return _pods({role: max(moment[role] for moment in moments) for role in ENGINE_ROLES})


def _pods(need: Mapping[Role, float]) -> dict[Role, int]:
    """Whole ones, and no fewer than the least that a scaler may have: an HPA takes none for switched off."""
    return {role: max(const.MIN_PODS, math.ceil(pods)) for role, pods in need.items()}


def _fitting(spec: ScaleSpec, counts: dict[Role, int]) -> dict[Role, int]:
    """These counts, less what exceeds the budget."""
    if spec.budget is None:
        return counts
    minimums = {role: scale.minimum for role, scale in spec.roles.items()}
    gpus = {role: scale.gpus for role, scale in spec.roles.items()}
    return dict(fitted(counts, minimums, gpus, spec.budget))


class _Watch:
    """Compares what is there with what is needed."""

    autoscaler: Autoscaler

    def __init__(self, clock: Clock, fleet: SimulatedFleet, streams: Streams, cache_tokens: int) -> None:
        self._clock, self._fleet, self._streams, self._cache_tokens = clock, fleet, streams, cache_tokens
        self._looks = 0
        self._over = self._under = 0.0
        self._last: dict[Role, tuple[float, int]] = {}
        self.flaps = 0

    def look(self) -> None:
        """To be called at regular intervals."""
        self._looks += 1
        for role, need in needed(self._streams, self._clock.now, self._cache_tokens).items():
            self._over += max(0.0, len(self.autoscaler.pods(role)) - max(const.MIN_PODS, math.ceil(need)))
            self._under += max(0.0, need - len(self._fleet.serving(role)))

    def scaled(self, role: Role, by: int) -> None:
        """A change of replicas."""
        before = self._last.get(role)
        now = self._clock.now
        if before and now - before[0] < _FLAP_SECONDS and before[1] * by < 0:
            self.flaps += 1
        self._last[role] = (now, by)

    @property
    def over(self) -> float:
        """Mean number of pods too many."""
        return self._over / self._looks

    @property
    def under(self) -> float:
        """Mean number of pods too few."""
        return self._under / self._looks


def _judge(fleet: SimulatedFleet, hours: float, watch: _Watch) -> Outcome:
    """Requests that never finished count as missed."""
    finished = [request for request in fleet.requests if request.done_at]
    arrived = len(fleet.requests)
    ttft = [request.first_at - request.arrival.at for request in finished]
    in_time = [seconds <= const.ttft_objective(r.arrival.prompt) for r, seconds in zip(finished, ttft, strict=True)]
    fluent = [_pace(request) <= const.TPOT_OBJECTIVE for request in finished]
    ranked = sorted(ttft) + [math.inf] * (arrived - len(finished))
    return Outcome(
        met=sum(a and b for a, b in zip(in_time, fluent, strict=True)) / arrived,
        ttft=sum(in_time) / arrived,
        tpot=sum(fluent) / arrived,
        gpu_hours=hours,
        over=watch.over,
        under=watch.under,
        flaps=watch.flaps,
        ttft_p99=ranked[int(0.99 * (arrived - 1))],
        decode_wait=sum(r.first_at - r.prefilled_at for r in finished) / max(1, len(finished)),
        preemptions=100 * sum(pod.engine.preemptions for pod in fleet.decode) / arrived,
    )


def _pace(request: Request) -> float:
    """Seconds a token."""
    return (request.done_at - request.first_at) / request.arrival.answer
