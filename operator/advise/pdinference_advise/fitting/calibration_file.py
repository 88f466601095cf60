"""The file of a calibration: what `pdinference calibrate fit` writes and `pdinference advise` reads.

Tests: tests/advise/fitting/test_fitting.py, tests/advise/advice/test_sources.py
"""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from pdinference.memory.model.shape import ModelFacts
from pdinference.performance.calibration import Calibration, TimeSource
from pdinference.performance.devices import Device
from pdinference.performance.service import SERVICE, Service
from pdinference_advise.fitting.api_server import server_times
from pdinference_advise.fitting.fitting import Fit, service_of
from pdinference_advise.fitting.measurement import Measurement, Point, Strict

_Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)]
_Rate = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]
_Text = Annotated[str, Field(max_length=300)]


class InvalidCalibrationError(ValueError):
    """A document is no calibration; the message says where."""


class Parameters(Strict):
    """The members of `Calibration` that are numbers."""

    compute: _Share
    compute8: _Share
    decode_compute: _Share
    attention: _Share
    weights: _Share
    kv: _Share
    kv8: _Share
    step: _Seconds
    layer: _Seconds
    prefill_layer: _Seconds
    layer8: _Seconds
    start: _Seconds
    request: _Seconds
    join: _Seconds
    after_prefill: _Seconds
    shortest_step: _Seconds
    launch: _Seconds
    reduction: _Seconds
    links: _Share


class Peaks(Strict):
    """Peak rates that the shares are shares of, as in `Device`."""

    flops: _Rate
    flops8: _Rate
    bandwidth: _Rate
    links: _Rate


class RequestTimes(Strict):
    """Seconds beside the engine, without a router, as in `Service`; 0 where they were not measured."""

    request: _Seconds
    prompt_token: _Seconds
    token_out: _Seconds
    step_out: _Seconds = 0.0
    request_cpu: _Seconds = 0.0

    @property
    def service(self) -> Service:
        """The same; what was not measured is built in."""
        measured = {name: seconds for name, seconds in self.model_dump(by_alias=False).items() if seconds}
        return replace(SERVICE, **measured)


class MeasuredPoint(Point):
    """A measurement with its prediction in seconds."""

    predicted: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
    held_out: bool


class CalibrationFile(Strict):
    """A calibration of one product.

    Attributes:
        product: Value of the node label.
        vllm: Version of vLLM that was measured.
        model: The shape that was measured: `shape_of`.
        date: When.
        assumed: Parameters that the measurement hardly determines.
        peaks: Peak rates of the device.
        parameters: The calibration.
        service: Seconds beside the engine.
        points: The measurements.
    """

    api_version: Literal["pdinference.io/calibration-v1"] = "pdinference.io/calibration-v1"
    product: Annotated[str, Field(min_length=1, max_length=253)]
    vllm: _Text
    model: _Text
    date: _Text
    assumed: Annotated[tuple[_Text, ...], Field(max_length=32)]
    peaks: Peaks
    parameters: Parameters
    service: RequestTimes
    points: Annotated[tuple[MeasuredPoint, ...], Field(max_length=500)]

    @property
    def calibration(self) -> Calibration:
        """The calibration."""
        return Calibration(
            product=self.product, source=TimeSource.MEASURED, **self.parameters.model_dump(by_alias=False)
        )

    @property
    def device(self) -> Device:
        """Peak rates of the device."""
        return Device(**self.peaks.model_dump(by_alias=False))

    @property
    def times_of_requests(self) -> Service:
        """Times beside the engine; what was not measured is built in."""
        return self.service.service

    def document(self) -> dict[str, Any]:
        """The file as JSON data."""
        return self.model_dump(mode="json", by_alias=True)


def shape_of(facts: ModelFacts) -> str:
    """The member `model`: a calibration counts as measured for models of this shape alone."""
    experts = f", {facts.moe.experts} experts" if facts.moe else ""
    return f"{facts.model_type}: {facts.layers} layers of {facts.hidden}{experts}"


def load(document: object) -> CalibrationFile:
    """Read a calibration from a parsed file.

    Raises:
        InvalidCalibrationError: It is not valid.
    """
    try:
        return CalibrationFile.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise InvalidCalibrationError(
            f"It is no calibration: {where}: {first['msg']}. `pdinference calibrate fit` writes one."
        ) from None


def request_times(measured: Measurement) -> RequestTimes:
    """Times beside the engine that a measurement determines."""
    request, prompt_token = service_of(measured.overheads)
    if servers := server_times(measured.servers):
        return RequestTimes(
            request=request,
            prompt_token=prompt_token,
            token_out=servers.token,
            step_out=servers.step,
            request_cpu=servers.request,
        )
    return RequestTimes(request=request, prompt_token=prompt_token, token_out=measured.token_cpu)


def file_of(found: Fit, device: Device, measured: Measurement, *, model: str) -> CalibrationFile:
    """The file of a fit.

    Args:
        found: The fit.
        device: The peak rates that it used.
        measured: What it was fitted to.
        model: The model that was measured.
    """
    values = {name: getattr(found.calibration, name) for name in Parameters.model_fields}
    return CalibrationFile(
        product=found.calibration.product,
        vllm=measured.vllm,
        model=model,
        date=measured.date,
        assumed=found.assumed,
        peaks=Peaks(flops=device.flops, flops8=device.flops8, bandwidth=device.bandwidth, links=device.links),
        parameters=Parameters(**values),
        service=request_times(measured),
        points=tuple(
            MeasuredPoint(**each.point.model_dump(by_alias=False), predicted=each.predicted, held_out=each.held_out)
            for each in found.residuals
        ),
    )
