"""Realistic command lines, and the resources that they are converted to."""

from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.validation import validated
from pdinference.conversion import Conversion, ConversionError, convert, pair_of, starts_in_script
from pdinference.engine.vllm import engine_command

BAICHUAN = """
export VLLM_USE_MODELSCOPE=True
CUDA_VISIBLE_DEVICES=0 python -m vllm.entrypoints.openai.api_server --model baichuan-inc/baichuan-7B-Chat \\
  --revision v1.0.2 --served-model-name baichuan-7b --trust-remote-code --tokenizer-mode slow \\
  --chat-template /templates/baichuan.jinja --dtype half --max-model-len 4096 --gpu-memory-utilization 0.9 \\
  --host 0.0.0.0 --port 8018 --enable-lora --lora-modules law=/loras/law --disable-log-requests --swap-space 4
"""
LLAMA = """
CUDA_VISIBLE_DEVICES={devices} vllm serve meta-llama/Llama-2-70b-hf --port {port} --tensor-parallel-size 2 \\
  --gpu-memory-utilization {share} --enable-chunked-prefill --enforce-eager --kv-cache-dtype fp8 \\
  --max-num-batched-tokens 4096 --kv-transfer-config '{{"kv_connector": "NixlConnector", "kv_role": "{role}"}}' &
"""
P = LLAMA.format(devices="0,1", port=8100, share=0.85, role="kv_producer")
D = LLAMA.format(devices="2,3", port=8200, share=0.9, role="kv_consumer")


def converted(text: str) -> Conversion:
    launches = starts_in_script(text)
    return convert(launches[0] if len(launches) == 1 else pair_of(launches))


def left_out(conversion: Conversion) -> list[str]:
    return [remark.subject for remark in conversion.remarks if remark.left_out]


def about(conversion: Conversion, subject: str) -> str:
    (text,) = {remark.text for remark in conversion.remarks if remark.subject.startswith(subject)}
    return text


def spec_of(text: str) -> dict[str, Any]:
    spec: dict[str, Any] = converted(text).document["spec"]
    return spec


def test_the_note_on_baichuan_becomes_a_resource() -> None:
    conversion = converted(BAICHUAN)
    assert conversion.document["metadata"] == {"name": "baichuan-7b-chat"}
    assert conversion.document["spec"] == {
        "model": {
            "source": {"modelScope": {"repository": "baichuan-inc/baichuan-7B-Chat", "revision": "v1.0.2"}},
            "name": "baichuan-7b",
            "trustRemoteCode": True,
            "chatTemplate": {"configMap": {"name": "chat-template", "key": "baichuan.jinja"}},
            "dtype": "half",
            "maxModelLength": 4096,
            "lora": {"adapters": [{"name": "law", "path": "/loras/law"}]},
        },
        "engine": {"gpuMemoryUtilization": 0.9, "args": {"enable-log-requests": False}},
        "router": {"service": {"port": 8018}},
    }
    validated(conversion.document)
    assert left_out(conversion) == [
        "--swap-space 4",
        "--tokenizer-mode slow",
        "--host 0.0.0.0",
        "CUDA_VISIBLE_DEVICES=0",
    ]
    assert "1 GPU" in about(conversion, "P and D")
    assert "--from-file=baichuan.jinja=/templates/baichuan.jinja" in about(conversion, "--chat-template")


def test_the_four_gpu_note_becomes_p_and_d() -> None:
    conversion = converted(P + D)
    assert conversion.document["spec"] == {
        "model": {
            "source": {"huggingFace": {"repository": "meta-llama/Llama-2-70b-hf"}},
            "name": "meta-llama/Llama-2-70b-hf",
        },
        "engine": {
            "enableChunkedPrefill": True,
            "enforceEager": True,
            "kvCache": {"dtype": "fp8"},
            "maxNumBatchedTokens": 4096,
        },
        "parameter": {"parallelism": {"tensor": 2}, "gpuMemoryUtilization": 0.85},
        "decode": {"parallelism": {"tensor": 2}, "gpuMemoryUtilization": 0.9},
    }
    resource = validated(conversion.document)
    assert "--gpu-memory-utilization=0.85" in engine_command(resource, Role.PARAMETER).arguments
    assert "--gpu-memory-utilization=0.9" in engine_command(resource, Role.DECODE).arguments
    assert "accelerator.devices" in about(conversion, "CUDA_VISIBLE_DEVICES=2,3")
    assert "8100, 8200" in " ".join(left_out(conversion))


