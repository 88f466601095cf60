"""Loads that were measured on one or two GPUs with Llama-3.1-8B's shape.

benchmarks/results has them, in p-d-or-not.md and tuning.md.

Poisson arrivals of prompts and answers of one length, or of a mix; no prompt twice. Those in which P answered by counts
of requests (`router.parameterAnswers`, ADR 0024) are not among them: neither the router nor the simulation has that
rule any more.
"""

from dataclasses import dataclass, replace
from typing import Final

from benchmarks.llama import KV_TOKENS


@dataclass(frozen=True, slots=True)
class Load:
    """One row of a table.

    Attributes:
        way: `co-located` (engines that do both), `NVLink` or `TCP` (one P, one D), `Adaptive` (the same over NVLink,
            with `router.disaggregation: Adaptive`).
        prompt: Prompt tokens.
        answer: Tokens of the answer.
        rate: Requests a second.
        warm_up: Seconds whose requests were not counted.
        counted: Seconds whose requests were.
        ttft: Time to the first token, ms, at the median and the 99th percentile; None where it was not reported.
        tpot: Time per output token, ms, the same.
        gap: Gap between tokens, ms, at the 99th percentile.
        whole: Whole request, ms, at the median.
        saturated: Whether some part had more to do than it can. Then the times grow for as long as the load lasts.
            D's API server had, by its CPU time, in three of them (`benchmarks.advise.full_api_servers`).
        fitted: Whether the calibration was fitted to it.
        fp8: Whether the KV cache was in FP8.
        weights8: Whether the weights were in FP8, with activations quantised in each step (`--quantization=fp8`).
        tensor: Tensor parallelism: of one co-located engine, if 2.
        seed: That of its arrivals (`benchmarks.on_gpu.loads`), if they are known.
        product: The GPUs.
        kv_tokens: Tokens of the KV cache of each engine.
        others: Prompt and answer tokens of further lengths of a mix, each as likely as the first.
        step_tokens: Tokens a step of P, or of engines that do both; with `Adaptive` also of D.
        gpus: How many there were; a co-located engine has `tensor` of them.
        vllm: Its release.
        compiled: Whether steps with prompts were compiled, and recorded as CUDA graphs where they are short. The
            simulation takes all for compiled.
    """

    way: str
    prompt: int
    answer: int
    rate: float
    warm_up: float
    counted: float
    ttft: tuple[float | None, float | None]
    tpot: tuple[float, float | None]
    gap: float | None
    whole: float
    saturated: bool = False
    fitted: bool = False
    fp8: bool = False
    weights8: bool = False
    tensor: int = 1
    seed: int | None = None
    product: str = "NVIDIA-H200"
    kv_tokens: int = KV_TOKENS
    others: tuple[tuple[int, int], ...] = ()
    step_tokens: int = 8192
    gpus: int = 2
    vllm: str = "0.26.0"
    compiled: bool = True

    @property
    def splits_all(self) -> bool:
        """Whether each request went through P and D."""
        return self.way in {"NVLink", "TCP"}

    @property
    def flat(self) -> tuple[float | None, ...]:
        """TTFT p50 and p99, TPOT p50 and p99, gap p99, whole p50."""
        return (*self.ttft, *self.tpot, self.gap, self.whole)


FIRST: Final = (
    Load("co-located", 8000, 150, 3, 4, 33, (217, 399), (6.8, 11.0), 27.5, 1248, fitted=True),
    Load("NVLink", 8000, 150, 3, 4, 33, (254, 970), (5.5, 5.8), 7.1, 1080),
    Load("TCP", 8000, 150, 3, 4, 33, (4266, 6209), (5.6, 8.1), 8.9, 5105, saturated=True),
    Load("co-located", 8000, 150, 4.5, 4, 32, (220, 464), (9.7, 15.2), 184, 1686),
    Load("NVLink", 8000, 150, 4.5, 4, 32, (516, 1513), (5.8, 6.0), 9.2, 1393),
    Load("TCP", 8000, 150, 4.5, 4, 32, (17383, 24796), (9.4, 21.7), 61.8, 19830, saturated=True),
    Load("co-located", 1000, 250, 10, 4, 25, (38, 67), (5.8, 6.3), 26.4, 1490, fitted=True),
    Load("NVLink", 1000, 250, 10, 4, 25, (74, 136), (5.6, 6.0), 7.1, 1469),
    Load("TCP", 1000, 250, 10, 4, 25, (154, 386), (5.7, 6.0), 7.1, 1561, fitted=True),
    Load("co-located", 1000, 250, 20, 4, 21, (42, 95), (7.5, 8.4), 28.5, 1894),
    Load("NVLink", 1000, 250, 20, 4, 21, (85, 159), (6.5, 6.6), 8.2, 1697),
    Load("TCP", 1000, 250, 20, 4, 21, (1345, 2163), (6.5, 7.3), 9.7, 3016, saturated=True),
)
"""2026-11-21, vllm-router. How long each ran was not written down; 20 to 32 s are assumed, as two days later."""

