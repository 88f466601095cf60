"""vLLM's command for each role and kind of spec."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.vllm import effective_defaults, engine_command
from tests.engine.commands import environment, option, transfer

Make = Callable[..., PDInference]


def test_parameter_produces_the_kv_cache_and_decode_consumes_it(resource: Make) -> None:
    r = resource()
    assert transfer(engine_command(r, Role.PARAMETER))["kv_role"] == "kv_producer"
    assert transfer(engine_command(r, Role.DECODE))["kv_role"] == "kv_consumer"


@pytest.mark.parametrize("role", [Role.PARAMETER, Role.DECODE])
def test_the_side_channel_is_announced_at_the_pods_own_address(resource: Make, role: Role) -> None:
    host = environment(engine_command(resource(), role))["VLLM_NIXL_SIDE_CHANNEL_HOST"]
    assert host == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_a_failed_transfer_costs_time_and_not_the_answer(resource: Make) -> None:
    assert transfer(engine_command(resource(), Role.DECODE))["kv_load_failure_policy"] == "recompute"


def test_tensor_parallelism_is_per_role(resource: Make) -> None:
    r = resource(parameter={"parallelism": {"tensor": 2}}, decode={"parallelism": {"tensor": 4}})
    assert option(engine_command(r, Role.PARAMETER), "tensor-parallel-size") == "2"
    assert option(engine_command(r, Role.DECODE), "tensor-parallel-size") == "4"


def test_a_roles_options_win_over_the_engines(resource: Make) -> None:
    r = resource(
        engine={"args": {"swap-space": 1, "load-format": "dummy"}, "seed": 1, "maxNumSeqs": 8},
        decode={"args": {"swap-space": 2}, "seed": 2},
    )
    assert option(engine_command(r, Role.PARAMETER), "swap-space") == "1"
    assert option(engine_command(r, Role.DECODE), "swap-space") == "2"
    assert option(engine_command(r, Role.DECODE), "load-format") == "dummy"
    assert option(engine_command(r, Role.PARAMETER), "seed") == "1"
    assert option(engine_command(r, Role.DECODE), "seed") == "2"
    assert option(engine_command(r, Role.DECODE), "max-num-seqs") == "8"


def test_our_options_come_last_so_that_no_abbreviation_overrides_them(resource: Make) -> None:
    arguments = engine_command(resource(engine={"args": {"tensor-parallel-siz": 8}}), Role.DECODE).arguments
    assert arguments.index("--tensor-parallel-siz=8") < arguments.index("--tensor-parallel-size=1")


def test_users_variables_win_over_our_defaults(resource: Make) -> None:
    r = resource(engine={"env": {"HF_HUB_OFFLINE": "0"}}, decode={"env": {"HF_HUB_OFFLINE": "2"}})
    assert environment(engine_command(r, Role.PARAMETER))["HF_HUB_OFFLINE"] == "0"
    assert environment(engine_command(r, Role.DECODE))["HF_HUB_OFFLINE"] == "2"
    names = [entry["name"] for entry in engine_command(r, Role.DECODE).environment]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("spec", "argument"),
    [
        ({"engine": {"gpuMemoryUtilization": 0.85}}, "--gpu-memory-utilization=0.85"),
        ({"engine": {"enableChunkedPrefill": True}}, "--enable-chunked-prefill"),
        ({"engine": {"enablePrefixCaching": False}}, "--no-enable-prefix-caching"),
        ({"engine": {"enforceEager": True}}, "--enforce-eager"),
        ({"engine": {"cpuOffload": "10Gi"}}, "--cpu-offload-gb=10.0"),
        ({"engine": {"kvCache": {"dtype": "fp8"}}}, "--kv-cache-dtype=fp8"),
        ({"engine": {"kvCache": {"blockSize": 128}}}, "--block-size=128"),
    ],
)
def test_typed_fields_become_options(resource: Make, spec: dict[str, Any], argument: str) -> None:
    for role in (Role.PARAMETER, Role.DECODE):
        assert argument in engine_command(resource(**spec), role).arguments


@pytest.mark.parametrize(
    ("model", "argument"),
    [
        ({"dtype": "bfloat16"}, "--dtype=bfloat16"),
        ({"quantization": "awq"}, "--quantization=awq"),
        ({"maxModelLength": 8192}, "--max-model-len=8192"),
        ({"tokenizer": "owner/name"}, "--tokenizer=owner/name"),
        ({"trustRemoteCode": True}, "--trust-remote-code"),
        ({"generationDefaults": {"temperature": 0.6}}, '--override-generation-config={"temperature":0.6}'),
        ({"chatTemplate": {"inline": "{{ messages }} $(HOME)"}}, "--chat-template={{ messages }} $$(HOME)"),
        (
            {"chatTemplate": {"configMap": {"name": "t", "key": "chat.jinja"}}},
            "--chat-template=/etc/pdinference/chat-template/chat.jinja",
        ),
        ({"lora": {"maxRank": 32}}, "--max-lora-rank=32"),
        ({"lora": {"adapters": [{"name": "sql", "path": "/adapters/sql"}]}}, '{"name":"sql","path":"/adapters/sql"}'),
    ],
)
def test_the_models_fields_become_options(resource: Make, model: dict[str, Any], argument: str) -> None:
    source = {"path": "/models/llama"}
    command = engine_command(resource(model={"source": source, **model}), Role.DECODE)
    assert argument in command.arguments


def test_what_is_not_set_is_left_to_vllm(resource: Make) -> None:
    arguments = " ".join(engine_command(resource(), Role.DECODE).arguments)
    for name in ("dtype", "quantization", "max-model-len", "gpu-memory", "lora", "chat-template", "seed"):
        assert name not in arguments


@pytest.mark.parametrize(("role", "tokens"), [(Role.PARAMETER, 8192), (Role.DECODE, 2048)])
def test_defaults_for_gpus_are_good_for_pd(resource: Make, role: Role, tokens: int) -> None:
    r = resource()
    assert {"--block-size=128", f"--max-num-batched-tokens={tokens}"} <= set(engine_command(r, role).arguments)
    assert effective_defaults(r.spec, role) == {"block-size": 128, "max-num-batched-tokens": tokens}


@pytest.mark.parametrize(
    ("spec", "tokens"),
    [
        ({}, 512),
        ({"engine": {"maxNumSeqs": 600}}, 600),
        ({"parameter": {"maxNumBatchedTokens": 4096}}, None),
        ({"parameter": {"accelerator": {"type": "CPU"}}}, 512),
    ],
)
def test_p_that_answers_computes_short_steps(resource: Make, spec: dict[str, Any], tokens: int | None) -> None:
    r = resource(router={"disaggregation": "Adaptive"}, **spec)
    assert effective_defaults(r.spec, Role.PARAMETER).get("max-num-batched-tokens") == tokens


def test_where_each_request_goes_its_own_way_both_roles_compute_short_steps_and_report_what_was_cached(
    resource: Make,
) -> None:
    r = resource(router={"disaggregation": "Adaptive"})
    for role in (Role.PARAMETER, Role.DECODE):
        assert effective_defaults(r.spec, role).items() >= {
            "max-num-batched-tokens": 512, "enable-prompt-tokens-details": True
        }.items()  # fmt: skip
        assert "--enable-prompt-tokens-details" in engine_command(r, role).arguments
    together = resource(router={"disaggregation": "Adaptive"}, mode="Aggregated")
    assert "enable-prompt-tokens-details" not in effective_defaults(together.spec, Role.DECODE)


@pytest.mark.parametrize(
    ("spec", "left"),
    [
        ({"engine": {"kvCache": {"blockSize": 64}}}, {"max-num-batched-tokens": 2048}),
        ({"engine": {"maxNumBatchedTokens": 4096}}, {"block-size": 128}),
        ({"decode": {"maxNumBatchedTokens": 4096}}, {"block-size": 128}),
        ({"decode": {"enableChunkedPrefill": False}}, {"block-size": 128}),
        ({"engine": {"maxNumSeqs": 4000}}, {"block-size": 128, "max-num-batched-tokens": 4000}),
        ({"decode": {"accelerator": {"type": "CPU"}}}, {"block-size": 128}),
        ({"parameter": {"accelerator": {"type": "CPU"}}, "decode": {"accelerator": {"type": "CPU"}}}, {}),
    ],
)
def test_defaults_give_way_to_what_is_set(resource: Make, spec: dict[str, Any], left: dict[str, int]) -> None:
    r = resource(**spec)
    assert effective_defaults(r.spec, Role.DECODE) == left
    flags = [a.split("=")[0] for a in engine_command(r, Role.DECODE).arguments]
    assert len(flags) == len(set(flags))


def test_the_log_level_and_dynamic_adapters_go_through_the_environment(resource: Make) -> None:
    model = {"source": {"path": "/models/llama"}, "lora": {"dynamicLoading": True}}
    r = resource(model=model, engine={"logLevel": "WARNING"}, decode={"logLevel": "DEBUG"})
    assert environment(engine_command(r, Role.PARAMETER))["VLLM_LOGGING_LEVEL"] == "WARNING"
    assert environment(engine_command(r, Role.DECODE))["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert environment(engine_command(r, Role.DECODE))["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"


def test_the_served_name_is_the_models_or_the_resources(resource: Make) -> None:
    source = {"path": "/models/llama"}
    assert option(engine_command(resource(), Role.DECODE), "served-model-name") == "llama"
    named = resource(model={"name": "meta/llama:8b", "source": source})
    assert option(engine_command(named, Role.DECODE), "served-model-name") == "meta/llama:8b"


@pytest.mark.parametrize(
    ("source", "model"),
    [
        ({"path": "/models/a"}, "/models/a"),
        ({"persistentVolumeClaim": {"claimName": "weights"}}, "/models"),
        ({"persistentVolumeClaim": {"claimName": "weights", "path": "llama/8b"}}, "/models/llama/8b"),
        ({"huggingFace": {"repository": "meta-llama/Llama-3.1-8B"}}, "meta-llama/Llama-3.1-8B"),
        ({"modelScope": {"repository": "Qwen/Qwen2.5-7B"}}, "Qwen/Qwen2.5-7B"),
        ({"image": {"reference": "registry.example/llama:8b", "path": "weights"}}, "/models/weights"),
        ({"hostPath": {"path": "/data/llama"}}, "/models"),
    ],
)
def test_the_model_comes_from_its_source(resource: Make, source: dict[str, Any], model: str) -> None:
    assert engine_command(resource(model={"source": source}), Role.DECODE).arguments[0] == model


def test_only_a_hub_model_may_ask_the_network(resource: Make) -> None:
    token = {"name": "hub", "key": "token"}
    hub = {"huggingFace": {"repository": "a/b", "revision": "abc", "tokenSecret": token}}
    local = environment(engine_command(resource(), Role.DECODE))
    remote = engine_command(resource(model={"source": hub}), Role.DECODE)
    assert local["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in environment(remote)
    assert environment(remote)["HF_TOKEN"] == {"secretKeyRef": token}
    assert option(remote, "revision") == option(remote, "tokenizer-revision") == "abc"


def test_vllm_finishes_its_requests_before_it_goes(resource: Make) -> None:
    assert option(engine_command(resource(rollout={"drainSeconds": 77}), Role.DECODE), "shutdown-timeout") == "77"


def test_cpu_keeps_the_kv_buffer_in_memory_and_looks_for_no_rdma(resource: Make) -> None:
    command = engine_command(resource(decode={"accelerator": {"type": "CPU"}}), Role.DECODE)
    assert transfer(command)["kv_buffer_device"] == "cpu"
    assert environment(command)["UCX_TLS"] == "tcp,self"


def test_cpu_uses_as_many_threads_as_it_asks_for_cores(resource: Make) -> None:
    asking = {"accelerator": {"type": "CPU"}, "resources": {"requests": {"cpu": 4}}}
    threads = environment(engine_command(resource(decode=asking), Role.DECODE))["OMP_NUM_THREADS"]
    assert threads == {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1"}}
    silent = environment(engine_command(resource(decode={"accelerator": {"type": "CPU"}}), Role.DECODE))
    assert "OMP_NUM_THREADS" not in silent


@pytest.mark.parametrize(
    ("spec", "method"),
    [
        ({}, "fork"),
        ({"decode": {"accelerator": {"type": "CPU"}}}, None),
        ({"decode": {"accelerator": {"resourceName": "amd.com/gpu"}}}, None),
        ({"decode": {"accelerator": {"resourceName": "nvidia.com/mig-3g.40gb"}}}, "fork"),
        ({"decode": {"accelerator": {"devices": {"deviceClassName": "gpu.nvidia.com"}}}}, "fork"),
        ({"decode": {"parallelism": {"tensor": 2}}}, None),
        ({"decode": {"parallelism": {"data": 2}}}, None),
        ({"engine": {"args": {"mm-tensor-ipc": "torch_shm"}}}, None),
        ({"decode": {"args": {"numa-bind": True}}}, None),
        ({"engine": {"env": {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}}}, "spawn"),
    ],
)
def test_the_process_of_an_engine_with_one_gpu_does_not_import_vllm_again(
    resource: Make, spec: dict[str, Any], method: str | None
) -> None:
    assert environment(engine_command(resource(**spec), Role.DECODE)).get("VLLM_WORKER_MULTIPROC_METHOD") == method


def test_gpu_leaves_the_choice_of_transport_to_ucx(resource: Make) -> None:
    command = engine_command(resource(), Role.DECODE)
    assert "kv_buffer_device" not in transfer(command)
    assert "UCX_TLS" not in environment(command)


class TestRDMA:
    """KV cache moves by RDMA or not at all."""

    def test_tcp_is_ruled_out_for_gpus_and_cpus(self, resource: Make) -> None:
        r = resource(transfer={"rdma": {"resourceName": "rdma/ib"}}, decode={"accelerator": {"type": "CPU"}})
        for role in (Role.PARAMETER, Role.DECODE):
            found = environment(engine_command(r, role))
            assert found["UCX_TLS"] == "^tcp"
            assert "UCX_NET_DEVICES" not in found

    def test_network_devices_are_the_users(self, resource: Make) -> None:
        rdma = {"resourceName": "rdma/ib", "netDevices": ["mlx5_0:1", "mlx5_1:1"]}
        found = environment(engine_command(resource(transfer={"rdma": rdma}), Role.DECODE))
        assert found["UCX_NET_DEVICES"] == "mlx5_0:1,mlx5_1:1"

    def test_users_variables_win(self, resource: Make) -> None:
        r = resource(transfer={"rdma": {"resourceName": "rdma/ib"}}, engine={"env": {"UCX_TLS": "rc,cuda_copy,tcp"}})
        assert environment(engine_command(r, Role.PARAMETER))["UCX_TLS"] == "rc,cuda_copy,tcp"

    def test_with_it_nothing_is_said_of_tcp(self, resource: Make) -> None:
        found = environment(engine_command(resource(transfer={"rdma": {"resourceName": "rdma/ib"}}), Role.DECODE))
        assert not [name for name in found if name.startswith("UCX_TCP_")]

    def test_without_it_ucx_chooses_the_way_for_itself_on_gpus(self, resource: Make) -> None:
        found = environment(engine_command(resource(), Role.DECODE))
        assert {n for n in found if n.startswith("UCX_")} == {"UCX_TCP_TX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE"}


@pytest.mark.parametrize("parameter", ["GPU", "CPU"])
@pytest.mark.parametrize("decode", ["GPU", "CPU"])
def test_neither_role_sends_more_at_once_by_tcp_than_the_other_takes(
    resource: Make, parameter: str, decode: str
) -> None:
    r = resource(**{role: {"accelerator": {"type": t}} for role, t in (("parameter", parameter), ("decode", decode))})
    found = [environment(engine_command(r, role)) for role in (Role.PARAMETER, Role.DECODE)]
    assert {role[f"UCX_TCP_{way}_SEG_SIZE"] for role in found for way in ("TX", "RX")} == {"512k"}