def test_d_before_p_is_told_apart_by_its_role() -> None:
    assert converted(D + P).document == converted(P + D).document


@pytest.mark.parametrize(
    "text", [P + P, P + D + D.replace("0.9", "0.8"), P + BAICHUAN], ids=["two Ps", "three", "one without a role"]
)
def test_several_starts_that_are_no_pair_are_refused(text: str) -> None:
    with pytest.raises(ConversionError, match="--parameter FILE --decode FILE"):
        converted(text)


def test_p_and_d_need_the_same_model() -> None:
    with pytest.raises(ConversionError, match="P serves 'meta-llama/Llama-2-70b-hf' and D 'a/b'"):
        converted(P + D.replace("meta-llama/Llama-2-70b-hf", "a/b"))


def test_what_p_and_d_share_is_taken_from_p_where_they_differ() -> None:
    conversion = converted(P + D.replace("--kv-cache-dtype fp8", "--kv-cache-dtype auto --dtype half"))
    assert conversion.document["spec"]["engine"]["kvCache"] == {"dtype": "fp8"}
    assert conversion.document["spec"]["model"]["dtype"] == "half"
    assert "P has 'fp8' and D 'auto'" in about(conversion, "engine.kvCache.dtype")
    assert "P has nothing and D 'half'" in about(conversion, "model.dtype")


def test_one_command_line_gives_both_roles_its_gpus_and_says_so() -> None:
    conversion = converted("vllm serve a/b -tp 2")
    spec = conversion.document["spec"]
    assert spec["parameter"] == spec["decode"] == {"parallelism": {"tensor": 2}}
    assert "2 GPUs and D on 2 GPUs, so 4 in all" in about(conversion, "P and D")
    assert "each of the two needs all weights" in about(conversion, "P and D")


@pytest.mark.parametrize(
    ("start", "family"),
    [
        ("vllm serve baichuan-inc/Baichuan2-7B-Chat", "baichuan"),
        ("vllm serve /models/internlm-chat-7b", "internlm"),
        ("docker run vllm/vllm-openai:v0.6.3 --model Qwen/Qwen-7B-Chat", "qwen"),
    ],
)
def test_a_name_of_a_family_without_a_class_gets_a_remark(start: str, family: str) -> None:
    text = about(converted(start), "model class")
    assert text.startswith(f"The name suggests model_type {family}. vLLM no longer has a class")
    assert "docs/older-models.md" in text


@pytest.mark.parametrize(
    "start",
    [
        "vllm serve Qwen/Qwen2.5-7B",
        "vllm serve internlm/internlm2-7b",
        "docker run me/vllm-openai:1 --model b/baichuan-7B",
    ],
)
def test_other_names_and_own_images_get_no_such_remark(start: str) -> None:
    assert "model class" not in {remark.subject for remark in converted(start).remarks}


@pytest.mark.parametrize(
    ("options", "hint"), [("--dtype fp16", "float16"), ("--dtype bf16", "bfloat16"), ("--dtype flaot16", "float16")]
)
def test_a_value_that_nearly_fits_gets_a_hint(options: str, hint: str) -> None:
    assert about(converted(f"vllm serve a/b {options}"), "--dtype").endswith(f"Did you mean {hint}?")


def test_d_gets_ranks_in_place_of_pipeline_stages() -> None:
    conversion = converted("VLLM_PP_LAYER_PARTITION=20,12 vllm serve a/b -pp 2 -tp 2 --nnodes 2")
    spec = conversion.document["spec"]
    stages = {"pipeline": 2, "tensor": 2, "nodes": 2, "layerPartition": [20, 12]}
    assert spec["parameter"]["parallelism"] == stages
    assert spec["decode"]["parallelism"] == {"tensor": 4}
    assert "tensor: 4" in about(conversion, "decode.parallelism")
    validated(conversion.document)