SECOND: Final = (
    Load("NVLink", 8000, 150, 3, 4, 33, (409, 1147), (5.50, 5.72), 10.8, 1224),
    Load("NVLink", 8000, 150, 4.5, 4, 32, (935, 1892), (5.63, 6.13), 10.3, 1777),
    Load("NVLink", 1000, 250, 10, 4, 25, (67, 155), (5.38, 5.77), 6.7, 1411, fitted=True),
    Load("NVLink", 1000, 250, 20, 4, 21, (82, 234), (6.29, 6.58), 8.1, 1648, fitted=True),
    Load("NVLink", 500, 1500, 3, 40, 18, (56, 64), (5.98, 6.20), 7.1, 9015),
    Load("co-located", 500, 1500, 3, 40, 18, (26, 63), (5.57, 5.71), 8.3, 8377),
    Load("NVLink", 500, 1500, 4, 40, 18, (61, 93), (6.79, 7.00), 8.2, 10243, fitted=True),
    Load("co-located", 500, 1500, 4, 40, 18, (27, 44), (5.82, 5.97), 12.3, 8752, fitted=True),
    Load("NVLink", 500, 1500, 6, 40, 18, (73, 91), (8.54, 9.07), 10.2, 12874, fitted=True),
    Load("co-located", 500, 1500, 6, 40, 18, (32, 55), (6.33, 6.90), 17.4, 9521, fitted=True),
    Load("NVLink", 8000, 150, 3, 4, 33, (389, 1100), (5.3, None), None, 1191, fp8=True),
    Load("TCP", 8000, 150, 3, 4, 33, (556, 1356), (5.3, None), None, 1346, fp8=True),
    Load("TCP", 8000, 150, 4.5, 4, 32, (1867, 3763), (5.4, None), None, 2677, saturated=True, fp8=True),
    Load("TCP", 1000, 250, 20, 4, 21, (136, 464), (6.1, None), None, 1643, fitted=True, fp8=True),
)
"""2026-11-23, our router. Those of long answers began with requests of all ages: a longer warm-up gives the same."""

LONG: Final = (
    Load("NVLink", 500, 1500, 10, 30, 60, (None, None), (19, None), 25.9, 28600),
    Load("co-located", 500, 1500, 10, 30, 60, (None, None), (8, None), 24.3, 12000),
)
"""2026-11-22, our router. How long it ran was not written down; 60 s after the warm-up are assumed."""

_THIRD: Final = (
    Load("NVLink", 1000, 250, 20, 4, 21, (103, 195), (6.47, 6.87), 11.6, 1707),
    Load("co-located", 1000, 250, 20, 4, 21, (44, 109), (7.03, 8.58), 30.9, 1793),
    Load("NVLink", 8000, 150, 4.5, 4, 32, (671, 2074), (5.82, 6.05), 13.8, 1547),
    Load("co-located", 8000, 150, 4.5, 4, 32, (224, 520), (9.31, 21.33), 192.9, 1636),
    Load("NVLink", 500, 1500, 10, 45, 20, (351, 1157), (17.22, 18.41), 23.9, 26135, saturated=True),
    Load("co-located", 500, 1500, 10, 22, 20, (53, 127), (8.44, 8.89), 30.8, 12692),
    Load("NVLink", 1000, 250, 20, 4, 21, (90, 195), (6.07, 6.78), 10.4, 1608, fp8=True),
    Load("co-located", 1000, 250, 20, 4, 21, (46, 85), (7.13, 7.85), 32.1, 1824, fp8=True),
    Load("NVLink", 8000, 150, 4.5, 4, 32, (631, 2001), (5.55, 5.72), 12.6, 1459, fp8=True),
    Load("co-located", 8000, 150, 4.5, 4, 32, (216, 528), (8.51, 20.51), 184.4, 1549, fp8=True),
    Load("NVLink", 500, 1500, 10, 22, 20, (511, 2144), (10.51, 11.77), 17.0, 16248, saturated=True, fp8=True),
    Load("co-located", 500, 1500, 10, 22, 20, (44, 96), (7.70, 7.87), 28.1, 11579, fp8=True),
    Load("co-located", 1000, 250, 20, 4, 21, (40, 81), (6.60, 7.90), 30.7, 1676, tensor=2),
    Load("co-located", 8000, 150, 3, 4, 24, (136, 321), (5.60, 8.39), 121.2, 990, tensor=2),
)
THIRD: Final = tuple(replace(load, seed=1) for load in _THIRD)
"""2026-11-24, our router, P and D in one pod. `benchmarks/on_gpu/measured/defaults.loads` has the whole results."""

