"""Loads that others measured with vLLM, and published. Nothing is fitted to them.

They were chosen before any of them was predicted, by these rules: vLLM's engine V1; no speculative decoding and no
eager mode; model, GPUs, tensor parallelism, number of requests and vLLM's version are stated; random prompts and
answers of one length; requests come at a finite rate, all at once or one after the other. Where there were many rates
of one arrangement, three or the lowest were taken. What was left out is in benchmarks/results/advise.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Source:
    """Who measured, and with what.

    Attributes:
        name: Short name, for tables.
        address: The repository in which it is published.
        commit: Its commit.
        path: The folder.
        date: When it was measured, or published where that is not stated.
        vllm: Version.
        length: `max-model-len`.
        utilization: `gpu-memory-utilization`; None: the default of a newer vLLM.
    """

    name: str
    address: str
    commit: str
    path: str
    date: str
    vllm: str
    length: int
    utilization: float | None = None


@dataclass(frozen=True, slots=True)
class Engines:
    """Engines of a role: how many, and the GPUs of each."""

    number: int
    tensor: int


@dataclass(frozen=True, slots=True)
class Load:
    """A row of what was published. Times are ms; None where they were not published.

    Attributes:
        source: Who measured it.
        model: A key of `MODELS`.
        product: GPUs.
        decode: Engines of D; without P, engines that do both.
        parameter: Engines of P.
        transport: The way of the KV cache, as in `--transport`.
        prompt: Prompt tokens.
        answer: Tokens of the answer.
        requests: Number of them.
        rate: Requests a second, as a Poisson process; infinite: all at once; 0: one after the other.
        ttft: Time to the first token at the median and the 99th percentile.
        tpot: Time per output token, the same.
        gap: Gap between tokens at the 99th percentile.
        whole: Whole request at the median.
    """

    source: Source
    model: str
    product: str
    decode: Engines
    parameter: Engines | None
    transport: str
    prompt: int
    answer: int
    requests: int
    rate: float
    ttft: tuple[float, float | None]
    tpot: tuple[float | None, float | None]
    gap: float | None
    whole: float | None = None

    @property
    def measured(self) -> tuple[float | None, ...]:
        """TTFT p50 and p99, TPOT p50 and p99, gap p99, whole p50."""
        return (*self.ttft, *self.tpot, self.gap, self.whole)


_QWEN3: Final = {
    "model_type": "qwen3", "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936,
    "max_position_embeddings": 40_960, "tie_word_embeddings": False,
}  # fmt: skip
MODELS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "openai/gpt-oss-120b": {
            "model_type": "gpt_oss", "num_hidden_layers": 36, "hidden_size": 2880, "intermediate_size": 2880,
            "num_local_experts": 128, "num_experts_per_tok": 4, "num_attention_heads": 64, "num_key_value_heads": 8,
            "head_dim": 64, "vocab_size": 201_088, "sliding_window": 128, "max_position_embeddings": 131_072,
            "layer_types": ["sliding_attention", "full_attention"] * 18, "tie_word_embeddings": False,
            "quantization_config": {
                "quant_method": "mxfp4",
                "modules_to_not_convert": [
                    "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
                ],
            },
        },
        "Qwen/Qwen2-7B-Instruct": {
            "model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "intermediate_size": 18_944,
            "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152_064,
            "max_position_embeddings": 32_768, "tie_word_embeddings": False,
        },
        "Qwen/Qwen3-8B": _QWEN3 | {
            "num_hidden_layers": 36, "hidden_size": 4096, "intermediate_size": 12_288, "num_attention_heads": 32,
        },
        "Qwen/Qwen3-14B": _QWEN3 | {
            "num_hidden_layers": 40, "hidden_size": 5120, "intermediate_size": 17_408, "num_attention_heads": 40,
        },
    }
)  # fmt: skip
"""Of each model what its config.json says of its shape. Weights are in 16 bits, those of gpt-oss's experts in MXFP4."""

_H100: Final = "NVIDIA-H100-80GB-HBM3"
_H800: Final = "NVIDIA-H800"
_A100: Final = "NVIDIA-A100-SXM4-80GB"
_RTX4090: Final = "NVIDIA-GeForce-RTX-4090"
STEP_TOKENS: Final[Mapping[str, int]] = MappingProxyType({_H100: 8192, _H800: 8192, _A100: 2048, _RTX4090: 2048})
"""vLLM's default of `max-num-batched-tokens` on each (`get_batch_defaults` in vllm/engine/arg_utils.py)."""


