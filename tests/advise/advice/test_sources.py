"""Which predictions count as interpolated between measurements, and which as extrapolated."""

from dataclasses import replace
from typing import Any

import pytest

from pdinference.memory import model_facts
from pdinference.performance.calibration import H200, TimeSource
from pdinference.performance.devices import DEVICES
from pdinference.performance.service import SERVICE
from pdinference_advise.advice.engines import Built, Engines
from pdinference_advise.advice.layouts import EngineGroup, Layout
from pdinference_advise.advice.ways import parse_transports
from pdinference_advise.fitting.calibration_file import CalibrationFile, Parameters, Peaks, RequestTimes, shape_of
from tests.advise.advice.questions import inputs_of, llama
from tests.memory import configs

GROUP = EngineGroup(H200.product, 1, 1)
UNSPLIT = Layout(GROUP)


def own(config: dict[str, Any]) -> CalibrationFile:
    """A calibration by the user, of a model; its numbers are those of the H200."""
    return CalibrationFile(
        product=H200.product, vllm="0.26.0", model=shape_of(model_facts(config)), date="2026-11-24", assumed=(),
        peaks=Peaks(**{name: getattr(DEVICES["nvidia-h200"], name) for name in Peaks.model_fields}),
        parameters=Parameters(**{name: getattr(H200, name) for name in Parameters.model_fields}),
        service=RequestTimes(request=0.1, prompt_token=0.001, token_out=0.0001), points=(),
    )  # fmt: skip


def built(config: dict[str, Any], layout: Layout = UNSPLIT, *calibrations: CalibrationFile) -> Built:
    document = llama()
    document["spec"]["model"]["architecture"] = {"config": config}
    return Engines(document, inputs_of(document), 1000, calibrations).build(layout)


def test_a_dense_model_on_the_measured_product_is_interpolated() -> None:
    assert built(configs.LLAMA_8B).source is TimeSource.INTERPOLATED


def test_an_own_calibration_counts_for_its_own_shape_alone() -> None:
    assert built(configs.LLAMA_8B, Layout(GROUP), own(configs.LLAMA_8B)).source is TimeSource.INTERPOLATED
    assert built(configs.LLAMA_8B, Layout(GROUP), own(configs.LLAMA_1B)).source is TimeSource.EXTRAPOLATED
    assert built(configs.QWEN3_30B_A3B, Layout(GROUP), own(configs.LLAMA_8B)).source is TimeSource.EXTRAPOLATED


def test_an_own_calibration_of_a_mixture_has_the_errors_that_were_measured_with_one() -> None:
    mixture = built(configs.QWEN3_30B_A3B, Layout(GROUP), own(configs.QWEN3_30B_A3B))
    assert mixture.source is TimeSource.INTERPOLATED
    dense = built(configs.LLAMA_8B, Layout(GROUP), own(configs.LLAMA_8B))
    assert mixture.errors.tpot_p50 == 0.1 > dense.errors.tpot_p50
    assert mixture.errors.gap_p99 > dense.errors.gap_p99


def test_an_fp8_kv_cache_was_measured_with_p_and_d_alone() -> None:
    assert built(configs.LLAMA_8B, Layout(GROUP, fp8=True)).source is TimeSource.EXTRAPOLATED
    split = Layout(GROUP, GROUP, parse_transports(("nvlink",))[0], fp8=True)
    assert built(configs.LLAMA_8B, split).source is TimeSource.INTERPOLATED


@pytest.mark.parametrize("calibrations", [(), (own(configs.LLAMA_8B),)])
def test_what_the_docs_call_not_validated_is_extrapolated(calibrations: tuple[CalibrationFile, ...]) -> None:
    quantised = configs.LLAMA_8B | {"quantization_config": {"quant_method": "fp8"}}
    rdma = Layout(GROUP, GROUP, parse_transports(("rdma=40",))[0])
    for config, layout in (
        (configs.LLAMA_8B, Layout(replace(GROUP, tensor=2))),
        (quantised, Layout(GROUP)),
        (configs.LLAMA_8B, rdma),
    ):
        assert built(config, layout, *calibrations).source is TimeSource.EXTRAPOLATED


@pytest.mark.parametrize(("part", "role"), [("engine", 1), ("decode", 1), ("parameter", 0)])
def test_the_api_servers_of_the_file_are_those_of_the_engines(part: str, role: int) -> None:
    document = llama()
    document["spec"].setdefault(part, {})["args"] = {"api-server-count": "4"}
    engines = Engines(document, inputs_of(document), 1000)
    split = engines.build(Layout(GROUP, GROUP, parse_transports(("nvlink",))[0]))
    assert split.arrangement.split is not None
    kinds = split.arrangement.split.kind, split.arrangement.kind
    assert kinds[role].limits.servers.number == 4
    assert kinds[1 - role].limits.servers.number == (4 if part == "engine" else 1)
    assert split.source is TimeSource.EXTRAPOLATED  # times with several were not measured where one is full


def test_the_times_beside_the_engine_are_those_of_an_own_calibration() -> None:
    calibration = own(configs.LLAMA_8B)
    split = Layout(GROUP, GROUP, parse_transports(("nvlink",))[0])
    for layout in (Layout(GROUP), split):
        arrangement = built(configs.LLAMA_8B, layout, calibration).arrangement
        service = arrangement.service
        assert (service.request, service.prompt_token, service.token_out) == (0.1, 0.001, 0.0001)
        assert arrangement.kind.limits.servers.service.token_out == 0.0001
        assert service.hand_over == SERVICE.hand_over  # it is not measured without a split


def test_times_beside_the_engine_that_were_not_measured_are_the_built_in_ones() -> None:
    nothing = RequestTimes(request=0, prompt_token=0, token_out=0)
    calibration = own(configs.LLAMA_8B).model_copy(update={"service": nothing})
    assert built(configs.LLAMA_8B, Layout(GROUP), calibration).arrangement.service == SERVICE
