"""The way that follows from a spec, and the load that it carries."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api import names
from pdinference.api.v1alpha1 import PDInference
from pdinference.cli.doctor.facts import ClusterFacts, Subject
from pdinference.cli.doctor.finding import Finding, FindingResult
from pdinference.cli.doctor.subject import subject_of
from pdinference.cli.doctor.way import TransferWay, loads, shape_of, way_findings, way_of
from pdinference.cli.listing import ObjectListing
from pdinference.manifests import RenderSettings
from tests.memory.configs import LLAMA_8B

Resource = Callable[..., PDInference]
CPU = {"accelerator": {"type": "CPU"}}
KNOWN = {"source": {"path": "/models/llama"}, "architecture": {"config": LLAMA_8B}}


def subject(resource: PDInference, **status: Any) -> Subject:
    document = resource.model_dump(by_alias=True, exclude_unset=True, mode="json")
    document |= {"apiVersion": names.API_VERSION, "kind": names.KIND, "status": status}
    return subject_of(document, RenderSettings(), stored=bool(status))


def found(of: Subject, **facts: Any) -> dict[str, Finding]:
    return {finding.subject: finding for finding in way_findings(ClusterFacts(**facts), of)}


@pytest.mark.parametrize(
    ("spec", "way"),
    [
        ({}, TransferWay.TCP),
        ({"transfer": {"rdma": {"resourceName": "rdma/ib"}}}, TransferWay.RDMA),
        ({"parameter": CPU, "decode": CPU}, TransferWay.CPU),
        ({"transfer": {"path": "HostLocal"}}, TransferWay.NVLINK),
        ({"transfer": {"path": "HostLocal"}, "parameter": CPU, "decode": CPU}, TransferWay.CPU),
        ({"transfer": {"connector": "Mooncake", "mooncake": {"protocol": "tcp"}}}, TransferWay.OTHER),
        ({"mode": "Aggregated"}, TransferWay.NONE),
    ],
)
def test_the_way(resource: Resource, spec: dict[str, Any], way: TransferWay) -> None:
    assert way_of(resource(**spec).spec) is way


def test_the_load_that_tcp_carries(resource: Resource) -> None:
    """8,000 tokens of Llama-3.1-8B in bf16 are 1.05 GB (benchmarks/results/kv-transfer.md)."""
    (load,) = [load for load in loads(subject(resource(model=KNOWN)).plan, 3.2) if load.tokens == 8_000]
    assert load.bytes == 8_000 * 128 * 1024
    assert load.per_second == pytest.approx(3.05, rel=0.01)
    assert load.seconds * load.per_second == pytest.approx(1)


def test_all_ranks_together_carry_the_same_bytes(resource: Resource) -> None:
    two = {"parallelism": {"tensor": 2}}
    ranks = subject(resource(model=KNOWN, parameter=two, decode=two)).plan
    assert [load.bytes for load in loads(ranks, 1)] == [
        load.bytes for load in loads(subject(resource(model=KNOWN)).plan, 1)
    ]


def test_the_load_of_a_sliding_window_is_unknown_as_in_the_plan(resource: Resource) -> None:
    window = {**KNOWN, "architecture": {"config": {**LLAMA_8B, "sliding_window": 1024}}}
    plan = subject(resource(model=window)).plan
    assert plan is not None
    assert plan.stage.kv_bytes_per_token.known
    assert loads(plan, 3.2) == []


def test_without_a_known_model_or_speed_there_is_no_load(resource: Resource) -> None:
    assert loads(None, 3.2) == []
    assert loads(subject(resource(model=KNOWN)).plan, None) == []
    assert found(subject(resource()))["KV cache of a prompt"].result is FindingResult.UNKNOWN


def test_a_measured_transfer_has_the_shape_of_the_kv_cache(resource: Resource) -> None:
    shape = shape_of(subject(resource(model=KNOWN)).plan, gpu=True)
    assert (shape.regions, shape.block_bytes, shape.blocks) == (64, 256 * 1024, 63)
    assert shape_of(None, gpu=True) == shape


def test_a_measured_transfer_is_bounded(resource: Resource) -> None:
    assert shape_of(None, gpu=False).bytes == 2**26
    large = {**LLAMA_8B, "num_hidden_layers": 400, "num_key_value_heads": 32}
    model = {**KNOWN, "architecture": {"config": large}}
    assert 0 < shape_of(subject(resource(model=model)).plan, gpu=True).bytes <= 2**30


def test_over_tcp_it_names_the_rdma_devices_that_are_there(resource: Resource) -> None:
    node = {"metadata": {"name": "a"}, "status": {"allocatable": {"rdma/ib": "1", "nvidia.com/gpu": "8"}}}
    finding = found(subject(resource()), nodes=ObjectListing((node,)))["way of the KV cache"]
    assert finding.result is FindingResult.PROBLEM
    assert "rdma/ib" in finding.remedy


@pytest.mark.parametrize(("status", "result"), [("True", "ok"), ("False", "problem"), ("Unknown", "unknown")])
def test_what_routers_measured_is_reported_beside_it(resource: Resource, status: str, result: str) -> None:
    condition = {
        "type": "KVTransfer",
        "status": status,
        "reason": "Some",
        "message": "Do this.",
        "lastTransitionTime": "2026-11-23T00:00:00Z",
        "observedGeneration": 1,
    }
    numbers = {"gigabytesPerSecond": 0.5, "busyPercent": 40}
    finding = found(subject(resource(), conditions=[condition], transfer=numbers))["status.transfer"]
    assert finding.result == result
    assert "0.5 GB/s while transfers are under way, 40 %" in finding.found


def test_policies_that_limit_egress_of_p_or_d_are_named(resource: Resource) -> None:
    def policy(name: str, kind: str, **labels: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"policyTypes": [kind], "podSelector": {"matchLabels": labels}}}

    of = subject(resource())
    harmless = [policy("ours", "Ingress"), policy("others", "Egress", app="web")]
    assert found(of, policies=ObjectListing(tuple(harmless)))["NetworkPolicies"].result is FindingResult.OK
    limiting = policy("closed", "Egress", **{names.LABEL_ROLE: "decode"})
    finding = found(of, policies=ObjectListing((*harmless, limiting)))["NetworkPolicies"]
    assert finding.result is FindingResult.UNKNOWN
    assert finding.found.startswith("closed limit")
