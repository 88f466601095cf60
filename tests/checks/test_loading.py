"""Loaders and buckets: what vLLM and the Job get, and what is refused."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.checks import examine
from pdinference.engine.model_cache import cached_path, fetch_command, inspect_command
from pdinference.engine.vllm import engine_command
from pdinference.manifests import RenderSettings
from tests.conftest import allowing
from tests.engine.commands import environment, option

Json = dict[str, Any]
Make = Callable[..., Json]
BUCKET: Json = {"uri": "s3://models/team/llama", "endpoint": "https://minio.example:9000", "secretName": "key"}
CLAIM: Json = {"persistentVolumeClaim": {"claimName": "models"}}
NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
GPUS: Json = {"accelerator": {"products": ["NVIDIA-H200"]}}


def streaming(document: Make, bucket: Json | None = None, load: Json | None = None, **spec: Any) -> Json:
    model = {"source": {"bucket": BUCKET if bucket is None else bucket}, **({"load": load} if load else {})}
    return document(**{"model": model, "parameter": GPUS, "decode": GPUS, **spec})


def problems(made: Json, settings: RenderSettings | None = None) -> dict[str, str]:
    return {one.field: one.message for one in examine(made, settings or RenderSettings()).problems}


def test_p_and_d_stream_from_a_bucket_with_the_key_of_a_secret(document: Make) -> None:
    made = streaming(document, load={"concurrency": 16, "memoryLimit": "8Gi"})
    assert problems(made) == {}
    for role in (Role.PARAMETER, Role.DECODE):
        command = engine_command(PDInference.model_validate(made), role)
        variables = environment(command)
        assert command.arguments[0] == "s3://models/team/llama"
        assert option(command, "load-format") == "runai_streamer"
        extra = json.loads(option(command, "model-loader-extra-config") or "")
        assert extra == {"concurrency": 16, "memory_limit": 8 * 2**30}
        assert all(variables[name] == {"secretKeyRef": {"name": "key", "key": name}} for name in NAMES)
        assert variables["AWS_ENDPOINT_URL"] == "https://minio.example:9000"
        assert variables["AWS_EC2_METADATA_DISABLED"] == "true", "the node's own rights are not used"
        assert variables["HF_HUB_OFFLINE"] == "1"
        assert "RUNAI_STREAMER_S3_UNSIGNED" not in variables


def test_a_public_bucket_of_aws_needs_neither_secret_nor_endpoint(document: Make) -> None:
    made = streaming(document, {"uri": "s3://models", "region": "eu-central-1"})
    variables = environment(engine_command(PDInference.model_validate(made), Role.DECODE))
    assert variables["RUNAI_STREAMER_S3_UNSIGNED"] == "1"
    assert variables["AWS_DEFAULT_REGION"] == "eu-central-1"
    assert not {*NAMES, "AWS_ENDPOINT_URL", "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING"} & variables.keys()


def test_with_a_cache_only_the_job_has_the_key(document: Make) -> None:
    made = document(model={"source": {"bucket": BUCKET}, "cache": CLAIM})
    assert problems(made) == {}
    resource = PDInference.model_validate(made)
    folder = cached_path(resource.spec.model)
    assert folder is not None
    assert folder.startswith("/models/bucket/llama-")
    command = engine_command(resource, Role.DECODE)
    assert command.arguments[0] == folder
    assert not any(name.startswith(("AWS_", "RUNAI_")) for name in environment(command))
    job = fetch_command(resource, job="models/llama-model-x")
    assert {"--hub=bucket", "--repository=s3://models/team/llama", "--region=us-east-1"} <= set(job.arguments)
    assert f"--endpoint={BUCKET['endpoint']}" in job.arguments
    assert environment(job)[NAMES[1]] == {"secretKeyRef": {"name": "key", "key": NAMES[1]}}


def test_a_job_inspects_a_bucket_from_which_pods_stream(document: Make) -> None:
    job = inspect_command(PDInference.model_validate(streaming(document)), "/models")
    assert "--hub=bucket" in job.arguments
    assert not any(argument.startswith("--folder") for argument in job.arguments)


@pytest.mark.parametrize(
    "other",
    [
        {"uri": "s3://models/other/llama"},
        {"endpoint": "https://other.example"},
        {"endpoint": None, "region": "eu-west-1"},
    ],
)
def test_another_bucket_has_another_folder_in_the_cache_and_another_secret_has_not(document: Make, other: Json) -> None:
    def folder(**changes: Any) -> str | None:
        made = document(model={"source": {"bucket": BUCKET | changes}, "cache": CLAIM})
        return cached_path(PDInference.model_validate(made).spec.model)

    assert folder(**other) != folder()
    assert folder(secretName="rotated") == folder()
    assert folder(region="any") == folder(), "at a server of one region"


@pytest.mark.parametrize(
    ("uri", "endpoint"),
    [
        ("models/llama", None),
        ("gs://models/llama", None),
        ("s3://models/../llama", None),
        ("s3://models//llama", None),
        ("s3://Models/llama", None),
        ("s3://models/llama", "https://user:word@minio.example"),
        ("s3://models/llama", "https://minio.example/path"),
        ("s3://models/llama", "https://minio.example:99999"),
        ("s3://a..b/llama", None),
        ("s3://models/llama", "file:///etc"),
    ],
)
def test_what_is_no_place_is_refused(document: Make, uri: str, endpoint: str | None) -> None:
    made = streaming(document, {"uri": uri} | ({"endpoint": endpoint} if endpoint else {}))
    (field,) = problems(made)
    assert field.startswith("spec.model.source.bucket.")


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"model": {"load": {"format": "safetensors"}}}, "spec.model.load.format", "runai_streamer only"),
        ({"engine": {"args": {"load-format": "dummy"}}}, "spec.engine.args.load-format", "Remove the option"),
        ({"decode": {"args": {"load-format": "auto"}}}, "spec.decode.args.load-format", "Remove the option"),
        ({"model": {"load": {"memoryLimit": "500m"}}}, "spec.model.load.memoryLimit", "number of bytes"),
        (
            {"model": {"load": {"concurrency": 4}}, "engine": {"env": {"RUNAI_STREAMER_CONCURRENCY": "8"}}},
            "spec.engine.env.RUNAI_STREAMER_CONCURRENCY",
            "spec.model.load sets it",
        ),
        ({"engine": {"env": {"AWS_PROFILE": "x"}}}, "spec.engine.env.AWS_PROFILE", "spec.model.source.bucket"),
        ({"decode": {"env": {"PYTHONPATH": "/kv"}}}, "spec.decode.env.PYTHONPATH", "source.bucket.secretName"),
        (
            {"model": {"load": {"concurrency": 4}}, "engine": {"args": {"model-loader-extra-config": {}}}},
            "spec.engine.args.model-loader-extra-config",
            "spec.model.load",
        ),
    ],
)
def test_settings_that_do_not_go_with_a_bucket(document: Make, spec: Json, field: str, words: str) -> None:
    model = {"source": {"bucket": BUCKET}, **spec.pop("model", {})}
    roles = {role: {**GPUS, **spec.pop(role, {})} for role in ("parameter", "decode")}
    found = problems(document(model=model, **roles, **spec))
    assert found.keys() == {field}
    assert words in found[field]


def test_a_variable_of_podtemplate_can_have_neither_the_names_nor_the_key(document: Make) -> None:
    entries = [{"name": "AWS_ENDPOINT_URL", "value": "http://x"}, {"name": "A", "value": f"$({NAMES[1]})"}]
    for entry in entries:
        container = {"name": "vllm", "env": [entry]}
        made = streaming(document, decode={**GPUS, "podTemplate": {"spec": {"containers": [container]}}})
        (field,) = problems(made)
        assert field.startswith("spec.decode.podTemplate.spec.containers[")


@pytest.mark.parametrize(
    "members",
    [
        {"volumeMounts": [{"name": "v", "mountPath": "/x", "subPathExpr": f"$({NAMES[1]})"}]},
        {"volumeMounts": [{"name": "v", "mountPath": "/cache/.local"}]},
        {"workingDir": "/x"},
    ],
    ids=str,
)
@pytest.mark.parametrize("cached", [False, True])
def test_no_volume_gets_the_key_or_runs_code_beside_it(document: Make, members: Json, *, cached: bool) -> None:
    """With a cache on the nodes, an init container of each pod has it."""
    spec = {"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "vllm", **members}]}
    model = {"source": {"bucket": BUCKET}, **({"cache": {"hostPath": {"path": "/models"}}} if cached else {})}
    made = document(model=model, parameter=GPUS, decode={**GPUS, "podTemplate": {"spec": spec}})
    settings = RenderSettings(policy=allowing(writable=["/models"]))
    (message,) = problems(made, settings).values()
    assert "source.bucket.secretName" in message
    made["spec"]["model"]["source"]["bucket"] = {**BUCKET, "secretName": None}
    if "subPathExpr" not in str(members):
        assert problems(made, settings) == {}


def test_a_side_car_may_have_a_region_of_its_own(document: Make) -> None:
    env = [{"name": "AWS_REGION", "value": "eu-west-1"}]
    spec = {"containers": [{"name": "log", "image": "registry.example/log:1", "env": env}]}
    assert problems(streaming(document, decode={**GPUS, "podTemplate": {"spec": spec}})) == {}


def test_adapters_beside_a_bucket_come_from_the_hub(document: Make) -> None:
    model = {"source": {"bucket": BUCKET}, "lora": {"adapters": [{"name": "sql", "path": "a/b"}]}}
    made = document(model=model, parameter=GPUS, decode=GPUS)
    assert "HF_HUB_OFFLINE" not in environment(engine_command(PDInference.model_validate(made), Role.DECODE))


def test_the_installation_says_which_secrets_may_be_keys(document: Make) -> None:
    found = problems(streaming(document), RenderSettings(policy=allowing(tokenSecrets=["hf-*"])))
    assert found.keys() == {"spec.model.source.bucket.secretName"}
    assert "policy.tokenSecrets" in found["spec.model.source.bucket.secretName"]


@pytest.mark.parametrize("chosen", ["fastsafetensors", "instanttensor"])
def test_loaders_of_gpus_need_gpus(document: Make, chosen: str) -> None:
    model = {"source": {"path": "/m"}, "load": {"format": chosen}}
    assert problems(document(model=model, parameter=GPUS, decode=GPUS)) == {}
    on_cpu = {"accelerator": {"type": "CPU"}}
    found = problems(document(model=model, parameter=GPUS, decode=on_cpu))
    assert "spec.decode.accelerator.type is CPU" in found["spec.model.load.format"]


def test_options_of_the_streamer_need_it(document: Make) -> None:
    model: Json = {"source": {"path": "/m"}, "load": {"memoryLimit": "1Gi"}}
    assert problems(document(model=model)).keys() == {"spec.model.load"}
    model["load"]["format"] = "runai_streamer"
    made = document(model=model)
    assert problems(made) == {}
    command = engine_command(PDInference.model_validate(made), Role.PARAMETER)
    assert option(command, "model-loader-extra-config") == '{"memory_limit":1073741824}'
