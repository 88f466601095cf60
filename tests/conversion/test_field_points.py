"""Inputs of the field that were once lost, refused or wrongly explained. Each stands for a kind."""

import shlex
from typing import Any

import pytest
import yaml

from pdinference.api.names import Role
from pdinference.checks.examine import examine
from pdinference.conversion import (
    Conversion,
    ConversionError,
    Launch,
    convert,
    pair_of,
    starts_in_documents,
    starts_in_script,
    starts_in_words,
)
from pdinference.conversion.gpu_labels import _BY_LABEL, _INSTANCES
from pdinference.conversion.roles import pair_of as pair
from pdinference.manifests import RenderSettings
from pdinference.memory.gpus import gpu_memory


def of(launches: list[Launch]) -> Conversion:
    return convert(launches[0] if len(launches) == 1 else pair_of(launches))


def script(text: str) -> Conversion:
    return of(starts_in_script(text))


def pod(text: str, more: str = "", kind: str = "") -> Conversion:
    """A container, within a Deployment."""
    template = f"spec: {{template: {{spec: {{{more}containers: [{text}]}}}}}}"
    document = f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: x}}\n{template}"
    return of(starts_in_documents([*yaml.safe_load_all(document), *yaml.safe_load_all(kind)]))


def spec(conversion: Conversion) -> dict[str, Any]:
    found: dict[str, Any] = conversion.document["spec"]
    return found


def remarks(conversion: Conversion) -> dict[str, str]:
    return {remark.subject: remark.text for remark in conversion.remarks}


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ("-cc.mode=3 -cc.cudagraph_mode=FULL", {"mode": 3, "cudagraph_mode": "FULL"}),
        ("--compilation-config.pass_config.fuse_norm_quant true -cc.mode 3", {"mode": 3}),
        ("--compilation_config.mode 3 --compilation-config.sizes+ 1,2 --compilation-config.sizes+=4", None),
        ("-cc.a.b 1 -cc.a.c 2k", {"a": {"b": 1, "c": 2000}}),
    ],
)
def test_members_of_an_option_become_one_object(options: str, value: Any) -> None:
    found = spec(script(f"vllm serve a/b {options}"))["engine"]["args"]["compilation-config"]
    assert found == (value if value is not None else {"mode": 3, "sizes": ["1", "2", "4"]})


@pytest.mark.parametrize(
    "option",
    [
        "--limit-mm-per-prompt image=2",
        "--compilation-config 3",
        "--speculative-config ngram",
        "--allowed-origins *",
        "--kv-cache-memory-bytes much",
        "--max-num-queued-reqs 1.5",
    ],
)
def test_a_value_that_the_parser_refuses_is_named(option: str) -> None:
    conversion = script(f"vllm serve a/b {option.replace('*', chr(39) + '*' + chr(39))}")
    assert "vLLM 0.33.0 expects" in remarks(conversion)[option]
    assert "engine" not in spec(conversion)


def test_each_member_of_the_transfer_config_is_kept_or_named() -> None:
    config = (
        '{"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu", "kv_buffer_size": 1e9, '
        '"engine_id": "x", "kv_connector_extra_config": {"backends": ["UCX"], "num_threads": 4}}'
    )
    found = remarks(script(f"vllm serve a/b --kv-transfer-config '{config}'"))
    named = {subject.partition(": ")[0] for subject in found if subject.startswith("--kv-transfer-config")}
    extra = "NixlConnector.kv_connector_extra_config"
    members = {"kv_buffer_device", "kv_buffer_size", "engine_id", f"{extra}.backends", f"{extra}.num_threads"}
    assert named == {f"--kv-transfer-config {member}" for member in members}


def test_the_tier_of_several_connectors_is_kept_and_inner_roles_tell_p_from_d() -> None:
    several = (
        'vllm serve a/b -dp 2 --kv-transfer-config \'{"kv_connector": "MultiConnector", "kv_role": "kv_both", '
        '"kv_connector_extra_config": {"connectors": [{"kv_connector": "NixlConnector", "kv_role": "%s"}, '
        '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": '
        '{"cpu_bytes_to_use": 107374182400}}]}}\'\n'
    )
    conversion = script(several % "kv_consumer" + several % "kv_producer" + "")
    assert spec(conversion)["parameter"]["kvTiers"] == {"cpu": {"size": "200Gi"}}
    assert not [subject for subject in remarks(conversion) if "Offloading" in subject]
    launches = pair(starts_in_script(several % "kv_consumer" + several % "kv_producer"))
    assert isinstance(launches, dict)
    assert "kv_consumer" in str(launches[Role.DECODE].arguments)


