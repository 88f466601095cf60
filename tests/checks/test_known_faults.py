"""Releases of vLLM that are known to break a KV transfer are warned of, and others are not."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.checks.examine import examine
from pdinference.manifests import RenderSettings

Make = Callable[..., dict[str, Any]]
Json = dict[str, Any]

RDMA: Json = {"transfer": {"rdma": {"resourceName": "rdma/hca", "count": 1}}}
SHARED: Json = {"transfer": {"hostLocal": {}}}


def faults(document: Make, engine: Json, more: Json) -> dict[str, str]:
    """The warnings about known faults, by field."""
    found = examine(document(engine=engine, **more), RenderSettings())
    assert not found.problems
    return {one.field: one.message for one in found.warnings if "known fault" in one.message}


@pytest.mark.parametrize(
    "image",
    [
        "vllm/vllm-openai:v0.25.1",
        "registry:5000/mine:0.25.0-cu130",
        "a.b/vllm-v0.25.0",
        "a/b:v0.25.1@sha256:" + 64 * "0",
    ],
)
def test_a_release_that_the_image_names_is_warned_of(document: Make, image: str) -> None:
    found = faults(document, {"image": image}, RDMA)
    assert "segmentation fault" in found["spec.engine.image"]
    assert "vllm/issues/49238" in found["spec.engine.image"]


def test_the_version_goes_before_the_image(document: Make) -> None:
    engine = {"image": "vllm/vllm-openai:v0.33.0", "version": "0.25.0"}
    assert [*faults(document, engine, RDMA)] == ["spec.engine.version"]


@pytest.mark.parametrize(
    ("image", "more"),
    [
        ("vllm/vllm-openai:v0.25.2", RDMA),
        ("vllm/vllm-openai:v0.24.9", RDMA),
        ("vllm/vllm-openai:v0.25.0", {}),
        ("vllm/vllm-openai:v0.25.0", {"mode": "Aggregated"}),
        ("mine/vllm:latest", RDMA),
        ("10.0.25.1/vllm", RDMA),
        ("registry-v0.25.0/vllm:main", RDMA),
        ("vllm/vllm-openai:v0.33.0", SHARED),
    ],
)
def test_no_other_spec_is_warned(document: Make, image: str, more: Json) -> None:
    assert not faults(document, {"image": image}, more)


@pytest.mark.parametrize("release", ["0.19.1", "0.26.0"])
def test_a_p_of_a_shared_pod_that_cannot_come_back_is_known_before(document: Make, release: str) -> None:
    found = faults(document, {"image": f"vllm/vllm-openai:v{release}"}, SHARED)
    assert "NIXL is older than 1.5.0" in found["spec.engine.image"]
