"""Predictions beside what others published: `uv run --no-sync python -m benchmarks.advise.beside_published`.

Each is what `pdinference advise` simulates for the resource of the publication: its memory plan, the built-in
calibration, and the way that the publication states. It is the median of runs with other arrivals.
"""

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Final

from benchmarks.advise.predicted import Times, times_of
from benchmarks.advise.published import LOADS, MODELS, STEP_TOKENS, Engines, Load
from pdinference.advise import engines as advise
from pdinference.advise.layouts import Group, Layout
from pdinference.advise.ways import parse_transports
from pdinference.api.validation import validated
from pdinference.planning.memory import Inputs, model_facts
from pdinference.simulation.arrivals import Arrival
from pdinference.simulation.run import simulate

METRICS: Final = ("TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99", "gap p99", "whole p50")
_SEEDS: Final = 15
_ALONE_S: Final = 60.0
"""Seconds between two requests that come one after the other; each ends before."""
_AT_ONCE_S: Final = 3600.0
"""Seconds in which requests that come all at once end."""


def predicted(load: Load) -> Times:
    """The prediction."""
    built = built_of(load)
    seeds = _SEEDS if 0 < load.rate < math.inf else 1
    runs = [
        times_of(simulate(built.arrangement, _arrivals(load, seed), until=_until(load)).outcome) for seed in range(seeds)
    ]
    of = [median(each) for each in zip(*(run.flat for run in runs), strict=True)]
    return Times((of[0], of[1]), (of[2], of[3]), of[4], of[5])


def built_of(load: Load) -> advise.Built:
    """The arrangement of a publication, as `pdinference advise` plans it."""
    document = _document(load)
    spec = validated(document).spec
    inputs = Inputs(spec, model_facts(MODELS[load.model]))
    return advise.Engines(document, inputs, load.prompt).build(_layout(load))


def errors(load: Load, times: Times) -> dict[str, float]:
    """Relative errors of a prediction, by metric, as far as it was published."""
    pairs = zip(METRICS, times.flat, load.measured, strict=True)
    return {name: found / real - 1 for name, found, real in pairs if real is not None}


def _document(load: Load) -> dict[str, Any]:
    source = load.source
    model = {
        "source": {"huggingFace": {"repository": load.model}},
        "maxModelLength": source.length,
        "architecture": {"config": MODELS[load.model]},
    }
    engine = {"maxNumBatchedTokens": STEP_TOKENS[load.product]}
    if source.utilization is not None:
        engine["gpuMemoryUtilization"] = source.utilization
    roles = {"parameter": {"accelerator": {"products": [load.product]}}, "decode": {}}
    return {
        "apiVersion": "pdinference.io/v1alpha1",
        "kind": "PDInference",
        "metadata": {"name": "published"},
        "spec": {"model": model, "engine": engine, **roles},
    }


def _layout(load: Load) -> Layout:
    def group(of: Engines) -> Group:
        return Group(load.product, of.tensor, of.number)

    if load.parameter is None:
        return Layout(group(load.decode))
    return Layout(group(load.decode), group(load.parameter), parse_transports([load.transport])[0])


def _until(load: Load) -> float:
    if load.rate == math.inf:
        return _AT_ONCE_S
    return load.requests / load.rate if load.rate else load.requests * _ALONE_S


def _arrivals(load: Load, seed: int) -> Iterator[Arrival]:
    """As `vllm bench serve` sends them: as many as were asked for in the time that their rate gives."""
    if load.rate == math.inf:
        at = [0.0] * load.requests
    elif load.rate == 0:
        at = [number * _ALONE_S for number in range(load.requests)]
    else:
        at = _poisson(load.requests, load.requests / load.rate, random.Random(seed))
    return (Arrival(when, load.prompt, load.answer) for when in at)


def _poisson(number: int, seconds: float, chance: random.Random) -> list[float]:
    """Times of a Poisson process, given their number."""
    return sorted(chance.uniform(0, seconds) for _ in range(number))


def main() -> None:
    """Two tables in Markdown: times and errors."""
    print(f"| who | model, GPUs | load | {' | '.join(METRICS)} |")
    print("| --- | --- | --- " + "| --- " * len(METRICS) + "|")
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for load in LOADS:
        times = predicted(load)
        of = errors(load, times)
        for name, error in of.items():
            found[kind_of(load)][name].append(abs(error))
        print(f"| {load.source.name} | {_engines(load)} | {_load(load)} | {' | '.join(_cells(load, times, of))} |")
    print(f"\n| median / largest error | rows | {' | '.join(METRICS)} |\n| --- | ---: " + "| --- " * len(METRICS) + "|")
    for kind, by_metric in found.items():
        rows = sum(kind_of(load) == kind for load in LOADS)
        cells = (_summary(by_metric[name]) for name in METRICS)
        print(f"| {kind} | {rows} | {' | '.join(cells)} |")


def kind_of(load: Load) -> str:
    """Rows whose errors are summed up together."""
    return f"{load.source.name}, {'unsplit' if load.parameter is None else 'P and D'}"


def _summary(some: list[float]) -> str:
    return f"{median(some):.0%} / {max(some):.0%}" if some else ""


def _cells(load: Load, times: Times, of: Mapping[str, float]) -> Iterator[str]:
    for name, found, real in zip(METRICS, times.flat, load.measured, strict=True):
        yield f"{found:,.4g} / {real:,.4g} ({of[name]:+.0%})" if real is not None else ""


def _engines(load: Load) -> str:
    model, product = load.model.partition("/")[2], load.product.partition("-")[2]
    return f"{model}, {_layout(load).title} {product}"


def _load(load: Load) -> str:
    rate = "at once" if load.rate == math.inf else f"{load.rate:g}/s" if load.rate else "one by one"
    return f"{load.prompt:,} / {load.answer}, {rate}"


if __name__ == "__main__":
    main()
