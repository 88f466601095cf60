"""A fit recovers the times of a device whose calibration is known, and refuses measurements that contradict it."""

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.advise.predicted import SETTINGS
from pdinference.memory.model.model_facts import model_facts
from pdinference.performance.calibration import H200
from pdinference.performance.devices import DEVICES
from pdinference.performance.step import StepModel
from pdinference.performance.work import Work, work_of
from pdinference_advise.fitting.calibration_file import InvalidCalibrationError, file_of, load
from pdinference_advise.fitting.fitting import TOLERANCE, BadFitError, Fit, fit, service_of, split
from pdinference_advise.fitting.measurement import Measurement, Overhead, Point, predicted

DEVICE = DEVICES["nvidia-l40s"]
STEP_TOKENS = 8192
WORK = Work(
    layers=32, flops=1.4e10, expert_flops=0, head_flops=1e9, pair_flops=5.2e5, window_pair_flops=0, dense_bytes=1.5e10,
    expert_bytes=0, experts=0, experts_per_token=0, kv_bytes=131072, window_kv_bytes=0, state_bytes=0, window=0,
    low_precision=False, kv8=False, reduced_bytes=0, reductions=0, ranks=1,
)  # fmt: skip
"""The shape of Llama-3.1-8B."""
KINDS: list[dict[str, Any]] = [
    *({"kind": "prompt", "tokens": n, "running": 0, "context": 0} for n in (128, 512, 1024, 2048, 4096, 8192, 16384)),
    *({"kind": "decode", "tokens": 0, "running": n, "context": c} for n in (1, 4, 16, 64) for c in (500, 2000, 8000)),
    *({"kind": "mixed", "tokens": n, "running": 16, "context": 500} for n in (250, 1000, 4000)),
    {"kind": "backlog", "tokens": 1024, "running": 1, "context": 500},
]
MEASUREMENT = Measurement(
    api_version="pdinference.io/measurement-v1", vllm="0.32.0", date="2026-11-23", step_tokens=STEP_TOKENS, points=(),
    overheads=(Overhead(tokens=1000, seconds=0.003),), token_cpu=4e-5,
)  # fmt: skip
SHARE = st.floats(0.3, 0.95)
CALIBRATIONS = st.builds(
    lambda shares, scale: replace(
        H200, **dict(zip(("compute", "attention", "weights", "kv"), shares, strict=True)),
        **{name: getattr(H200, name) * scale for name in ("step", "layer", "prefill_layer", "request")},
    ),
    st.tuples(SHARE, SHARE, SHARE, SHARE), st.floats(0.3, 8),
)  # fmt: skip


def measured(calibration: Any, noise: float, seed: int = 0) -> list[Point]:
    chance = random.Random(seed)  # noqa: S311 - noise
    model = StepModel(WORK, DEVICE, calibration)
    points = []
    for kind in KINDS:
        seconds = predicted(Point(**kind, seconds=1), model, STEP_TOKENS)
        points.append(Point(**kind, seconds=seconds * math.exp(chance.uniform(-noise, noise))))
    return points


def fitted(points: list[Point]) -> Any:
    return fit(points, WORK, DEVICE, product="NVIDIA-L40S", step_tokens=STEP_TOKENS)


@settings(max_examples=12)
@given(CALIBRATIONS, st.integers(0, 99))
def test_times_are_recovered_within_the_noise(calibration: Any, seed: int) -> None:
    found = fitted(measured(calibration, 0.03, seed))
    true, model = StepModel(WORK, DEVICE, calibration), StepModel(WORK, DEVICE, found.calibration)
    between = [
        Point(kind="prompt", tokens=3000, running=0, context=0, seconds=1),
        Point(kind="decode", tokens=0, running=32, context=4000, seconds=1),
        Point(kind="decode", tokens=0, running=2, context=1000, seconds=1),
        Point(kind="mixed", tokens=2000, running=16, context=500, seconds=1),
    ]
    for point in between:
        ratio = predicted(point, model, STEP_TOKENS) / predicted(point, true, STEP_TOKENS)
        assert ratio == pytest.approx(1, abs=0.06), point