def test_more_gpus_than_a_host_has_are_spread_over_nodes() -> None:
    conversion = converted("vllm serve a/b -tp 8 -pp 2 --distributed-executor-backend ray")
    spec = conversion.document["spec"]
    assert spec["parameter"]["parallelism"] == {"tensor": 8, "pipeline": 2, "nodes": 2}
    assert "2 pods on nodes of their own" in about(conversion, "parameter.parallelism.nodes")
    assert "16 GPUs of one node" in about(conversion, "decode.parallelism.tensor")
    assert "without Ray" in about(conversion, "--distributed-executor-backend")
    validated(conversion.document)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("", "names no model"),
        ("--model $MODEL", "a shell would replace"),
        ("$MODEL", "a shell would replace"),
        ("--model ./models/llama", "absolute path"),
        ("gpt2", "OWNER/NAME"),
        ("'/models/my llama'", "Rename it"),
    ],
)
def test_without_a_usable_model_there_is_no_resource(model: str, words: str) -> None:
    with pytest.raises(ConversionError, match=words):
        converted(f"python -m vllm.entrypoints.openai.api_server {model} --dtype half")


def test_a_bucket_is_a_source_with_what_the_variables_say() -> None:
    env = "AWS_ENDPOINT_URL=https://minio.example:9000 AWS_DEFAULT_REGION=eu-west-1 AWS_SECRET_ACCESS_KEY=x"
    env += " AWS_SESSION_TOKEN=y AWS_CA_BUNDLE=/ca.pem"
    conversion = converted(f"{env} vllm serve s3://models/llama --load-format runai_streamer")
    assert conversion.document["spec"]["model"] == {
        "name": "s3://models/llama",
        "source": {
            "bucket": {
                "uri": "s3://models/llama",
                "endpoint": "https://minio.example:9000",
                "region": "eu-west-1",
                "secretName": "bucket",
            }
        },
        "load": {"format": "runai_streamer"},
    }
    assert "--from-file=AWS_ACCESS_KEY_ID=FILE" in about(conversion, "model.source.bucket.secretName")
    assert conversion.document["spec"]["engine"]["env"] == {"AWS_CA_BUNDLE": "/ca.pem"}
    assert "without a session token" in about(conversion, "AWS_SESSION_TOKEN")
    validated(conversion.document)


def test_a_loader_with_options_of_its_own_stays_an_option() -> None:
    spec = spec_of("vllm serve /m --load-format tensorizer")
    assert spec["engine"]["args"] == {"load-format": "tensorizer"}


def test_a_folder_becomes_a_path_and_says_what_else_it_could_be() -> None:
    conversion = converted("vllm serve /data/llama")
    assert conversion.document["spec"]["model"] == {"source": {"path": "/data/llama"}}
    assert "hostPath: {path: /data/llama}" in about(conversion, "model.source.path")
    assert "'/data/llama'" in about(conversion, "model name")


@pytest.mark.parametrize(
    ("option", "path", "value"),
    [
        ("--dtype float16", "model.dtype", "float16"),
        ("-q gptq", "model.quantization", "gptq"),
        ("--quantization=bitsandbytes", "model.quantization", "bitsandbytes"),
        ("--max_model_len 32K", "model.maxModelLength", 32768),
        ("--max-model-len 25.6k", "model.maxModelLength", 25600),
        ("--cpu-offload-gb 2.5", "engine.cpuOffload", "2.5Gi"),
        ("--no-enable-prefix-caching", "engine.enablePrefixCaching", False),
        ("--device-memory-utilization 0.5", "engine.gpuMemoryUtilization", 0.5),
        ("--gpu-memory-util 0.5", "engine.gpuMemoryUtilization", 0.5),
        ("-O3", "engine.args", {"optimization-level": "3"}),
        ("--max-logprobs 5 --max-logprobs 7", "engine.args", {"max-logprobs": 7}),
        ("--hf-overrides '{\"a\": [1]}'", "engine.args", {"hf-overrides": {"a": [1]}}),
        ("--override-generation-config '{\"top_k\": 3}'", "model.generationDefaults", {"top_k": 3}),
        ("--no-enforce-eager --seed -1", "engine.seed", -1),
    ],
)
def test_an_option_is_read_as_vllm_reads_it(option: str, path: str, value: Any) -> None:
    found: Any = spec_of(f"vllm serve a/b {option}")
    for part in path.split("."):
        found = found[part]
    assert found == value


