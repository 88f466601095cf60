"""Other shapes on one H200, predicted before and after `pdinference calibrate`: `python -m benchmarks.advise.shapes`.

`benchmarks/on_gpu/measured` has what `benchmarks.on_gpu.calibrated` wrote: SHAPE.raw, the times of steps, and
SHAPE.loads. The loads are simulated with the arrivals that they had, by the built-in calibration of the H200, which
was fitted to Llama-3.1-8B, and by the fit of SHAPE.raw. Neither was fitted to these loads. What the model of a step
knows of layers with experts beside any calibration is from qwen-30b-a3b.raw.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.advise.errors import METRICS, error_lines
from benchmarks.advise.predicted import SETTINGS, as_measured, times_of
from benchmarks.on_gpu.loads import Load
from pdinference.memory.model.model_facts import model_facts
from pdinference.performance.calibration import calibration_of
from pdinference.performance.devices import Device, device_of
from pdinference.performance.service import SERVICE, Service
from pdinference.performance.step import StepModel
from pdinference.performance.work import Work, work_of
from pdinference_advise.fitting.calibration_file import request_times
from pdinference_advise.fitting.fitting import fit
from pdinference_advise.fitting.measurement import Measurement
from pdinference_advise.simulation.api_servers import ApiServers
from pdinference_advise.simulation.arrangement import Arrangement, EngineKind
from pdinference_advise.simulation.engine import EngineLimits
from pdinference_advise.simulation.run import simulate

_FOLDER: Final = Path("benchmarks/on_gpu/measured")
_PRODUCT: Final = "NVIDIA-H200"
KV_TOKENS: Final = {"qwen-14b": 541_840, "qwen-30b-a3b": 744_672}
"""What vLLM said."""
BLOCK: Final = 16
SEED: Final = 1
"""That of the arrivals."""
_MEMBERS: Final = (("ttft", "p50"), ("ttft", "p99"), ("tpot", "p50"), ("tpot", "p99"), ("gap", "p99"), ("whole", "p50"))


@dataclass(frozen=True)
class Row:
    """A load, and its times in ms: those of `METRICS`.

    Attributes:
        shape: Name of the shape.
        load: Prompt and answer tokens, and requests a second.
        calibration: `built in`, or the shape's `own`.
        predicted: By that calibration.
        measured: On the GPU.
    """

    shape: str
    load: str
    calibration: str
    predicted: tuple[float, ...]
    measured: tuple[float, ...]

    @property
    def errors(self) -> list[float]:
        """Relative errors of the predictions."""
        return [found / real - 1 for found, real in zip(self.predicted, self.measured, strict=True)]


def rows() -> Iterator[Row]:
    """All loads, by both calibrations."""
    for shape in KV_TOKENS:
        for name, kind, service in (("built in", *by_built_in(shape)), ("own", *_by_own(shape))):
            for load in loads_of(shape):
                what = f"{load['prompt']:,} / {load['answer']:,} | {load['rate']:g}"
                yield Row(shape, what, name, predicted(kind, service, load), measured(load))


def loads_of(shape: str) -> list[dict[str, Any]]:
    """The loads that were measured with a shape."""
    return [json.loads(line) for line in _lines(f"{shape}.loads")]


def measured(load: dict[str, Any]) -> tuple[float, ...]:
    """What it gave: those of `METRICS`."""
    return tuple(load[member][cut] for member, cut in _MEMBERS)


def measurement(shape: str) -> Measurement:
    """The times of steps of a shape."""
    return Measurement.model_validate_json(_lines(f"{shape}.raw")[-1])


def built_in(shape: str) -> StepModel:
    """Steps of a shape by the built-in calibration."""
    return StepModel(*_counted(measurement(shape)), calibration_of(_PRODUCT))


def own(shape: str) -> tuple[StepModel, Service]:
    """Steps of a shape by the fit of its own times, and the times of requests beside the engine."""
    measured = measurement(shape)
    work, device = _counted(measured)
    fitted = fit(measured.points, work, device, product=_PRODUCT, step_tokens=measured.step_tokens)
    return StepModel(work, device, fitted.calibration), request_times(measured).service


def errors_of(some: Iterable[Row]) -> list[list[float]]:
    """Absolute errors of some rows, for each of `METRICS`."""
    return [[abs(each) for each in column] for column in zip(*(row.errors for row in some), strict=True)]


def main() -> None:
    """A table in Markdown, and the errors."""
    print(f"| shape | load | req/s | calibration | {' | '.join(METRICS)} |")
    print("| --- | --- | ---: | --- " + "| --- " * len(METRICS) + "|")
    found = list(rows())
    for row in found:
        columns = zip(row.predicted, row.measured, row.errors, strict=True)
        cells = [f"{value:,.4g} / {real:,.4g} ({error:+.0%})" for value, real, error in columns]
        print(f"| {row.shape} | {row.load} | {row.calibration} | {' | '.join(cells)} |")
    kinds = dict.fromkeys((row.shape, row.calibration) for row in found)
    errors = {
        ", ".join(kind): errors_of(row for row in found if (row.shape, row.calibration) == kind) for kind in kinds
    }
    print("", *error_lines(errors), sep="\n")


def _lines(name: str) -> list[str]:
    lines = (_FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("{")]


def _counted(measured: Measurement) -> tuple[Work, Device]:
    facts, device = model_facts(measured.config or {}), device_of(_PRODUCT)
    assert device is not None  # noqa: S101 - it is in the table
    return work_of(facts, replace(SETTINGS, layer_partition=(facts.layers,), block_size=BLOCK)), device


def by_built_in(shape: str) -> tuple[EngineKind, Service]:
    """The engine of a shape by the built-in calibration."""
    return _kind(shape, built_in(shape), SERVICE), SERVICE


def _by_own(shape: str) -> tuple[EngineKind, Service]:
    """The engine by its own."""
    steps, service = own(shape)
    return _kind(shape, steps, service), service


def _kind(shape: str, steps: StepModel, service: Service) -> EngineKind:
    step_tokens, kv_tokens = measurement(shape).step_tokens, KV_TOKENS[shape]
    limits = EngineLimits(step_tokens, SETTINGS.max_num_seqs, kv_tokens, BLOCK, ApiServers(1, service))
    return EngineKind(steps, limits, prefix_caching=False)


def predicted(kind: EngineKind, service: Service, measured_load: dict[str, Any]) -> tuple[float, ...]:
    """The times of an engine with a load."""
    load = load_of(measured_load)
    lasts = load.warm_up + load.counted
    run = simulate(Arrangement(kind, 1, service=service), as_measured(load, SEED), warm_up=load.warm_up, until=lasts)
    return times_of(run.outcome).flat


def load_of(measured_load: dict[str, Any]) -> Load:
    """What was sent."""
    return Load(*(measured_load[member] for member in ("prompt", "answer", "rate", "warm_up", "counted")))


if __name__ == "__main__":
    main()
