"""One run: a trace, a seed, a policy; and what came of it."""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

import simpy

from benchmarks.autoscaling import constants as const
from benchmarks.autoscaling.fleet import Fleet
from benchmarks.autoscaling.observe import Scraper
from benchmarks.autoscaling.operator import SPEC, Operator, fitting
from benchmarks.autoscaling.pods import Request
from benchmarks.autoscaling.policies import STATIC, Policy, Scaler
from benchmarks.autoscaling.traces import Streams, Trace
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.scaling.scale_spec import ScaleSpec

_SHARE = 0.75
_FLAP_SECONDS = 600
_PATIENCE = 900


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave. Shares are 0 to 1; `over` and `under` are pods, as a mean over time.

    Attributes:
        met: Requests that kept both objectives.
        ttft: Requests that kept that of the first token.
        itl: Requests that kept that of the tokens after.
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
    itl: float
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
    env = simpy.Environment()
    streams = trace.streams(seed)
    peak = policy.name == STATIC.name
    first = _peak(trace, streams) if peak else _pods(needed(streams, 0, trace.cache_tokens))
    first = dict(fitting(spec, first))
    fleet = Fleet(env, replicas=first, startup=startup, seed=seed, routing=routing, cache_tokens=trace.cache_tokens)
    watch = _Watch(fleet, streams)
    scraper = Scraper(fleet)
    env.process(_clients(env, fleet, trace, seed))
    env.process(_every(env, const.SCRAPE_SECONDS, scraper.scrape))
    env.process(_every(env, 5, watch.look))
    operator = Operator(spec, fleet, watch.scaled)
    for role in ENGINE_ROLES:
        if (scaler := policy.scaler(role)) is not None:
            look = partial(_recommend, operator, scraper, role, scaler)
            env.process(_every(env, policy.period, look, after=policy.period))
    if spec.budget is not None:
        env.process(_every(env, 1, operator.reconcile))  # pods that end free GPUs at any moment
    env.run(until=trace.seconds)
    hours = sum((pod.gone_at if pod.gone_at is not None else env.now) - pod.created_at
                for role in ENGINE_ROLES for pod in fleet.every(role)) / 3600  # fmt: skip
    env.run(until=trace.seconds + _PATIENCE)
    arrived = sum(1 for _ in trace.arrivals(seed))
    return _judge(fleet.finished, arrived, hours, watch)


def needed(streams: Streams, at: float, cache_tokens: int) -> dict[Role, float]:
    """Pods that the load of a moment needs, when each is to do 75 % of what it can."""
    work = kv = 0.0
    pace = const.token_seconds(cache_tokens)
    for shape, rate in streams.items():
        work += rate(at) * const.prefill_seconds(shape.mean_prompt)
        kv += rate(at) * pace * shape.kv_token_rounds
    return {Role.PARAMETER: work / _SHARE, Role.DECODE: kv / cache_tokens / _SHARE}


def _peak(trace: Trace, streams: Streams) -> dict[Role, int]:
    """What the highest load of the trace needs; known only afterwards, so nobody can do as well for the price."""
    moments = [needed(streams, at, trace.cache_tokens) for at in range(0, int(trace.seconds), 10)]
    return _pods({role: max(moment[role] for moment in moments) for role in ENGINE_ROLES})


def _pods(need: dict[Role, float]) -> dict[Role, int]:
    """Whole ones, and no fewer than the least that a scaler may have: an HPA takes none for switched off."""
    return {role: max(const.MIN_PODS, math.ceil(pods)) for role, pods in need.items()}


def _clients(env: simpy.Environment, fleet: Fleet, trace: Trace, seed: int) -> Generator[simpy.Event, Any, None]:
    for arrival in trace.arrivals(seed):
        yield env.timeout(arrival.at - env.now)
        fleet.submit(arrival)


def _every(
    env: simpy.Environment, seconds: float, action: Callable[[], None], *, after: float = 0
) -> Generator[simpy.Event, Any, None]:
    yield env.timeout(after)
    while True:
        action()
        yield env.timeout(seconds)


def _recommend(operator: Operator, scraper: Scraper, role: Role, scaler: Scaler) -> None:
    """One look of a scaler at its role."""
    asked_for = operator.recommended[role]
    now, live = operator.now, operator.live(role)
    operator.recommended[role] = scaler.sync(now, asked_for, scraper.metrics, live=live)
    operator.reconcile()


class _Watch:
    """Compares what is there with what is needed."""

    def __init__(self, fleet: Fleet, streams: Streams) -> None:
        self._fleet, self._streams = fleet, streams
        self._looks = 0
        self._over = self._under = 0.0
        self._last: dict[Role, tuple[float, int]] = {}
        self.flaps = 0

    def look(self) -> None:
        """To be called at regular intervals."""
        self._looks += 1
        for role, need in needed(self._streams, self._fleet.env.now, self._fleet.cache_tokens).items():
            pods = self._fleet.pods(role)
            self._over += max(0.0, len(pods) - max(const.MIN_PODS, math.ceil(need)))
            self._under += max(0.0, need - sum(pod.ready for pod in pods))

    def scaled(self, role: Role, by: int) -> None:
        """A change of replicas."""
        before = self._last.get(role)
        now = self._fleet.env.now
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


def _judge(finished: list[Request], arrived: int, hours: float, watch: _Watch) -> Outcome:
    """Requests that never finished count as missed."""
    ttft = [request.first_token_at - request.arrival.at for request in finished]
    in_time = [seconds <= const.ttft_objective(r.arrival.prompt) for r, seconds in zip(finished, ttft, strict=True)]
    fluent = [(r.finished_at - r.first_token_at) / r.arrival.output <= const.ITL_OBJECTIVE for r in finished]
    ranked = sorted(ttft) + [math.inf] * (arrived - len(finished))
    return Outcome(
        met=sum(a and b for a, b in zip(in_time, fluent, strict=True)) / arrived,
        ttft=sum(in_time) / arrived,
        itl=sum(fluent) / arrived,
        gpu_hours=hours,
        over=watch.over,
        under=watch.under,
        flaps=watch.flaps,
        ttft_p99=ranked[int(0.99 * (arrived - 1))],
        decode_wait=sum(r.first_token_at - r.prefilled_at for r in finished) / max(1, len(finished)),
        preemptions=100 * sum(r.preemptions for r in finished) / arrived,
    )