ANYSCALE: Final = Source(
    "Anyscale",
    "https://github.com/anyscale/ray-serve-llm-perf-examples",
    "04ba8ab40727da4e10adce75b6a3777360582b6e",
    "prefill_decode/archive/bm_results_snapshot",
    date="2025-10-10 and 11",
    vllm="0.11.0",
    length=16_000,
    utilization=0.9,
)
"""Eight H100s of one p5.48xlarge, Ray Serve in front, KV cache by NIXL over UCX within the host, `vllm bench serve`.

No prompt was in a prefix cache: the times to the first token deviate too little for it.
"""

LYELL: Final = Source(
    "lyell0710",
    "https://github.com/lyell0710/vllmExperience",
    "a25d50ebffd00b9cdb94e30e56f4227ebe7bb293",
    "pd_disagg/results/b1_matrix/raw",
    date="2026-08-21",
    vllm="0.25.1",
    length=16_384,
)
"""Two RTX 4090 without peer-to-peer, KV cache by NIXL, `vllm bench serve` with a seed for each run.

The author measured 0.26 to 0.27 GB/s of the transfers.
"""

GPUSTACK: Final = Source(
    "GPUStack",
    "https://github.com/gpustack/gpustack",
    "47277d79f4a5bae12a2d25e9ecbed2a2177a5f2d",
    "docs/performance-lab/qwen3-14b",
    date="published 2025-11-13",
    vllm="0.11.0",
    length=40_960,
    utilization=0.9,
)
"""One H100 SXM or A100 SXM, vLLM's own options, `vllm bench serve` with chat requests.

Answers were not forced to their length; the tokens that were counted are within 0.3 % of it.
"""

MOONCAKE: Final = Source(
    "Mooncake",
    "https://github.com/kvcache-ai/Mooncake",
    "3b5a594133958449a1feaf1c9e0fc1b553e34a28",
    "docs/source/performance/vllm",
    date="published 2025-12-18",
    vllm="0.11.2.dev358",
    length=40_960,
    utilization=0.9,
)
"""Two hosts of eight H800s, KV cache by MooncakeConnector over RoCE, `vllm bench serve` with one request at a time.

The mean time to the first token is published. It stands for the median.
"""

_GPT_OSS: Final = Load(
    ANYSCALE, "openai/gpt-oss-120b", _H100, Engines(1, 1), None, "", 5000, 250, 0, 0.0, (0, 0), (0, 0), 0
)  # fmt: skip
_SPLIT: Final = replace(_GPT_OSS, transport="nvlink")


def _gpt_oss(load: Load, rate: int, ttft: tuple[float, float], tpot: tuple[float, float], gap: float) -> Load:
    """At a rate; requests came for 64 seconds."""
    return replace(load, rate=rate, requests=64 * rate, ttft=ttft, tpot=tpot, gap=gap)


_TWO_TP_4: Final = replace(_GPT_OSS, decode=Engines(2, 4))
_FOUR_TP_2: Final = replace(_GPT_OSS, decode=Engines(4, 2))
_TP_4_EACH: Final = replace(_SPLIT, parameter=Engines(1, 4), decode=Engines(1, 4))
_MORE_D: Final = replace(_SPLIT, parameter=Engines(1, 2), decode=Engines(3, 2))
_MORE_P: Final = replace(_SPLIT, parameter=Engines(3, 2), decode=Engines(1, 2))