_FOURTH: Final = (
    Load("NVLink", 500, 1500, 5, 25, 20, (88, 113), (10.32, 10.53), 13.1, 15555),
    Load("co-located", 500, 1500, 5, 25, 20, (39, 55), (8.22, 8.32), 21.2, 12372),
    Load("NVLink", 2000, 600, 6, 12, 20, (122, 203), (10.48, 10.57), 12.7, 6401),
    Load("co-located", 2000, 600, 6, 12, 20, (68, 109), (9.70, 10.08), 35.8, 5882),
    Load("NVLink", 1000, 250, 10, 4, 20, (86, 125), (7.57, 7.90), 9.6, 1983),
    Load("co-located", 1000, 250, 10, 4, 20, (41, 65), (8.01, 8.55), 27.0, 2037),
    Load("NVLink", 8000, 150, 2, 4, 20, (272, 402), (7.14, 7.46), 10.3, 1341),
    Load("co-located", 8000, 150, 2, 4, 20, (222, 249), (7.10, 9.87), 8.6, 1281),
    Load("NVLink", 500, 1500, 8, 25, 20, (203, 2335), (11.84, 14.05), 20.4, 17998, saturated=True, fp8=True),
    Load("co-located", 500, 1500, 8, 25, 20, (54, 85), (9.42, 9.69), 32.1, 14175, fp8=True),
)
FOURTH: Final = tuple(
    replace(load, seed=1, product="NVIDIA-H100-80GB-HBM3", kv_tokens=(720_896 if load.fp8 else 360_448))
    for load in _FOURTH
)
"""2026-11-25, two H100s, whose shares of peaks are those of the H200; our router, P and D in one pod.

`benchmarks/on_gpu/measured/answers.loads` has the whole results."""

_CHATS: Final = ((1000, 250),) * 3

_FIFTH: Final = (
    Load("NVLink", 1000, 250, 20, 4, 21, (87, 179), (6.26, 6.80), 8.4, 1648),
    Load("NVLink", 8000, 150, 3, 4, 33, (261, 735), (5.41, 5.73), 9.6, 1092),
    Load("NVLink", 8000, 150, 4.5, 4, 32, (644, 2035), (5.75, 5.95), 10.2, 1503),
    Load("NVLink", 1000, 250, 10, 4, 25, (68, 106), (5.46, 5.83), 7.2, 1435),
    Load("NVLink", 8000, 150, 6, 4, 30, (249, 786), (5.53, 6.13), 8.9, 1422, others=_CHATS),
    Load("co-located", 8000, 150, 6, 4, 30, (42, 400), (6.37, 10.04), 18.5, 1547, others=_CHATS),
    Load("co-located", 500, 1500, 10, 22, 20, (40, 56), (8.38, 8.65), 17.7, 12602),
    Load("co-located", 500, 1500, 12, 22, 20, (51, 109), (9.71, 10.10), 29.7, 14641),
)
FIFTH: Final = tuple(replace(load, seed=1, kv_tokens=360_448) for load in _FIFTH)
"""2026-11-26, two H200s with no other vLLM on them, our router, P and D in one pod.

`benchmarks/on_gpu/measured/places.loads` has the whole results."""

_SIXTH: Final = (
    Load("co-located", 500, 1500, 10, 22, 40, (54, 93), (8.82, 9.04), 30.8, 13279),
    Load("NVLink", 8000, 150, 3, 4, 33, (350, 873), (5.41, 5.65), 9.8, 1170, step_tokens=512),
    Load("NVLink", 8000, 150, 3, 4, 33, (272, 756), (5.42, 5.71), 10.1, 1104),
)
SIXTH: Final = tuple(replace(load, seed=1, kv_tokens=360_448) for load in _SIXTH)
"""2026-11-26, two other H200s, our router, P and D in one pod; of two runs the first.

`benchmarks/on_gpu/measured/steps.loads` has the whole results."""

