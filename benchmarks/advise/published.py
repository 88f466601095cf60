"""Loads that others measured with vLLM, and published. Nothing is fitted to them.

They were chosen before any of them was predicted, by these rules: vLLM's engine V1; no speculative decoding and no eager
mode; model, GPUs, tensor parallelism, number of requests and vLLM's version are stated; random prompts and answers of one
length; requests come at a finite rate, all at once or one after the other. Where there were many rates of one
arrangement, three or the lowest were taken. What was left out is in docs/advise.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Source:
    """Who measured, and with what.

    Attributes:
        name: Short name, for tables.
        address: Where it is published.
        path: The file there, with the commit where one is known.
        measured: Date of the measurement.
        vllm: Version.
        length: `max-model-len`.
        utilization: `gpu-memory-utilization`; None: the default of a newer vLLM.
    """

    name: str
    address: str
    path: str
    measured: str
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


def _qwen(kind: str, layers: int, hidden: int, inner: int, heads: int, kv: int, vocab: int) -> dict[str, Any]:
    return {
        "model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": inner,
        "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": 128, "vocab_size": vocab,
        "max_position_embeddings": 32_768 if kind == "qwen2" else 40_960, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
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
        "Qwen/Qwen2-7B-Instruct": _qwen("qwen2", 28, 3584, 18_944, 28, 4, 152_064),
        "Qwen/Qwen3-8B": _qwen("qwen3", 36, 4096, 12_288, 32, 8, 151_936),
        "Qwen/Qwen3-14B": _qwen("qwen3", 40, 5120, 17_408, 40, 8, 151_936),
    }
)  # fmt: skip
"""Of each model what its config.json says of its shape. Weights are in 16 bits, those of gpt-oss's experts in MXFP4."""

_H100: Final = "NVIDIA-H100-80GB-HBM3"
_H800: Final = "NVIDIA-H800"
_RTX4090: Final = "NVIDIA-GeForce-RTX-4090"


_A100: Final = "NVIDIA-A100-SXM4-80GB"
STEP_TOKENS: Final[Mapping[str, int]] = MappingProxyType({_H100: 8192, _H800: 8192, _A100: 2048, _RTX4090: 2048})
"""vLLM's default of `max-num-batched-tokens` on each (`get_batch_defaults` in vllm/engine/arg_utils.py)."""


ANYSCALE: Final = Source(
    "Anyscale", "https://github.com/anyscale/ray-serve-llm-perf-examples",
    "prefill_decode/archive/bm_results_snapshot/gptoss_itl5000_otl250_* at 04ba8ab", "2025-10-10 and 11", "0.11.0",
    16_000, 0.9,
)  # fmt: skip
"""8 H100s of one p5.48xlarge, Ray Serve in front, `vllm bench serve`, no prefix hits (the deviation of the times to the
first token shows it), KV cache by NIXL over UCX within the host."""

LYELL: Final = Source(
    "lyell0710", "https://github.com/lyell0710/vllmExperience",
    "pd_disagg/results/b1_matrix/raw/20260821T*_bench.log", "2026-08-21", "0.25.1", 16_384,
)  # fmt: skip
"""Two RTX 4090 without peer-to-peer, `vllm bench serve`, no prefix hits (each run has its own seed). NIXL's transfers
reached 0.26 to 0.27 GB/s by the author's own measurement."""

GPUSTACK: Final = Source(
    "GPUStack", "https://github.com/gpustack/gpustack", "docs/performance-lab/qwen3-14b/{h100,a100}.md at 47277d79",
    "2025-11", "0.11.0", 40_960, 0.9,
)  # fmt: skip
"""One H100 SXM or A100 SXM of 80 GB, vLLM's own options, `vllm bench serve` with chat requests. Answers were not forced to the full length;
the tokens that were counted are within 0.3 % of it."""

MOONCAKE: Final = Source(
    "Mooncake", "https://github.com/kvcache-ai/Mooncake",
    "docs/source/performance/vllm/vllm-v1-pd-performance.md at 3b5a5941", "2025-12", "0.11.2.dev358",
    40_960, 0.9,
)  # fmt: skip
"""Two hosts of 8 H800s, P and D with TP 8, MooncakeConnector over RoCE, one request after the other. The mean time to the
first token is published; it stands for the median."""

GPT_OSS: Final = "openai/gpt-oss-120b"
_Four = tuple[float, float, float, float]


