"""What a device reaches of its peaks with vLLM, and what a step costs beside them: a file, built in or of the user.

Tests: tests/performance/test_step.py, tests/benchmarks/advise/test_step_constants.py
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from pdinference.performance.devices import device_key


class TimeSource(StrEnum):
    """Where a number comes from."""

    MEASURED = "measured"
    INTERPOLATED = "interpolated"
    EXTRAPOLATED = "extrapolated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Calibration:
    """Shares of a device's peaks, and seconds beside them.

    Attributes:
        product: Value of the node label.
        compute: Share of the peak of matrix products in steps with prompt tokens.
        compute8: The same with weights in FP8, of the peak in FP8. Activations are quantised in each step.
        decode_compute: The share in steps without, whatever the weights. What prefill loses between its products is in
            `layer` there.
        attention: Share of the same peak that attention of prompts reaches.
        weights: Share of the memory's bandwidth while weights are read.
        kv: Share of it while KV cache is read.
        kv8: The same with a KV cache in 8 bits, whose kernels also convert it.
        step: Seconds of a step beside its layers.
        layer: Seconds of a layer beside its products: kernels start one after the other.
        prefill_layer: The same in a step with prompt tokens.
        layer8: What each of both takes longer with weights in FP8.
        start: Seconds that a step with prompt tokens takes longer if the engine was idle before: nothing of it was
            prepared during an earlier step.
        request: Seconds of a step for each running request.
        join: Seconds that the first step of a request takes longer whose KV cache was pulled, beside its blocks.
        after_prefill: Seconds that a step takes longer after one with prompt tokens, if it has none itself.
        shortest_step: Seconds below which no step comes: the engine prepares it on a CPU.
        launch: Seconds in which a CPU starts the kernels of a layer, in a step with more tokens than the largest CUDA
            graph. They are hidden where the device computes for longer.
        reduction: Seconds of a sum over tensor-parallel ranks, beside its bytes.
        links: Share of the speed between devices that such a sum reaches.
        source: Whether they were measured on this product.
    """

    product: str
    compute: float
    compute8: float
    decode_compute: float
    attention: float
    weights: float
    kv: float
    kv8: float
    step: float
    layer: float
    prefill_layer: float
    layer8: float
    start: float
    request: float
    join: float
    after_prefill: float
    shortest_step: float
    launch: float
    reduction: float
    links: float
    source: TimeSource = TimeSource.MEASURED


H200: Final = Calibration(
    product="NVIDIA-H200",
    compute=0.64,
    compute8=0.567,
    decode_compute=0.8,
    attention=0.64,
    weights=0.90,
    kv=0.9,
    kv8=0.598,
    step=0.0002,
    layer=0.0000315,
    prefill_layer=0.0000665,
    layer8=0.0000085,
    start=0.0016,
    request=0.00001,
    join=0.00075,
    after_prefill=0.001,
    shortest_step=0.0018,
    launch=0.0005,
    reduction=0.000012,
    links=0.6,
)
"""Fitted to ten of the measured loads (benchmarks/advise); the others are predicted with it.

vLLM 0.26.0, Llama-3.1-8B's shape in bf16, two H200s, 2026-11-21 and 2026-11-23. `compute8`, `kv8`, `prefill_layer`,
`layer8` and `start` are from steps that `pdinference calibrate` measured with 0.33.0, 2026-11-26, and from no load
(benchmarks/advise/step_constants.py). `join` is from vLLM's counters of transfers, 2026-11-29
(benchmarks/results/adaptive.md). `after_prefill` is how much longer than the median those gaps were that follow a
prompt, in loads where p90 or p95 of the gaps is one (benchmarks/results/advise-compared.md).
"""


def calibration_of(product: str) -> Calibration:
    """The calibration of a product: its own where it was measured, else the shares of the H200."""
    if device_key(product) == device_key(H200.product):
        return H200
    return replace(H200, product=product, source=TimeSource.EXTRAPOLATED)