@pytest.mark.parametrize(
    ("text", "subject", "words"),
    [
        ("vllm serve a/b --max-model-len auto", "--max-model-len auto", "vLLM chooses"),
        ("vllm serve a/b --max-model-len 2.5K", "--max-model-len 2.5K", "not an integer"),
        ("vllm serve a/b --quantization gguf", "--quantization gguf", "The field takes awq"),
        ("vllm serve a/b --block-size 17", "--block-size 17", "The field takes 1, 8"),
        ("vllm serve a/b --worker-use-ray", "--worker-use-ray", "without Ray"),
        ("vllm serve a/b --tensor-paralel-size 2", "--tensor-paralel-size 2", "Did you mean --tensor-parallel-size?"),
        ("vllm serve a/b --lora-modules x=/y", "--lora-modules x=/y", "without --enable-lora"),
        ("vllm serve a/b --max-model-len $LEN", "--max-model-len $LEN", "Write its value"),
        ('vllm serve a/b "${ARGS[@]}"', "${ARGS[@]}", "outside of this file"),
        ("vllm serve a/b c", "c", "neither an option"),
        ("vllm serve a/b --served-model-name x y z", "--served-model-name y z", "one name: x"),
        ("vllm serve a/b --config vllm.yaml", "--config vllm.yaml", "not read here"),
        ("vllm serve a/b --disable-log-stats", "--disable-log-stats", "no metrics"),
        ("numactl -N 0 vllm serve a/b", "numactl -N 0", "starts vLLM directly"),
        ("VLLM_USE_V1=0 vllm serve a/b", "VLLM_USE_V1=0", "no longer has this variable"),
        ("CUDA_VISIBLE_DEVICES=0,1,3 vllm serve a/b", "CUDA_VISIBLE_DEVICES=0,1,3", "3 devices of one machine"),
        ("HF_HOME=/x vllm serve a/b", "HF_HOME=/x", "spec.model.cache"),
        ("OMP_NUM_THREADS=$N vllm serve a/b", "OMP_NUM_THREADS=$N", "Write its value"),
    ],
)
def test_what_is_left_out_has_a_reason(text: str, subject: str, words: str) -> None:
    conversion = converted(text)
    assert subject in left_out(conversion)
    assert words in about(conversion, subject)
    validated(conversion.document)


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve a/b --api-key hunter2",
        "vllm serve a/b --api-key=hunter2",
        "vllm serve a/b --hf-token hunter2",
        "HF_TOKEN=hunter2 vllm serve a/b",
        "VLLM_API_KEY=hunter2 vllm serve a/b",
        "AWS_SECRET_ACCESS_KEY=hunter2 vllm serve a/b",
    ],
)
def test_a_secret_is_never_repeated(text: str) -> None:
    conversion = converted(text)
    assert "hunter2" not in repr(conversion)
    assert left_out(conversion)


def test_a_token_becomes_a_reference_to_a_secret() -> None:
    conversion = converted("HF_TOKEN=hunter2 vllm serve a/b")
    source = conversion.document["spec"]["model"]["source"]["huggingFace"]
    assert source["tokenSecret"] == {"name": "hugging-face", "key": "token"}
    assert "kubectl create secret generic hugging-face" in about(conversion, "HF_TOKEN")


def test_connectors_and_failure_policies_are_kept() -> None:
    config = '{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both", "kv_load_failure_policy": "fail"}'
    spec = spec_of(f"LMCACHE_REMOTE_URL=lm://cache:65432 vllm serve a/b --kv-transfer-config '{config}'")
    assert spec["transfer"] == {
        "lmCache": {"remoteUrl": "lm://cache:65432"},
        "connector": "LMCache",
        "onFailure": "Fail",
    }
    assert "transfer" not in spec_of('vllm serve a/b --kv-transfer-config \'{"kv_connector": "P2pNcclConnector"}\'')


def test_the_old_server_without_openai_api_has_a_remark() -> None:
    conversion = converted("python -m vllm.entrypoints.api_server --model a/b")
    assert "/v1/completions" in about(conversion, "vllm.entrypoints.api_server")


def test_offline_work_is_pointed_to_a_batch() -> None:
    with pytest.raises(ConversionError, match="PDBatch"):
        converted("vllm run-batch -i in.jsonl -o out.jsonl --model a/b")