_SEVENTH: Final = (
    Load("co-located", 1000, 250, 5, 4, 25, (36, 57), (5.76, 6.26), 21.7, 1470),
    Load("co-located", 8000, 150, 1.5, 4, 33, (215, 506), (6.77, 11.78), 19.7, 1256),
    Load("co-located", 500, 1500, 5, 22, 20, (39, 54), (7.47, 7.58), 20.8, 11243),
)
SEVENTH: Final = tuple(replace(load, seed=1, kv_tokens=360_448, gpus=1, vllm="0.33.0") for load in _SEVENTH)
"""2026-11-26, one H200, torch 2.14.0, our router.

`benchmarks/on_gpu/measured/vllm-0.33.loads` has the whole results, and those of P and D on one GPU, which are none of
an arrangement that is simulated."""

_EIGHTH: Final = (
    Load("NVLink", 1000, 250, 20, 4, 21, (89, 168), (6.18, 6.70), 8.7, 1632),
    Load("co-located", 1000, 250, 20, 4, 21, (41, 84), (7.10, 7.98), 27.7, 1815),
    Load("NVLink", 8000, 150, 4.5, 4, 32, (608, 1962), (5.67, 5.92), 12.4, 1446),
    Load("co-located", 8000, 150, 4.5, 4, 32, (220, 502), (9.42, 21.06), 187.0, 1638),
    Load("co-located", 500, 1500, 10, 22, 40, (42, 74), (8.25, 8.52), 25.7, 12413),
    Load("NVLink", 8000, 150, 3, 4, 33, (310, 814), (5.34, 5.59), 10.2, 1119, step_tokens=512),
    Load("co-located", 8000, 150, 3, 4, 33, (215, 399), (6.68, 9.58), 20.5, 1219),
)
_WEIGHTS8: Final = (
    Load("NVLink", 1000, 250, 20, 4, 21, (98, 144), (5.06, 5.20), 8.8, 1355),
    Load("NVLink", 8000, 150, 4.5, 4, 32, (248, 854), (4.15, 4.92), 11.0, 855),
    Load("NVLink", 8000, 150, 3, 4, 33, (295, 574), (3.84, 4.26), 9.4, 861, step_tokens=512),
)
EIGHTH: Final = tuple(
    replace(load, seed=1, kv_tokens=360_448, vllm="0.33.0")
    for load in (*_EIGHTH, *(replace(load, weights8=True) for load in _WEIGHTS8))
)
"""2026-11-26, two H200s, torch 2.14.0, our router, P and D in one pod. The KV cache of P was smaller, and never full.

`benchmarks/on_gpu/measured/two-gpus-0.33.loads` and `two-gpus-0.33-w8.loads` have the whole results."""

_LONG_REPORTS: Final = ((6000, 500),)
_NINTH: Final = (
    Load("NVLink", 200, 120, 4, 4, 16, (204, 371), (6.78, 7.49), 10.4, 3234, others=_LONG_REPORTS),
    Load("co-located", 200, 120, 4, 4, 16, (153, 288), (6.49, 8.93), 24.6, 3020, others=_LONG_REPORTS),
    Load("NVLink", 300, 700, 12, 5, 12, (77, 118), (6.55, 6.67), 8.6, 4656),
    Load("co-located", 300, 700, 12, 5, 12, (38, 75), (6.18, 6.59), 25.7, 4357),
    Load("NVLink", 12000, 80, 2, 4, 16, (531, 1150), (5.29, 5.49), 11.8, 944),
    Load("co-located", 12000, 80, 2, 4, 16, (342, 653), (5.53, 13.65), 21.3, 878),
    Load("NVLink", 2500, 400, 6, 5, 15, (114, 260), (6.45, 7.15), 9.5, 2738),
    Load("co-located", 2500, 400, 6, 5, 15, (71, 216), (6.57, 7.98), 41.7, 2701),
    Load("NVLink", 700, 40, 30, 4, 12, (79, 135), (5.14, 5.42), 7.1, 280),
    Load("co-located", 700, 40, 30, 4, 12, (42, 96), (6.30, 9.89), 32.0, 291),
    Load("NVLink", 16000, 300, 1.5, 5, 16, (925, 2036), (6.56, 7.18), 15.8, 2917),
    Load("co-located", 16000, 300, 1.5, 5, 16, (481, 1234), (8.51, 15.91), 22.9, 3088),
)
NINTH: Final = tuple(replace(load, seed=1, kv_tokens=172_032, compiled=False) for load in _NINTH)
"""2026-11-29, two H200s, our router, steps with prompts not compiled (benchmarks/results/adaptive.md).

`benchmarks/on_gpu/measured/adaptive-h200-eager.jsonl` has the whole results, and those of conversations."""