def test_a_share_that_the_times_determine_is_recovered() -> None:
    found = fitted(measured(replace(H200, compute=0.4, kv=0.5), 0.0))
    assert found.calibration.compute == pytest.approx(0.4, rel=0.03)
    assert found.calibration.kv == pytest.approx(0.5, rel=0.03)
    assert found.held_out_error < 0.01
    assert not {"compute", "kv"} & set(found.assumed)


def test_a_fit_that_one_point_contradicts_names_the_point() -> None:
    points = measured(H200, 0.0)
    index = next(i for i, p in enumerate(points) if p.running == 64 and p.context == 8000)
    points[index] = points[index].model_copy(update={"seconds": 3 * points[index].seconds})
    with pytest.raises(BadFitError, match=r"decode \(64 running with 8000 tokens\)"):
        fitted(points)


def test_a_tenth_of_the_times_may_be_disturbed_a_little() -> None:
    points = measured(H200, 0.0)
    _, held_out = split(points)

    def disturbed(number: int) -> list[Point]:
        slower = [each.model_copy(update={"seconds": 1.5 * each.seconds}) for each in held_out[:number]]
        return [*(each for each in points if each not in held_out[:number]), *slower]

    assert max(abs(each.error) for each in fitted(disturbed(2)).residuals) > TOLERANCE
    with pytest.raises(BadFitError, match="3 of 23 times"):
        fitted(disturbed(3))


def _on_an_h200(shape: str) -> Fit:
    """The fit of what `pdinference calibrate measure` gave there."""
    line = Path(f"benchmarks/on_gpu/measured/{shape}.raw").read_text(encoding="utf-8").splitlines()[-1]
    measurement = Measurement.model_validate_json(line)
    facts = model_facts(measurement.config or {})
    work = work_of(facts, replace(SETTINGS, layer_partition=(facts.layers,)))
    device = DEVICES["nvidia-h200"]
    return fit(measurement.points, work, device, product="NVIDIA-H200", step_tokens=measurement.step_tokens)


@pytest.mark.parametrize(("shape", "error"), [("llama-8b", 0.02), ("qwen-14b", 0.06), ("qwen-30b-a3b", 0.04)])
def test_times_of_a_real_device_are_fitted(shape: str, error: float) -> None:
    assert _on_an_h200(shape).held_out_error < error


def test_a_small_model_whose_steps_the_host_decides_is_refused() -> None:
    with pytest.raises(BadFitError, match=r"3 of 38 times differ by more than 25%.*mixed"):
        _on_an_h200("llama-1b")


@pytest.mark.parametrize("kind", ["prompt", "decode"])
def test_a_fit_needs_points_of_both_kinds(kind: str) -> None:
    with pytest.raises(BadFitError, match=f"no point of kind {kind}"):
        fitted([point for point in measured(H200, 0.0) if point.kind != kind])


def test_held_out_points_lie_between_others_and_all_points_are_kept() -> None:
    points = measured(H200, 0.0)
    used, held_out = split(points)
    assert sorted(map(str, used + held_out)) == sorted(map(str, points))
    assert len(held_out) >= 4
    lengths = [point.tokens for point in held_out if point.kind == "prompt"]
    assert lengths
    assert min(lengths) > 128
    assert max(lengths) < 16384


def test_time_beside_the_engine_is_a_line() -> None:
    overheads = [Overhead(tokens=n, seconds=0.002 + n * 1e-6) for n in (100, 1000, 8000)]
    assert service_of(overheads) == pytest.approx((0.002, 1e-6))
    assert service_of([]) == (0.0, 0.0)


def test_a_file_gives_back_the_calibration_and_the_device() -> None:
    found = fitted(measured(H200, 0.0))
    file = file_of(found, DEVICE, MEASUREMENT, model="llama")
    read = load(file.document())
    assert read == file
    assert read.calibration == found.calibration
    assert read.device == DEVICE


@pytest.mark.parametrize(
    ("path", "value"),
    [("parameters", {"compute": 2}), ("peaks", {}), ("apiVersion", "v1"), ("points", [{}] * 501), ("more", 1)],
)
def test_a_file_with_a_fault_is_refused_with_its_place(path: str, value: object) -> None:
    document = file_of(fitted(measured(H200, 0.0)), DEVICE, MEASUREMENT, model="llama").document()
    with pytest.raises(InvalidCalibrationError, match=path):
        load({**document, path: value})