def test_a_secret_is_judged_by_whole_words_and_by_its_value() -> None:
    secrets = "MY_TOKEN=s3cretvalue X=sk-abcdefghijklmnopq"
    conversion = script(f"TOKENIZERS_PARALLELISM=false MAX_TOKENS=256 NUM_SECRET=3 {secrets} vllm serve a/b")
    assert spec(conversion)["engine"]["env"] == {
        "TOKENIZERS_PARALLELISM": "false",
        "MAX_TOKENS": "256",
        "NUM_SECRET": "3",
    }
    assert {"MY_TOKEN", "X"} <= remarks(conversion).keys()
    assert "s3cret" not in repr(conversion)
    assert "sk-abc" not in repr(conversion)


@pytest.mark.parametrize(
    ("option", "warned"),
    [("--disable-access-log-for-endpoints=/health,/metrics", False), ("--tool-parser-plugin=/x/p.py", True)],
)
def test_only_files_are_called_files(option: str, warned: bool) -> None:
    assert any("need this file" in text for text in remarks(script(f"vllm serve a/b {option}")).values()) is warned


def test_many_data_parallel_ranks_name_data_and_what_is_possible() -> None:
    line = "vllm serve a/b --tensor-parallel-size 1 --data-parallel-size 16"
    text = remarks(script(line))["decode.parallelism.data"]
    assert "only with expert: true" in text
    assert "set data: 8 and raise replicas (to 2" in text
    found = remarks(script(f"{line} --enable-expert-parallel"))
    for letter, role in (("P", "parameter"), ("D", "decode")):
        assert f"{letter} gets 2 pods on nodes of their own" in found[f"{role}.parallelism.nodes"]
        assert f"{role}.parallelism.data" not in found


_MOONCAKE = '--kv-transfer-config {"kv_connector":"MooncakeConnector","kv_role":"kv_both"}'


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--data-parallel-size 64 --data-parallel-size-local 1 --enable-expert-parallel", "may have 16 at most"),
        ("--data-parallel-size 2 --data-parallel-size-local 1", "only with expert: true"),
        (
            f"--data-parallel-size 16 --data-parallel-size-local 8 --enable-expert-parallel {_MOONCAKE}",
            "With transfer.connector Mooncake",
        ),
    ],
)
def test_nodes_that_cannot_be_are_left_out_and_it_says_so(options: str, said: str) -> None:
    *plain, last = options.split(" ")
    found = script(f"vllm serve a/b {' '.join(plain)} {shlex.quote(last)}")
    for role in ("parameter", "decode"):
        assert any(one.subject == f"{role}.parallelism.nodes" and said in one.text for one in found.remarks)
    problems = examine(found.document | {"metadata": {"name": "x", "namespace": "ns"}}, RenderSettings()).problems
    assert not [one for one in problems if "parallelism" in one.field]


def test_ranks_of_p_get_nodes_with_expert_parallelism_alone() -> None:
    line = "vllm serve a/b --tensor-parallel-size 2 --data-parallel-size 12"
    assert spec(script(f"{line} --enable-expert-parallel"))["parameter"]["parallelism"] == {
        "tensor": 2,
        "data": 12,
        "nodes": 3,
        "expert": True,
    }
    without = script(line)
    assert "nodes" not in spec(without)["parameter"]["parallelism"]
    assert "only with expert: true" in remarks(without)["parameter.parallelism.data"]


@pytest.mark.parametrize(
    ("options", "nodes", "said"),
    [
        ("--tensor-parallel-size 4 --data-parallel-size 64", None, "on several nodes"),
        ("--data-parallel-size 8 --nnodes 3", None, "which 3 does not divide"),
        ("--data-parallel-size 16 --nnodes 4", 4, None),
    ],
)
def test_the_nodes_of_ranks_are_those_that_the_line_means(options: str, nodes: int | None, said: str | None) -> None:
    conversion = script(f"vllm serve a/b {options} --enable-expert-parallel")
    assert spec(conversion)["parameter"]["parallelism"].get("nodes") == nodes
    assert said is None or any(said in text for text in remarks(conversion).values())
    assert not [one for one in examine(conversion.document, RenderSettings()).problems if "parallelism" in one.field]


@pytest.mark.parametrize(
    ("options", "backend"),
    [
        ("--enable-expert-parallel --all2all-backend deepep_v2", {"expertTransport": "deepep_v2"}),
        ("--enable-expert-parallel --all2all-backend moonep", {"args": {"all2all-backend": "moonep"}}),
        ("--all2all-backend deepep_v2", {}),
    ],
)
def test_a_way_to_the_experts_is_the_field_where_it_has_an_effect(options: str, backend: dict[str, object]) -> None:
    conversion = script(f"vllm serve a/b --data-parallel-size 4 {options}")
    assert spec(conversion).get("engine", {}) == backend
    said = any("no effect without --enable-expert-parallel" in text for text in remarks(conversion).values())
    assert said is (not backend)
    assert not [one for one in examine(conversion.document, RenderSettings()).problems if "ransport" in one.field]