_TENTH: Final = (
    Load("co-located", 2500, 400, 3, 4, 9, (91, 204), (6.62, 6.93), 16.6, 2746, step_tokens=512),
    Load("co-located", 12000, 80, 1, 2, 9, (412, 517), (5.23, 8.77), 21.2, 930, step_tokens=512),
    Load("co-located", 2500, 400, 3, 4, 9, (152, 332), (8.11, 9.06), 48.6, 3428, step_tokens=1024),
    Load("co-located", 12000, 80, 1, 2, 9, (438, 531), (6.05, 9.17), 34.2, 956, step_tokens=1024),
    Load("co-located", 2500, 400, 3, 4, 9, (78, 192), (6.78, 7.09), 31.4, 2795, step_tokens=2048),
    Load("co-located", 12000, 80, 1, 2, 9, (349, 411), (5.27, 9.11), 58.3, 824, step_tokens=2048),
    Load("co-located", 2500, 400, 3, 4, 9, (72, 169), (6.78, 7.17), 39.7, 2778),
    Load("co-located", 12000, 80, 1, 2, 9, (340, 394), (5.28, 9.20), 37.3, 807),
)
TENTH: Final = tuple(replace(load, seed=1, kv_tokens=49_152, gpus=1) for load in _TENTH)
"""2026-11-29, one H200, our router, compiled. `benchmarks/on_gpu/measured/steps-h200.jsonl` has the whole results."""

_ELEVENTH: Final = (
    Load("NVLink", 200, 120, 4, 4, 16, (203, 366), (6.61, 7.29), 10.6, 3119, others=_LONG_REPORTS),
    Load("co-located", 200, 120, 4, 4, 16, (156, 284), (6.32, 9.44), 17.4, 2856, others=_LONG_REPORTS),
    Load("NVLink", 300, 700, 12, 5, 12, (60, 93), (6.34, 6.49), 8.3, 4503),
    Load("co-located", 300, 700, 12, 5, 12, (26, 50), (5.68, 5.79), 12.9, 3996),
    Load("NVLink", 12000, 80, 2, 4, 16, (515, 1124), (5.18, 5.31), 11.6, 924),
    Load("co-located", 12000, 80, 2, 4, 16, (338, 650), (5.33, 13.47), 22.6, 817),
    Load("NVLink", 2500, 400, 6, 5, 15, (114, 259), (6.22, 6.98), 9.3, 2652),
    Load("co-located", 2500, 400, 6, 5, 15, (71, 162), (6.42, 7.37), 40.8, 2643),
    Load("NVLink", 700, 40, 30, 4, 12, (89, 170), (5.00, 5.40), 7.4, 284),
    Load("co-located", 700, 40, 30, 4, 12, (38, 77), (5.97, 9.39), 27.7, 273),
    Load("NVLink", 16000, 300, 1.5, 5, 16, (930, 2021), (6.41, 7.01), 17.3, 2872),
    Load("co-located", 16000, 300, 1.5, 5, 16, (481, 1174), (8.55, 15.21), 175.3, 3035),
)
_ADAPTIVE: Final = (
    Load("Adaptive", 200, 120, 4, 4, 16, (194, 338), (6.04, 7.44), 17.5, 2906, others=_LONG_REPORTS),
    Load("Adaptive", 300, 700, 12, 5, 12, (27, 44), (5.70, 5.76), 12.8, 4013),
    Load("Adaptive", 12000, 80, 2, 4, 16, (390, 681), (5.20, 12.68), 21.4, 840),
    Load("Adaptive", 2500, 400, 6, 5, 15, (84, 125), (6.17, 6.84), 17.0, 2546),
    Load("Adaptive", 700, 40, 30, 4, 12, (34, 54), (5.67, 7.20), 13.4, 256),
    Load("Adaptive", 16000, 300, 1.5, 5, 16, (629, 1071), (7.75, 12.14), 24.6, 2944),
)
ELEVENTH: Final = tuple(
    replace(load, seed=1, kv_tokens=106_496)
    for load in (*_ELEVENTH, *(replace(load, step_tokens=512) for load in _ADAPTIVE))
)
"""2026-11-29, two H200s, our router, compiled (benchmarks/results/adaptive.md).

`benchmarks/on_gpu/measured/adaptive-h200.jsonl` has the whole results, and those of conversations."""

SERIES: Final = (FIRST, SECOND, LONG, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH, TENTH, ELEVENTH)
LOADS: Final = tuple(load for series in SERIES for load in series)
