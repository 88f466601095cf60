"""vLLM's parser reads every rendered command line with the intended meaning."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pdinference.api.engines import slots
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.connectors.configuration import KV_ROLES
from tests.conftest import EXAMPLES, example_documents
from tests.engine.vllm_parser import parsed

pytestmark = pytest.mark.vllm


@pytest.mark.parametrize("role", [Role.PARAMETER, Role.DECODE])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_accepted(example: Path, role: Role) -> None:
    for document in example_documents(example):
        resource = PDInference.model_validate(document)
        if role not in resource.spec.engine_roles:
            continue
        config = parsed(resource, role).kv_transfer_config
        if not resource.spec.transfers_kv:
            assert config is None
            continue
        assert config.kv_role == ("kv_producer" if role is Role.PARAMETER else "kv_consumer")
        tiers = resource.spec.of(role).kv_tiers
        transfer = "NixlConnector"
        if resource.spec.parameter.parallelism.pipeline > 1:
            transfer = "NixlPushConnector"
        assert config.kv_connector == ("MultiConnector" if tiers else transfer)
        assert config.kv_load_failure_policy == "recompute"


def test_engines_that_share_a_pod_have_their_own_port_and_role(resource: Callable[..., PDInference]) -> None:
    roles = {role: {"parallelism": {"tensor": 2}} for role in ("parameter", "decode")}
    shared = resource(transfer={"hostLocal": {"parameter": 1, "decode": 2}}, **roles)
    assert shared.spec.host_local is not None
    for slot in slots(shared.spec.host_local):
        arguments = parsed(shared, slot.role, slot=slot)
        assert (arguments.port, arguments.tensor_parallel_size) == (slot.port, 2)
        config = arguments.kv_transfer_config
        assert (config.kv_connector, config.kv_role) == ("NixlConnector", KV_ROLES[slot.role])


def test_tiers_without_a_transfer_are_accepted(resource: Callable[..., PDInference]) -> None:
    tiers = {"kvTiers": {"cpu": {"size": "1Gi"}, "disk": {"size": "2Gi"}}}
    config = parsed(resource(mode="Aggregated", decode=tiers), Role.DECODE).kv_transfer_config
    assert (config.kv_connector, config.kv_role) == ("OffloadingConnector", "kv_both")


def test_what_the_operator_owns_means_what_the_spec_says(resource: Callable[..., PDInference]) -> None:
    source = {"huggingFace": {"repository": "a/b", "revision": "c"}}
    arguments = parsed(
        resource(
            model={"source": source, "name": "served"},
            rollout={"drainSeconds": 50},
            decode={"parallelism": {"tensor": 2}},
        ),
        Role.DECODE,
    )
    assert (arguments.model_tag, arguments.revision, arguments.tokenizer_revision) == ("a/b", "c", "c")
    assert arguments.served_model_name == ["served"]
    assert arguments.tensor_parallel_size == 2
    assert arguments.shutdown_timeout == 50
    assert (arguments.host, arguments.port) == ("0.0.0.0", 8000)  # noqa: S104


def test_users_options_keep_their_types(resource: Callable[..., PDInference]) -> None:
    arguments = parsed(
        resource(
            engine={
                "args": {
                    "max-logprobs": 64,
                    "kv-sharing-fast-prefill": False,
                    "load-format": "--not-an-option",
                    "hf-overrides": {"max_position_embeddings": 8192},
                    "cudagraph-capture-sizes": [1, 2, 4],
                }
            }
        ),
        Role.DECODE,
    )
    assert arguments.max_logprobs == 64
    assert arguments.kv_sharing_fast_prefill is False
    assert arguments.load_format == "--not-an-option"
    assert arguments.cudagraph_capture_sizes == [1, 2, 4]
    assert arguments.hf_overrides == {"max_position_embeddings": 8192}


def test_typed_fields_mean_what_they_say(resource: Callable[..., PDInference]) -> None:
    template = "{{ messages[0].content }} — $(HOME)"
    arguments = parsed(
        resource(
            model={
                "source": {"path": "/models/a"},
                "dtype": "half",
                "quantization": "awq",
                "maxModelLength": 8192,
                "chatTemplate": {"inline": template},
                "generationDefaults": {"temperature": 0.6},
                "trustRemoteCode": True,
                "lora": {"adapters": [{"name": "a", "path": "/a"}, {"name": "b", "path": "x/b"}], "maxRank": 32},
            },
            engine={
                "maxNumSeqs": 64,
                "maxNumBatchedTokens": 4096,
                "gpuMemoryUtilization": 0.85,
                "enforceEager": True,
                "enableChunkedPrefill": True,
                "enablePrefixCaching": False,
                "cpuOffload": "1Gi",
                "kvCache": {"dtype": "fp8", "blockSize": 128},
            },
        ),
        Role.DECODE,
    )
    assert (arguments.dtype, arguments.quantization, arguments.max_model_len) == ("half", "awq", 8192)
    assert arguments.chat_template == template
    assert arguments.override_generation_config == {"temperature": 0.6}
    assert arguments.trust_remote_code is True
    assert [(module.name, module.path) for module in arguments.lora_modules] == [("a", "/a"), ("b", "x/b")]
    assert (arguments.max_num_seqs, arguments.max_num_batched_tokens) == (64, 4096)
    assert arguments.gpu_memory_utilization == 0.85
    assert arguments.enforce_eager is True
    assert arguments.enable_chunked_prefill is True
    assert arguments.enable_prefix_caching is False
    assert arguments.cpu_offload_gb == 1
    assert (arguments.kv_cache_dtype, arguments.block_size) == ("fp8", 128)


def test_an_abbreviation_of_an_owned_option_changes_nothing(resource: Callable[..., PDInference]) -> None:
    arguments = parsed(resource(engine={"args": {"tensor-parallel-siz": 8, "served-model-nam": "x"}}), Role.DECODE)
    assert arguments.tensor_parallel_size == 1
    assert arguments.served_model_name == ["llama"]


@pytest.mark.parametrize("role", [Role.PARAMETER, Role.DECODE])
@pytest.mark.parametrize(
    ("transfer", "names"),
    [
        ({}, ["NixlConnector", "OffloadingConnector"]),
        ({"connector": "Mooncake"}, ["MooncakeConnector", "OffloadingConnector"]),
        ({"connector": "LMCache", "lmCache": {"remoteUrl": "lm://a:1"}}, ["LMCacheConnectorV1"]),
    ],
    ids=["Nixl", "Mooncake", "LMCache"],
)
def test_vllm_has_the_connectors(
    resource: Callable[..., PDInference], role: Role, transfer: dict[str, Any], names: list[str]
) -> None:
    from vllm.config import KVTransferConfig  # noqa: PLC0415
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory  # noqa: PLC0415

    tiers = {"kvTiers": {"cpu": {"size": "1Gi"}, "disk": {"size": "2Gi"}}} if len(names) > 1 else {}
    config = parsed(resource(transfer={**transfer, "onFailure": "Fail"}, parameter=tiers, decode=tiers), role)
    outer = config.kv_transfer_config
    assert outer.kv_load_failure_policy == "fail"
    inner = outer.kv_connector_extra_config.get("connectors")
    connectors = [KVTransferConfig(**each, engine_id="x") for each in inner] if inner else [outer]
    assert [each.kv_connector for each in connectors] == names
    assert [each.kv_connector in KVConnectorFactory._registry for each in connectors] == [True] * len(names)
    assert outer.kv_connector in KVConnectorFactory._registry


def test_vllm_reads_the_tiers(resource: Callable[..., PDInference]) -> None:
    """Its own classes take the settings, so that a release that renames one fails here and not in a pod."""
    from vllm.v1.kv_offload.factory import OffloadingSpecFactory  # noqa: PLC0415
    from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory  # noqa: PLC0415

    tiers = {"kvTiers": {"cpu": {"size": "1Gi"}, "disk": {"size": "2Gi"}}}
    outer = parsed(resource(decode=tiers), Role.DECODE).kv_transfer_config
    extra = outer.kv_connector_extra_config["connectors"][1]["kv_connector_extra_config"]
    assert OffloadingSpecFactory.get_spec_cls(extra).__name__ == "TieringOffloadingSpec"
    (disk,) = extra["secondary_tiers"]
    tier = SecondaryTierFactory.get_tier_class(disk)
    assert disk.keys() - {"type"} <= inspect.signature(tier.__init__).parameters.keys()
    assert '"cpu_bytes_to_use"' in inspect.getsource(OffloadingSpecFactory.get_spec_cls({}).__init__)


def test_the_ranks_of_one_instance_are_what_vllm_takes_them_for(resource: Callable[..., PDInference]) -> None:
    r = resource(parameter={"parallelism": {"data": 4, "nodes": 2, "expert": True}})
    first, second = (parsed(r, Role.PARAMETER, rank) for rank in range(2))
    for arguments in (first, second):
        assert (arguments.data_parallel_size, arguments.data_parallel_size_local) == (4, 2)
        assert arguments.data_parallel_rpc_port == 29550
        assert arguments.enable_expert_parallel
        assert not arguments.data_parallel_hybrid_lb
    assert (first.data_parallel_start_rank, first.headless, first.api_server_count) == (None, False, 1)
    assert (second.data_parallel_start_rank, second.headless, second.api_server_count) == (2, True, 0)


def test_the_nodes_of_one_instance_are_what_vllm_takes_them_for(resource: Callable[..., PDInference]) -> None:
    parallelism = {"tensor": 4, "pipeline": 2, "nodes": 2, "layerPartition": [42, 38]}
    r = resource(parameter={"parallelism": parallelism}, decode={"parallelism": {"tensor": 4}})
    first, second = (parsed(r, Role.PARAMETER, rank) for rank in range(2))
    assert (first.nnodes, first.node_rank, first.headless) == (2, 0, False)
    assert (second.nnodes, second.node_rank, second.headless, second.api_server_count) == (2, 1, True, 0)
    assert (first.master_port, second.master_port) == (29501, 29501)
    assert second.master_addr == "llama-parameter-$(PDINFERENCE_REVISION)-$(PDINFERENCE_POD_INDEX).llama-parameter"
    for arguments in (first, second):
        assert (arguments.tensor_parallel_size, arguments.pipeline_parallel_size) == (4, 2)
        assert arguments.distributed_executor_backend == "mp"
        assert arguments.kv_transfer_config.kv_connector == "NixlPushConnector"