def _anyscale(decode: Engines, parameter: Engines | None, rows: Mapping[int, tuple[_Four, float]]) -> tuple[Load, ...]:
    return tuple(
        Load(
            ANYSCALE, GPT_OSS, _H100, decode, parameter, "nvlink" if parameter else "", 5000, 250, 64 * rate, rate,
            times[:2], times[2:], gap,
        )
        for rate, (times, gap) in rows.items()
    )  # fmt: skip


def _lyell(
    parameter: Engines | None, prompt: int, requests: int, rate: float, times: _Four, gap: float, whole: float
) -> Load:
    decode, way = (Engines(1, 1), "tcp=0.27GB/s") if parameter else (Engines(2, 1), "")
    return Load(
        LYELL, "Qwen/Qwen2-7B-Instruct", _RTX4090, decode, parameter, way, prompt, 128, requests, rate,
        times[:2], times[2:], gap, whole,
    )  # fmt: skip


def _gpustack(product: str, prompt: int, answer: int, times: _Four, gap: float) -> Load:
    return Load(
        GPUSTACK, "Qwen/Qwen3-14B", product, Engines(1, 1), None, "", prompt, answer, 500, math.inf,
        times[:2], times[2:], gap,
    )  # fmt: skip


def _mooncake(prompt: int, mean: float) -> Load:
    eight = Engines(1, 8)
    return Load(
        MOONCAKE, "Qwen/Qwen3-8B", _H800, eight, eight, "rdma=142.25GB/s", prompt, 128, 50, 0.0,
        (mean, None), (None, None), None,
    )  # fmt: skip


_P1: Final = Engines(1, 1)
LOADS: Final = (
    *_anyscale(Engines(2, 4), None, {
        1: ((129.03, 177.12, 5.13, 6.80), 6.78),
        4: ((130.51, 259.06, 7.32, 10.32), 89.68),
        8: ((147.40, 439.29, 11.62, 17.17), 97.31),
    }),
    *_anyscale(Engines(4, 2), None, {
        1: ((180.44, 230.43, 5.44, 7.04), 6.97),
        4: ((182.10, 408.85, 7.31, 12.59), 10.70),
        8: ((190.79, 548.47, 11.20, 17.49), 142.66),
    }),
    *_anyscale(Engines(1, 4), Engines(1, 4), {
        1: ((191.63, 261.22, 5.34, 5.81), 7.62),
        4: ((194.85, 400.62, 6.89, 7.92), 10.55),
        8: ((594.99, 2047.36, 32.15, 60.73), 288.80),
    }),
    *_anyscale(Engines(3, 2), Engines(1, 2), {
        1: ((239.39, 2436.32, 5.51, 6.46), 7.35),
        4: ((380.49, 951.11, 6.98, 10.07), 10.31),
        8: ((3237.85, 5463.99, 10.05, 13.58), 82.68),
    }),
    *_anyscale(Engines(1, 2), Engines(3, 2), {
        1: ((244.10, 1925.45, 6.20, 12.49), 8.91),
        4: ((370.91, 846.50, 11.98, 19.66), 86.61),
        8: ((762.71, 2181.33, 60.43, 89.84), 463.52),
    }),
    _lyell(None, 512, 320, 5.2, (95.50, 125.55, 18.32, 19.82), 49.08, 2423.51),
    _lyell(_P1, 512, 320, 5.2, (394.25, 1263.78, 16.75, 17.60), 20.17, 2520.86),
    _lyell(None, 2048, 192, 1.8, (260.90, 362.31, 19.31, 26.76), 182.73, 2711.83),
    _lyell(_P1, 2048, 192, 1.8, (2611.62, 11705.02, 16.71, 18.61), 22.33, 4732.52),
    _lyell(None, 8192, 56, 0.45, (915.96, 1292.02, 16.97, 30.23), 206.57, 3124.29),
    _lyell(_P1, 8192, 56, 0.45, (7447.30, 14912.16, 16.99, 18.20), 22.93, 9577.21),
    _gpustack(_H100, 2000, 100, (49138.28, 94614.51, 231.62, 236.67), 642.06),
    _gpustack(_H100, 4000, 200, (110734.54, 219749.74, 139.68, 161.93), 656.79),
    _gpustack(_A100, 2000, 100, (86575.09, 170607.65, 334.17, 334.55), 338.95),
    _gpustack(_A100, 4000, 200, (196621.85, 396056.32, 272.93, 283.50), 377.42),
    _mooncake(512, 59.91),
    _mooncake(2048, 85.31),
    _mooncake(8192, 212.05),
    _mooncake(32_768, 749.62),
)  # fmt: skip
