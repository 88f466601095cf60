"""The simulation of a measured load: many runs of its length, and the median of what they give."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from benchmarks.advise.measured import Load
from benchmarks.llama import engine_kind
from benchmarks.on_gpu import loads as on_gpu
from pdinference.memory.model.quantization import stated_quantization
from pdinference.memory.settings import Settings
from pdinference.performance.links import NVLINK, TCP
from pdinference_advise.simulation.arrangement import Arrangement, EngineKind, Split
from pdinference_advise.simulation.arrivals import Arrival
from pdinference_advise.simulation.outcome import SimulatedOutcome
from pdinference_advise.simulation.run import simulate

_KV_BYTES: Final = 131_072


@dataclass(frozen=True, slots=True)
class Times:
    """What a load gave, in ms: the columns of the tables."""

    ttft: tuple[float, float]
    tpot: tuple[float, float]
    gap: float
    whole: float

    @property
    def flat(self) -> tuple[float, ...]:
        """TTFT p50 and p99, TPOT p50 and p99, gap p99, whole p50."""
        return (*self.ttft, *self.tpot, self.gap, self.whole)


def times_of(outcome: SimulatedOutcome) -> Times:
    """The times of a simulation."""
    return Times(
        ttft=(1000 * outcome.ttft.at(50), 1000 * outcome.ttft.at(99)),
        tpot=(1000 * outcome.tpot.at(50), 1000 * outcome.tpot.at(99)),
        gap=1000 * outcome.gaps.quantile(0.99),
        whole=1000 * outcome.whole.at(50),
    )


def as_measured(load: on_gpu.Load, seed: int) -> Iterator[Arrival]:
    """The arrivals of a measurement (`benchmarks.on_gpu.loads`)."""
    return (Arrival(at, len(prompt), answer) for at, prompt, answer in on_gpu.arrivals(load, random.Random(seed)))


def predicted(load: Load, seeds: int = 15) -> Times:
    """What served a load, simulated."""
    return predicted_by(arrangement_of(load), load, seeds)


def predicted_by(arrangement: Arrangement, load: Load, seeds: int = 15) -> Times:
    """The medians over runs with other arrivals, or a run with those of the measurement."""
    runs = [simulated(load, arrangement, seed) for seed in (range(seeds) if load.seed is None else (load.seed,))]

    def middle(values: list[tuple[float, float]]) -> tuple[float, float]:
        return median(low for low, _ in values), median(high for _, high in values)

    return Times(
        ttft=middle([run.ttft for run in runs]),
        tpot=middle([run.tpot for run in runs]),
        gap=median(run.gap for run in runs),
        whole=median(run.whole for run in runs),
    )


def simulated(load: Load, arrangement: Arrangement, seed: int) -> Times:
    """One run of a load through an arrangement, with the arrivals of the measurement if they are known."""
    lasts = load.warm_up + load.counted
    if load.seed is None:
        trace = _others(load, seed, lasts)
    else:
        given = on_gpu.Load(load.prompt, load.answer, load.rate, load.warm_up, load.counted, load.others)
        trace = as_measured(given, seed)
    return times_of(simulate(arrangement, trace, warm_up=load.warm_up, until=lasts).outcome)


def _others(load: Load, seed: int, until: float) -> Iterator[Arrival]:
    chance, at = random.Random(seed), 0.0
    while (at := at + chance.expovariate(load.rate)) < until:
        yield Arrival(at, load.prompt, load.answer)


def arrangement_of(load: Load) -> Arrangement:
    """What served a load."""
    if load.way == "co-located":
        return Arrangement(_kind(load, load.step_tokens), load.gpus // load.tensor)
    way = TCP if load.way == "TCP" else NVLINK
    token_bytes = _KV_BYTES / 2 if load.fp8 else _KV_BYTES
    parameter, adaptive = _kind(load, load.step_tokens), load.way == "Adaptive"
    decode = parameter if adaptive else _kind(load, 2048)
    return Arrangement(decode, 1, Split(parameter, 1, way, token_bytes, adaptive=adaptive))


def _kind(load: Load, step_tokens: int) -> EngineKind:
    kv_bytes = 1 if load.fp8 else 2
    quantization = stated_quantization("fp8") if load.weights8 else None
    settings = replace(
        SETTINGS, max_num_batched_tokens=step_tokens, kv_bytes=kv_bytes, tensor=load.tensor, quantization=quantization
    )
    return engine_kind(settings, load.kv_tokens, load.product)


SETTINGS: Final = Settings(
    cpu=False, tensor=1, layer_partition=(32,), data=1, expert_ranks=1, dtype_bytes=2, quantization=None, kv_bytes=2,
    block_size=128, max_length=131072, max_num_seqs=1024, max_num_batched_tokens=8192, utilization=0.9,
    batch_assumed=False, eager=False, kv_budget=None, lora_slots=0, lora_rank=0, offload=0,
)  # fmt: skip