_ON_ANYSCALE: Final = (
    _gpt_oss(_TWO_TP_4, 1, (129.03, 177.12), (5.13, 6.80), 6.78),
    _gpt_oss(_TWO_TP_4, 4, (130.51, 259.06), (7.32, 10.32), 89.68),
    _gpt_oss(_TWO_TP_4, 8, (147.40, 439.29), (11.62, 17.17), 97.31),
    _gpt_oss(_FOUR_TP_2, 1, (180.44, 230.43), (5.44, 7.04), 6.97),
    _gpt_oss(_FOUR_TP_2, 4, (182.10, 408.85), (7.31, 12.59), 10.70),
    _gpt_oss(_FOUR_TP_2, 8, (190.79, 548.47), (11.20, 17.49), 142.66),
    _gpt_oss(_TP_4_EACH, 1, (191.63, 261.22), (5.34, 5.81), 7.62),
    _gpt_oss(_TP_4_EACH, 4, (194.85, 400.62), (6.89, 7.92), 10.55),
    _gpt_oss(_TP_4_EACH, 8, (594.99, 2047.36), (32.15, 60.73), 288.80),
    _gpt_oss(_MORE_D, 1, (239.39, 2436.32), (5.51, 6.46), 7.35),
    _gpt_oss(_MORE_D, 4, (380.49, 951.11), (6.98, 10.07), 10.31),
    _gpt_oss(_MORE_D, 8, (3237.85, 5463.99), (10.05, 13.58), 82.68),
    _gpt_oss(_MORE_P, 1, (244.10, 1925.45), (6.20, 12.49), 8.91),
    _gpt_oss(_MORE_P, 4, (370.91, 846.50), (11.98, 19.66), 86.61),
    _gpt_oss(_MORE_P, 8, (762.71, 2181.33), (60.43, 89.84), 463.52),
)


_Times = tuple[tuple[float, float], tuple[float, float], float, float]
"""Those of `Load`, from `ttft` on."""


def _on_4090s(prompt: int, requests: int, rate: float, unsplit: _Times, split: _Times) -> tuple[Load, Load]:
    together = Load(
        LYELL, "Qwen/Qwen2-7B-Instruct", _RTX4090, Engines(2, 1), None, "", prompt, 128, requests, rate, *unsplit
    )  # fmt: skip
    one = Engines(1, 1)
    ttft, tpot, gap, whole = split
    return together, replace(
        together, decode=one, parameter=one, transport="tcp=0.27GB/s", ttft=ttft, tpot=tpot, gap=gap, whole=whole
    )  # fmt: skip


_ON_4090S: Final = (
    *_on_4090s(
        512, 320, 5.2,
        ((95.50, 125.55), (18.32, 19.82), 49.08, 2423.51),
        ((394.25, 1263.78), (16.75, 17.60), 20.17, 2520.86),
    ),
    *_on_4090s(
        2048, 192, 1.8,
        ((260.90, 362.31), (19.31, 26.76), 182.73, 2711.83),
        ((2611.62, 11_705.02), (16.71, 18.61), 22.33, 4732.52),
    ),
    *_on_4090s(
        8192, 56, 0.45,
        ((915.96, 1292.02), (16.97, 30.23), 206.57, 3124.29),
        ((7447.30, 14_912.16), (16.99, 18.20), 22.93, 9577.21),
    ),
)  # fmt: skip

_14B: Final = Load(
    GPUSTACK, "Qwen/Qwen3-14B", _H100, Engines(1, 1), None, "", 2000, 100, 500, math.inf,
    (49_138.28, 94_614.51), (231.62, 236.67), 642.06,
)  # fmt: skip
_AT_ONCE: Final = (
    _14B,
    replace(_14B, prompt=4000, answer=200, ttft=(110_734.54, 219_749.74), tpot=(139.68, 161.93), gap=656.79),
    replace(_14B, product=_A100, ttft=(86_575.09, 170_607.65), tpot=(334.17, 334.55), gap=338.95),
    replace(
        _14B, product=_A100, prompt=4000, answer=200, ttft=(196_621.85, 396_056.32), tpot=(272.93, 283.50), gap=377.42
    ),
)  # fmt: skip

_ALONE: Final = Load(
    MOONCAKE, "Qwen/Qwen3-8B", _H800, Engines(1, 8), Engines(1, 8), "rdma=142.25GB/s", 512, 128, 50, 0.0,
    (59.91, None), (None, None), None,
)  # fmt: skip
_ONE_BY_ONE: Final = (
    _ALONE,
    replace(_ALONE, prompt=2048, ttft=(85.31, None)),
    replace(_ALONE, prompt=8192, ttft=(212.05, None)),
    replace(_ALONE, prompt=32_768, ttft=(749.62, None)),
)

LOADS: Final = _ON_ANYSCALE + _ON_4090S + _AT_ONCE + _ONE_BY_ONE
