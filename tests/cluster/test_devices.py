"""GPUs of a pod, from rendered pods."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.v1alpha1 import PDInference
from pdinference.cluster.state.devices import gpus_of
from pdinference.manifests import RenderSettings, render

CLAIMED = {"accelerator": {"devices": {"deviceClassName": "gpu.example.com"}}}


@pytest.mark.parametrize(
    ("parameter", "decode", "gpus"),
    [
        ({}, {}, {1}),
        ({"parallelism": {"tensor": 4, "nodes": 2}}, {"parallelism": {"tensor": 4}}, {2, 4}),
        ({"parallelism": {"tensor": 2, "data": 4}}, {"parallelism": {"tensor": 2, "data": 4}}, {8}),
        ({**CLAIMED, "parallelism": {"tensor": 2}}, {**CLAIMED, "parallelism": {"tensor": 2}}, {2}),
        ({"accelerator": {"resourceName": "amd.com/gpu"}}, {"accelerator": {"resourceName": "amd.com/gpu"}}, {1}),
        ({"accelerator": {"type": "CPU"}}, {"accelerator": {"type": "CPU"}, "parallelism": {"tensor": 2}}, {0}),
    ],
)
def test_as_many_as_the_spec_asks_for(
    resource: Callable[..., PDInference], parameter: Any, decode: Any, gpus: set[int]
) -> None:
    children = render(resource(parameter=parameter, decode=decode), RenderSettings()).objects
    pods = [
        child["spec"]["template"]["spec"]
        for child in children
        if child["kind"] in {"StatefulSet", "Deployment"} and "router" not in child["metadata"]["name"]
    ]
    assert {gpus_of(pod) for pod in pods} == gpus


def test_a_pod_without_vllm_has_none() -> None:
    assert gpus_of({}) == 0
    assert gpus_of({"containers": [{"name": "router", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}) == 0
