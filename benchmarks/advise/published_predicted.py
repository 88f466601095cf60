"""What `pdinference advise` predicts for loads that others published.

Each is simulated with the resource of the publication: its memory plan, the built-in calibration, and the way that the
publication states. It is the median of runs with other arrivals.
"""

import math
import random
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from benchmarks.advise.predicted import Times, times_of
from benchmarks.advise.published import MODELS, STEP_TOKENS, Engines, Load
from pdinference.api.validation import validated
from pdinference.memory import Inputs, model_facts
from pdinference_advise.advice import engines as advise
from pdinference_advise.advice.layouts import EngineGroup, Layout
from pdinference_advise.advice.ways import parse_transports
from pdinference_advise.simulation.arrivals import Arrival
from pdinference_advise.simulation.run import simulate

_SEEDS: Final = 15
_ALONE_S: Final = 60.0
"""Seconds between two requests that come one after the other; each ends before."""
_AT_ONCE_S: Final = 3600.0
"""Seconds in which requests that come all at once end."""


def predicted(load: Load) -> Times:
    """The prediction, in ms."""
    arrangement, until = built_of(load).arrangement, _until(load)
    seeds = range(_SEEDS if 0 < load.rate < math.inf else 1)
    runs = (simulate(arrangement, arrivals(load, seed), until=until).outcome for seed in seeds)
    ttft, ttft_99, tpot, tpot_99, gap, whole = map(median, zip(*(times_of(run).flat for run in runs), strict=True))
    return Times((ttft, ttft_99), (tpot, tpot_99), gap, whole)


def built_of(load: Load) -> advise.Built:
    """The arrangement, as advise plans it."""
    document = _document(load)
    inputs = Inputs(validated(document).spec, model_facts(MODELS[load.model]))
    return advise.Engines(document, inputs, load.prompt).build(layout_of(load))


def layout_of(load: Load) -> Layout:
    """Its engines, and the way between them."""

    def group(engines: Engines) -> EngineGroup:
        return EngineGroup(load.product, engines.tensor, engines.number)

    if load.parameter is None:
        return Layout(group(load.decode))
    return Layout(group(load.decode), group(load.parameter), parse_transports([load.transport])[0])


def _document(load: Load) -> dict[str, Any]:
    source = load.source
    model = {
        "source": {"huggingFace": {"repository": load.model}},
        "maxModelLength": source.length,
        "architecture": {"config": MODELS[load.model]},
    }
    engine: dict[str, Any] = {"maxNumBatchedTokens": STEP_TOKENS[load.product]}
    if source.utilization is not None:
        engine["gpuMemoryUtilization"] = source.utilization
    roles = {"parameter": {"accelerator": {"products": [load.product]}}, "decode": {}}
    return {
        "apiVersion": "pdinference.io/v1alpha1",
        "kind": "PDInference",
        "metadata": {"name": "published"},
        "spec": {"model": model, "engine": engine, "router": {"policy": "least_loaded"}, **roles},  # not ours
    }


def _until(load: Load) -> float:
    if load.rate == math.inf:
        return _AT_ONCE_S
    return load.requests / load.rate if load.rate else load.requests * _ALONE_S


def arrivals(load: Load, seed: int) -> Iterator[Arrival]:
    """The requests of a run."""
    return (Arrival(at, load.prompt, load.answer) for at in _times(load, random.Random(seed)))


def _times(load: Load, chance: random.Random) -> list[float]:
    """As `vllm bench serve` sends requests: of a Poisson process, the number that was asked for in the time for it."""
    if load.rate == math.inf:
        return [0.0] * load.requests
    if load.rate == 0:
        return [number * _ALONE_S for number in range(load.requests)]
    return sorted(chance.uniform(0, _until(load)) for _ in range(load.requests))