@pytest.mark.parametrize("variable", ["$(KEY)", "$KEY"])
def test_a_key_from_a_secret_becomes_the_keys_of_the_router(variable: str) -> None:
    env = "env: [{name: KEY, valueFrom: {secretKeyRef: {name: keys, key: a}}}]"
    command = f"command: [sh, -c, 'vllm serve a/b --api-key {variable}']"
    conversion = pod(f"{{name: v, {command}, {env}}}")
    assert spec(conversion)["router"] == {"apiKeys": {"secretName": "keys"}}
    assert "Write its value" not in str(conversion)


def test_a_variable_of_vllm_from_a_secret_becomes_the_keys_of_the_router() -> None:
    env = "env: [{name: VLLM_API_KEY, valueFrom: {secretKeyRef: {name: keys, key: a}}}]"
    conversion = pod(f"{{name: v, image: vllm/vllm-openai, args: [a/b], {env}}}")
    assert spec(conversion)["router"] == {"apiKeys": {"secretName": "keys"}}


@pytest.mark.parametrize(
    "text",
    [
        'ARGS=(--max-model-len 8192 --enforce-eager); vllm serve a/b "${ARGS[@]}"',
        "TP=2; L=$((TP*4096))\nvllm serve a/b --max-model-len $L --enforce-eager",
        "x=$(date $(cat a))\nvllm serve a/b --max-model-len ${L:-8192} --enforce-eager",
        "bash -c -i 'vllm serve a/b --max-model-len 8k --enforce-eager --max-model-len 8192'",
        'eval "vllm serve a/b --max-model-len 8192 --enforce-eager"',
        "tmux new-session -d -s x 'vllm serve a/b --max-model-len 8192 --enforce-eager'",
        "cat > run.sh <<'EOF'\nvllm serve a/b --max-model-len 8192 --enforce-eager\nEOF\nbash run.sh",
        "echo vllm serve c/d; pkill -f 'vllm serve'; vllm serve a/b --max-model-len 8192 --enforce-eager",
    ],
)
def test_what_a_script_says_is_used(text: str) -> None:
    conversion = script(text)
    assert spec(conversion)["model"]["maxModelLength"] == 8192
    assert spec(conversion)["engine"] == {"enforceEager": True}


@pytest.mark.parametrize("words", [["serve", "a/b"], ["vllm", "serve", "a/b"]])
def test_the_entry_point_of_the_image_is_said(words: list[str]) -> None:
    conversion = of(starts_in_words(["docker", "run", "vllm/vllm-openai:v0.33.0", *words, "--seed", "1"]))
    assert spec(conversion)["model"]["name"] == "a/b"
    assert "entry point" in remarks(conversion)[" ".join(words[:-1])]


def test_a_command_of_one_text_is_read() -> None:
    conversion = pod("{name: v, image: x, command: ['vllm serve a/b --seed 1']}")
    assert spec(conversion)["engine"]["seed"] == 1
    assert "read as words" in remarks(conversion)["vllm serve a/b --seed 1"]


@pytest.mark.parametrize(
    ("image", "command", "engine"),
    [
        ("lmsysorg/sglang:v0.5", "[python3, -m, sglang.launch_server, --model-path, a/b]", "SGLang"),
        ("ghcr.io/llm-d/llm-d-inference-sim:v0.7", "", "simulator"),
        ("x", "[trtllm-serve, a/b]", "TensorRT-LLM"),
    ],
)
def test_another_engine_is_named(image: str, command: str, engine: str) -> None:
    with pytest.raises(ConversionError, match=engine):
        pod(f"{{name: v, image: '{image}', {f'command: {command},' if command else ''} args: [--model, a/b]}}")


@pytest.mark.parametrize(
    ("model", "source"),
    [
        ("unsloth/Qwen3-0.6B-GGUF:Q4_K_M", {"huggingFace": {"repository": "unsloth/Qwen3-0.6B-GGUF"}}),
        ("/models/x.gguf", {"path": "/models/x.gguf"}),
    ],
)
def test_gguf_is_explained(model: str, source: dict[str, Any]) -> None:
    conversion = script(f"vllm serve {model}")
    assert spec(conversion)["model"]["source"] == source
    assert "vllm-gguf-plugin" in remarks(conversion)[f"model {model}"]


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ('--rope-scaling \'{"type": "yarn", "factor": 4.0}\'', {"rope_type": "yarn", "factor": 4.0}),
        ("--rope-theta 1000000", {"rope_theta": 1000000, "rope_type": "default"}),
        (
            '--hf-overrides \'{"x": 1}\' --rope-theta 1e6 --rope-scaling \'{"rope_type": "yarn"}\'',
            {"rope_type": "yarn", "rope_theta": 1e6},
        ),
    ],
)
def test_former_options_for_rope_become_overrides(options: str, parameters: dict[str, Any]) -> None:
    conversion = script(f"VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve a/b {options}")
    overrides = spec(conversion)["engine"]["args"]["hf-overrides"]
    assert overrides["rope_parameters"] == parameters
    complete = {"rope_theta", "rope_type"} <= parameters.keys() and parameters["rope_type"] != "default"
    said = any("rope_parameters of the model's config as a whole" in text for text in remarks(conversion).values())
    assert said is not complete


