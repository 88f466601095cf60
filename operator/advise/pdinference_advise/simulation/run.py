"""One run: an arrangement, a load, and what came of it.

Tests: tests/advise/simulation/test_fleet.py
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pdinference_advise.simulation.arrangement import Arrangement
from pdinference_advise.simulation.arrivals import Arrival
from pdinference_advise.simulation.clock import Clock
from pdinference_advise.simulation.fleet import SimulatedFleet
from pdinference_advise.simulation.outcome import SimulatedOutcome, outcome_of
from pdinference_advise.simulation.pods import SimulatedPod
from pdinference_advise.simulation.request import Request


@dataclass(frozen=True, slots=True)
class Use:
    """How much of its capacity a part used while requests came, 0 to 1.

    Attributes:
        prefill: Share of time in which P's engines computed, or D's engines computed prompts without P; of the busiest.
        decode: Share of time in which D's engines made steps, of the busiest. An engine with one request is at 1 too.
        kv_cache: Largest share of a D engine's KV cache that was in use at a time.
        transfer: Share of time in which KV cache moved, of the busiest link; 0 without P.
        api_server: Share of time in which the API servers of a pod read requests and wrote tokens, of the busiest pod.
        preemptions: Requests that lost their KV cache, of all.
    """

    prefill: float
    decode: float
    kv_cache: float
    transfer: float
    api_server: float
    preemptions: float


@dataclass(frozen=True, slots=True)
class Run:
    """What a load gave.

    Attributes:
        outcome: Times of the requests that came after the warm-up.
        use: How much of the capacity it took.
        requests: Those that came after the warm-up, in their order.
    """

    outcome: SimulatedOutcome
    use: Use
    requests: tuple[Request, ...]


def simulate(
    arrangement: Arrangement, arrivals: Iterable[Arrival], *, warm_up: float = 0.0, until: float, ending: float = 0.0
) -> Run:
    """Run a load, and on for at least as long again, so that what waits can end.

    Args:
        arrangement: What serves it.
        arrivals: Requests in the order in which they come, the last before `until`.
        warm_up: Seconds whose requests are not counted.
        until: Seconds of the load.
        ending: Least seconds after it.
    """
    clock = Clock()
    fleet = SimulatedFleet(clock, arrangement)
    fleet.load(arrivals)
    clock.at(warm_up, fleet.gaps.clear)
    clock.run(until)
    use = _use(fleet, arrangement, until)
    clock.run(until + max(until, ending))
    counted = tuple(request for request in fleet.requests if request.arrival.at >= warm_up)
    return Run(outcome_of(counted, fleet.gaps), use, counted)


def _use(fleet: SimulatedFleet, arrangement: Arrangement, seconds: float) -> Use:
    decode = [pod.engine for pod in fleet.decode]
    preemptions = sum(engine.preemptions for engine in decode)
    return Use(
        prefill=_busiest(fleet.parameter or fleet.decode) / seconds,
        decode=max(engine.stepping for engine in decode) / seconds,
        kv_cache=max(engine.most_kv for engine in decode) / arrangement.kind.limits.kv_tokens,
        transfer=max((link.busy for link in fleet.links), default=0.0) / seconds,
        api_server=max(map(_of_api_servers, (*fleet.parameter, *fleet.decode))) / seconds,
        preemptions=preemptions / max(1, len(fleet.requests)),
    )


def _of_api_servers(pod: SimulatedPod) -> float:
    """Seconds of each API server of a pod, if all have as much to do."""
    engine, servers = pod.engine, pod.engine.limits.servers
    times = servers.service
    return (pod.read_seconds + engine.generated * times.token_out) / servers.number + engine.steps * times.step_out


def _busiest(pods: Sequence[SimulatedPod]) -> float:
    return max(pod.engine.busy for pod in pods)
