"""Constants of the H200 that come from steps, not from loads: `python -m benchmarks.advise.step_constants`.

`benchmarks/on_gpu/measured/*.raw` has the steps of Llama-3.1-8B's shape that `pdinference calibrate` measured: in bf16
with 8,192 tokens a step (vLLM 0.26.0 and 0.33.0) and 512 (0.33.0), and with the KV cache or the weights in FP8
(0.33.0). Each constant makes the measured times of its kind right, with the other constants as they are. They are
determined in the order in which they are printed. No load is used.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean, median
from typing import Final

from benchmarks.advise.predicted import SETTINGS
from benchmarks.advise.shapes import measurement
from benchmarks.llama import CONFIG, step_model
from pdinference.memory.model.model_facts import model_facts
from pdinference.memory.model.quantization import stated_quantization
from pdinference.memory.settings import Settings
from pdinference.performance.calibration import H200, Calibration
from pdinference_advise.fitting.fitting import scaled
from pdinference_advise.fitting.least_squares import Vector, least_squares
from pdinference_advise.fitting.measurement import Measurement, Point, predicted

_EARLIER: Final = measurement("llama-8b")
_WHOLE: Final = measurement("llama-8b-0.33")
_PARTS: Final = measurement("llama-8b-512-0.33")
_KV8: Final = measurement("llama-8b-kv8-0.33")
_WEIGHTS8: Final = measurement("llama-8b-w8-0.33")
_OF_KV8: Final = replace(SETTINGS, kv_bytes=1)
_OF_WEIGHTS8: Final = replace(SETTINGS, quantization=stated_quantization("fp8"))
_ALONE: Final = 512
"""Tokens of the prompt alone that `start` is from: one step with a CUDA graph."""
_LEAST_PROMPT: Final = 512
"""Shorter prompts alone wait for the CPU of the host, which differed between runs by 40 %."""


def main() -> None:
    """Print each constant, and that of the calibration."""
    for name, found in constants_of(determined()):
        print(f"{name} = {found:.3g}, built in: {getattr(H200, name):.3g}")


def determined() -> Calibration:
    """The calibration of the H200 with these constants determined anew."""
    found = replace(H200, prefill_layer=_prefill_layer(), start=0.0)
    found = replace(found, start=fmean(_late(each, found) for each in (_EARLIER, _WHOLE, _PARTS)))
    found = _fitted(found, ("kv8",), _OF_KV8, _of_kind(_KV8, "decode"), _KV8.step_tokens)
    long = [point for point in _of_kind(_WEIGHTS8, "prompt") if point.tokens >= _LEAST_PROMPT]
    points = [*long, *_of_kind(_WEIGHTS8, "decode")]
    return _fitted(found, ("compute8", "layer8"), _OF_WEIGHTS8, points, _WEIGHTS8.step_tokens)


def constants_of(calibration: Calibration) -> Iterator[tuple[str, float]]:
    """The constants that are determined here."""
    for name in ("prefill_layer", "start", "kv8", "compute8", "layer8"):
        yield name, getattr(calibration, name)


def _prefill_layer() -> float:
    """Seconds of a layer in a step with prompt tokens: what a long prompt takes longer in more steps."""
    alone = {point.tokens: point.seconds for point in _of_kind(_WHOLE, "prompt")}
    each = []
    for point in _of_kind(_PARTS, "prompt"):
        more = math.ceil(point.tokens / _PARTS.step_tokens) - math.ceil(point.tokens / _WHOLE.step_tokens)
        if point.tokens >= _WHOLE.step_tokens:
            each.append((point.seconds - alone[point.tokens]) / more)
    return (median(each) - H200.step) / model_facts(CONFIG).layers


def _late(measured: Measurement, calibration: Calibration) -> float:
    """Seconds that the prompt alone took longer than predicted."""
    (point,) = (point for point in _of_kind(measured, "prompt") if point.tokens == _ALONE)
    return point.seconds - predicted(point, step_model(SETTINGS, calibration), measured.step_tokens)


def _of_kind(measured: Measurement, kind: str) -> list[Point]:
    return [point for point in measured.points if point.kind == kind]


def _fitted(
    calibration: Calibration, names: tuple[str, ...], settings: Settings, points: list[Point], step_tokens: int
) -> Calibration:
    """The calibration with the values of some constants that have the least squares of the logarithms of errors."""

    def residuals(logarithms: Vector) -> Vector:
        steps = step_model(settings, scaled(calibration, names, logarithms))
        return [math.log(predicted(point, steps, step_tokens) / point.seconds) for point in points]

    found = least_squares(residuals, [0.0] * len(names), [(-3.0, 3.0)] * len(names))
    return scaled(calibration, names, found.at)


if __name__ == "__main__":
    main()
