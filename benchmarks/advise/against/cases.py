"""The measured loads, as other tools are told of them.

All of `benchmarks.advise.measured`, `benchmarks.advise.shapes` and `benchmarks.advise.published`, but `Adaptive`: the
router decides there for each request, which no other tool knows.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from benchmarks.advise import measured, published, published_predicted, shapes
from benchmarks.advise.predicted import SETTINGS, as_measured, predicted
from benchmarks.on_gpu import loads as on_gpu
from pdinference.performance.links import NVLINK, TCP
from pdinference_advise.advice.ways import parse_transports

_LLAMA: Final = "meta-llama/Meta-Llama-3.1-8B"
_QWEN_30B: Final = "Qwen/Qwen3-30B-A3B"
_GPT_OSS: Final = "openai/gpt-oss-120b"
KNOWN: Final = frozenset({_LLAMA, _QWEN_30B, _GPT_OSS})
"""Models whose config.json the other tools ship. They get that of other models from a folder."""
MIXTURES: Final = frozenset({_QWEN_30B, _GPT_OSS})
"""Those with experts, which tensor parallelism splits."""
SYSTEMS: Final = {
    "NVIDIA-H200": "h200_sxm",
    "NVIDIA-H100-80GB-HBM3": "h100_sxm",
    "NVIDIA-A100-SXM4-80GB": "a100_sxm",
}
"""GPUs that they have data of, by product."""
_ONE: Final = (1, 1)
_RUNS: Final = 1
"""Runs with other arrivals, where those of the measurement are not known."""

Arrivals = tuple[tuple[float, int, int], ...]
"""Seconds, prompt tokens and tokens of the answer of each request."""


@dataclass(frozen=True)
class Case:
    """A measured load and what served it.

    Attributes:
        group: The measurements that it belongs to.
        title: Lengths, rate and what is special, for people. Cases of one title differ in who measured.
        model: Name on Hugging Face.
        config: Its config.json, unless it is one of `KNOWN`.
        product: GPUs.
        parameter: Number of P's engines and the tensor parallelism of each; None: not split.
        decode: The same of D, or of engines that do both.
        transfer: GB/s of the way of the KV cache.
        lengths: Prompt and answer tokens, each as likely.
        rate: Requests a second; infinite: all at once; 0: one after the other.
        seed: That of the arrivals of the measurement; None: other arrivals.
        arrivals: Requests of each run.
        warm_up: Seconds whose requests do not count.
        lasts: Seconds in which requests come; the number of requests, if all come at once or one after the other.
        step_tokens: Tokens a step of P, and of D or engines that do both.
        kv_tokens: Tokens of the KV cache of each engine; None: what the tool thinks.
        fp8: Whether the KV cache is in FP8.
        weights8: Whether the weights are.
        measured: TTFT p50 and p99, TPOT p50 and p99, gap p99 and whole request p50 in ms.
        ours: Our prediction of the same.
        pair: What the split and the unsplit one of a load share; None without a pair.
        saturated: Whether some part had more to do than it can.
    """

    group: str
    title: str
    model: str
    config: dict[str, Any] | None
    product: str
    parameter: tuple[int, int] | None
    decode: tuple[int, int]
    transfer: float | None
    lengths: tuple[tuple[int, int], ...]
    rate: float
    seed: int | None
    arrivals: Callable[[], tuple[Arrivals, ...]]
    warm_up: float
    lasts: float
    step_tokens: tuple[int, int]
    kv_tokens: int | None
    fp8: bool
    weights8: bool
    measured: tuple[float | None, ...]
    ours: Callable[[], tuple[float, ...]]
    pair: tuple[object, ...] | None
    saturated: bool = False

    @property
    def key(self) -> str:
        """What a recorded prediction is found by: all that a tool is told. Equal loads have one."""
        lengths = ",".join(f"{prompt}/{answer}" for prompt, answer in self.lengths)
        engines = "x".join(map(str, (*(self.parameter or ()), *self.decode)))
        way = f"{self.transfer:g}" if self.transfer else "-"
        bits = f"{'kv8' if self.fp8 else ''}{'w8' if self.weights8 else ''}"
        return (
            f"{self.model} {self.product} {lengths}@{self.rate:g}+{self.warm_up:g}+{self.lasts:g} "
            f"{engines} {way} {self.step_tokens[0]}/{self.step_tokens[1]} {self.kv_tokens} {bits} {self.seed or ''}"
        ).strip()


def cases() -> Iterator[Case]:
    """All of them."""
    for number, series in enumerate(measured.SERIES, 1):
        for load in series:
            if load.way != "Adaptive":
                yield _ours(load, number)
    for shape in shapes.KV_TOKENS:
        for given in shapes.loads_of(shape):
            yield _shape(shape, given)
    yield from map(_published, published.LOADS)


def _ours(load: measured.Load, series: int) -> Case:
    lengths = ((load.prompt, load.answer), *load.others)
    split = load.splits_all
    way = {"NVLink": NVLINK, "TCP": TCP}.get(load.way)
    return Case(
        group="Llama-3.1-8B, " + ("H100" if "H100" in load.product else "H200"),
        title=f"{' and '.join(f'{p:,} / {a:,}' for p, a in lengths)}{_notes(load)}",
        model=_LLAMA,
        config=None,
        product=load.product,
        parameter=_ONE if split else None,
        decode=_ONE if split else (load.gpus // load.tensor, load.tensor),
        transfer=way.rate / 1e9 if way else None,
        lengths=lengths,
        rate=load.rate,
        seed=load.seed,
        arrivals=partial(_arrivals_of, load),
        warm_up=load.warm_up,
        lasts=load.warm_up + load.counted,
        step_tokens=(load.step_tokens, 2048 if split else load.step_tokens),
        kv_tokens=load.kv_tokens,
        fp8=load.fp8,
        weights8=load.weights8,
        measured=load.flat,
        ours=lambda: predicted(load).flat,
        pair=(series, lengths, load.rate, load.fp8, load.weights8) if load.tensor == 1 else None,
        saturated=load.saturated,
    )


def _notes(load: measured.Load) -> str:
    notes = {
        "FP8": load.fp8,
        "FP8 weights": load.weights8,
        "TP 2": load.tensor > 1,
        f"{load.step_tokens:,} a step": load.step_tokens != 8192,
        "one GPU": load.gpus == 1,
        f"vLLM {load.vllm}": load.vllm != "0.26.0",
        "not compiled": not load.compiled,
    }
    return "".join(f", {note}" for note, holds in notes.items() if holds)


def _arrivals_of(load: measured.Load) -> tuple[Arrivals, ...]:
    lasts = load.warm_up + load.counted
    if load.seed is not None:
        given = on_gpu.Load(load.prompt, load.answer, load.rate, load.warm_up, load.counted, load.others)
        return (tuple((one.at, one.prompt, one.answer) for one in as_measured(given, load.seed)),)
    return tuple(
        _poisson(random.Random(seed), load.rate, lasts, (load.prompt, load.answer)) for seed in range(_RUNS)
    )  # fmt: skip


def _poisson(chance: random.Random, rate: float, lasts: float, lengths: tuple[int, int]) -> Arrivals:
    found, at = [], 0.0
    while (at := at + chance.expovariate(rate)) < lasts:
        found.append((at, *lengths))
    return tuple(found)


def _shape(shape: str, load: dict[str, Any]) -> Case:
    given, found, expert = shapes.load_of(load), shapes.measurement(shape), shape == "qwen-30b-a3b"
    return Case(
        group="Qwen3-30B-A3B, H200" if expert else "Qwen2.5-14B, H200",
        title=f"{given.prompt:,} / {given.answer:,}, one GPU",
        model=_QWEN_30B if expert else "Qwen/Qwen2.5-14B",
        config=None if expert else dict(found.config or {}),
        product="NVIDIA-H200",
        parameter=None,
        decode=_ONE,
        transfer=None,
        lengths=((given.prompt, given.answer),),
        rate=given.rate,
        seed=shapes.SEED,
        arrivals=lambda: (tuple((one.at, one.prompt, one.answer) for one in as_measured(given, shapes.SEED)),),
        warm_up=given.warm_up,
        lasts=given.warm_up + given.counted,
        step_tokens=(found.step_tokens, found.step_tokens),
        kv_tokens=shapes.KV_TOKENS[shape],
        fp8=False,
        weights8=False,
        measured=shapes.measured(load),
        ours=lambda: shapes.predicted(*shapes.by_built_in(shape), load),
        pair=None,
    )


def _published(load: published.Load) -> Case:
    split = load.parameter
    short = load.product.removeprefix("NVIDIA-").removeprefix("GeForce-").partition("-")[0]
    return Case(
        group=f"{load.model.partition('/')[2]}, {short}, by {load.source.name}",
        title=f"{load.prompt:,} / {load.answer}",
        model=load.model,
        config=None if load.model in KNOWN else dict(published.MODELS[load.model]),
        product=load.product,
        parameter=(split.number, split.tensor) if split else None,
        decode=(load.decode.number, load.decode.tensor),
        transfer=_rate_of(load) if split else None,
        lengths=((load.prompt, load.answer),),
        rate=load.rate,
        seed=None,
        arrivals=lambda: tuple(
            tuple((one.at, one.prompt, one.answer) for one in published_predicted.arrivals(load, seed))
            for seed in range(_RUNS if 0 < load.rate < math.inf else 1)
        ),
        warm_up=0,
        lasts=load.requests / load.rate if 0 < load.rate < math.inf else load.requests,
        step_tokens=(published.STEP_TOKENS[load.product],) * 2,
        kv_tokens=None,
        fp8=False,
        weights8=False,
        measured=load.measured,
        ours=lambda: published_predicted.predicted(load).flat,
        pair=(load.source.name, load.model, load.prompt, load.rate),
    )


def _rate_of(load: published.Load) -> float:
    """GB/s of the way of a publication."""
    rate = parse_transports([load.transport])[0].rate
    return (NVLINK.rate if rate is None else rate) / 1e9


MOST_REQUESTS: Final = SETTINGS.max_num_seqs
"""`max-num-seqs` of all engines."""