def test_a_label_of_a_cloud_is_a_product() -> None:
    selector = "nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4, zone: a}, "
    decode = spec(pod("{name: v, image: vllm/vllm-openai, args: [a/b]}", selector))["decode"]
    assert decode["accelerator"] == {
        "products": ["nvidia-l4"],
        "productLabel": "cloud.google.com/gke-accelerator",
        "memory": "22558Mi",
    }
    assert decode["placement"] == {"nodeSelector": {"zone": "a"}}


def test_an_ambiguous_label_is_a_product_without_a_size() -> None:
    selector = "nodeSelector: {karpenter.k8s.aws/instance-gpu-name: a100}, "
    conversion = pod("{name: v, image: vllm/vllm-openai, args: [a/b]}", selector)
    assert "memory" not in spec(conversion)["decode"]["accelerator"]
    assert "accelerator.memory" in remarks(conversion)["karpenter.k8s.aws/instance-gpu-name: a100"]


def test_the_memory_of_each_product_of_a_cloud_is_known() -> None:
    products = {*_INSTANCES.values(), *(product for values in _BY_LABEL.values() for product in values.values())} - {""}
    assert [product for product in products if not gpu_memory(product).known] == []


def test_starts_that_differ_by_port_and_devices_are_replicas() -> None:
    line = "CUDA_VISIBLE_DEVICES={0} vllm serve a/b --port 800{0} &\n"
    conversion = script(line.format(0) + line.format(1))
    assert spec(conversion)["decode"] == {"replicas": 2}


def test_several_models_are_listed() -> None:
    with pytest.raises(ConversionError, match=r"\(a/b\); .*\(c/d\)"):
        script("vllm serve a/b &\nvllm serve c/d &\n")


def test_a_variable_from_another_object_of_the_file_is_used() -> None:
    maps = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {MODEL: a/b, LEN: '4096'}"
    ref = "env: [{name: L, valueFrom: {configMapKeyRef: {name: m, key: LEN}}}], envFrom: [{configMapRef: {name: m}}]"
    conversion = pod(f"{{name: v, command: [vllm, serve, $(MODEL), --max-model-len, $(L)], {ref}}}", kind=maps)
    assert spec(conversion)["model"]["name"] == "a/b"
    assert spec(conversion)["model"]["maxModelLength"] == 4096


def test_a_secret_in_envfrom_is_named() -> None:
    conversion = pod("{name: v, command: [vllm, serve, a/b], envFrom: [{secretRef: {name: hf}}]}")
    assert "tokenSecret" in remarks(conversion)["envFrom Secret hf"]


@pytest.mark.parametrize("value", [None, 7, "text", [], [[1]], {"a": {"b": 1}}, [{"name": {"x": 1}}]])
@pytest.mark.parametrize(
    "document",
    [
        {"servingEngineSpec": {"modelSpec": [{"modelURL": "a/b", "vllmConfig": {}, "env": []}]}},
        {"modelArtifacts": {"uri": "hf://a/b"}, "decode": {"containers": [{"args": []}], "parallelism": {}}},
        {"apiVersion": "x", "kind": "LLMInferenceService", "spec": {"model": {"uri": "hf://a/b"}, "prefill": {}}},
        {
            "apiVersion": "x",
            "kind": "Any",
            "spec": {"size": 2, "workerTemplate": {"containers": [{"args": ["--model=a/b"]}]}},
        },
    ],
)
def test_values_of_another_shape_are_no_crash(document: dict[str, Any], value: Any) -> None:
    def variants(node: Any) -> list[Any]:
        if isinstance(node, dict):
            keys = list(node)
            inner = [{**node, key: each} for key in keys for each in variants(node[key])]
            return [*({**node, key: value} for key in keys), *inner]
        return [[each, *node[1:]] for each in variants(node[0])] if isinstance(node, list) and node else []

    for variant in variants(document):
        try:
            of(starts_in_documents([variant]))
        except ConversionError:
            continue
