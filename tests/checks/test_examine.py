"""An examination reports all problems of a resource at once."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.v1alpha1.source import ModelSource
from pdinference.checks import Examination, examine
from pdinference.manifests import RenderSettings
from tests.checks.wrong_specs import WRONG, Wrong
from tests.conftest import EXAMPLES, example_documents
from tests.memory.configs import DEEPSEEK_V2_LITE, LLAMA_8B, MIXTRAL, QWEN_7B

Make = Callable[..., dict[str, Any]]
H200 = {"accelerator": {"products": ["NVIDIA-H200"]}}
TCP = {"path": "Network"}


def examined(document: dict[str, Any], status_model: dict[str, Any] | None = None) -> Examination:
    return examine(document, RenderSettings(), lambda _: status_model)


def problems(document: dict[str, Any], status_model: dict[str, Any] | None = None) -> dict[str, str]:
    return {problem.field: problem.message for problem in examined(document, status_model).problems}


def model(config: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    known = {"architecture": {"config": config}} if config else {}
    return {"source": {"path": "/models/a"}, **known, **more}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_have_no_problems_and_no_avoidable_warnings(example: Any) -> None:
    for document in example_documents(example):
        found = examined(document)
        assert found.problems == ()
        # What cannot be avoided: that code of the repository will run, and the capacity that the note's four GPUs have.
        expected = {"spec.model.trustRemoteCode"} if document["spec"]["model"].get("trustRemoteCode") else set()
        if document["metadata"]["name"] == "llama-2-70b":
            expected.add("spec.decode")
        # Whether a node has the GPUs of P and D, only the reader knows.
        assert {warning.field for warning in found.warnings} - {"spec.transfer.path"} == expected
        assert found.resource is not None


def test_every_kind_of_problem_is_named_at_once(document: Make) -> None:
    found = problems(
        document(
            model=model(LLAMA_8B, maxModelLength=200_000),
            engine={"maxNumBatchedTokens": 10, "maxNumSeqs": 20, "args": {"max-logprob": 5}},
            parameter={"env": {"VLLM_API_KEY": "x"}, "podTemplate": {"spec": {"hostNetwork": True}}},
            decode={
                "replicas": "many",
                "parallelism": {"tensor": 3, "pipeline": 2},
                "env": {"VLLM_KV_CACHE_LAYOUT": "NHD"},
                "resources": {"requests": {"memory": "8Gi"}, "limits": {"memory": "4Gi"}},
            },
        )
    )
    assert found.keys() == {
        "spec.decode.replicas",
        "spec.parameter.env",
        "spec.decode.parallelism.pipeline",
        "spec.parameter.podTemplate.spec.hostNetwork",
        "spec.engine.args.max-logprob",
        "spec.decode.env.VLLM_KV_CACHE_LAYOUT",
        "spec.engine.maxNumBatchedTokens",
        "spec.decode.resources.requests.memory",
        "spec.decode.parallelism.tensor",
        "spec.model.maxModelLength",
    }


def test_a_field_that_is_no_number_is_not_blamed_for_its_default_too(document: Make) -> None:
    found = problems(document(parameter={"parallelism": {"tensor": 2}}, decode={"parallelism": {"tensor": "two"}}))
    assert found.keys() == {"spec.decode.parallelism.tensor"}
    assert "two" in found["spec.decode.parallelism.tensor"]


def test_segments_of_one_role_alone_would_end_its_connections(document: Make) -> None:
    found = problems(document(decode={"env": {"UCX_TCP_RX_SEG_SIZE": "1m"}}))
    assert found.keys() == {"spec.decode.env.UCX_TCP_RX_SEG_SIZE"}
    assert "spec.engine.env" in found["spec.decode.env.UCX_TCP_RX_SEG_SIZE"]
    assert problems(document(engine={"env": {"UCX_TCP_RX_SEG_SIZE": "1m"}})) == {}


def test_a_source_that_is_wrong_is_not_missing_too(document: Make) -> None:
    assert problems(document(model={"source": {"path": "../x"}})).keys() == {"spec.model.source.path"}


def test_items_of_lists_are_left_out_from_the_end(document: Make) -> None:
    tolerations = [{"operator": "Never"}, {"key": "gpu", "operator": "Exists", "value": "x"}, {"effect": "No"}]
    found = problems(document(decode={"placement": {"tolerations": tolerations}, "parallelism": {"pipeline": 2}}))
    assert {"spec.decode.placement.tolerations[0].operator", "spec.decode.placement.tolerations[2].effect"} <= set(
        found
    )
    assert "spec.decode.parallelism.pipeline" in found


@pytest.mark.parametrize(
    ("config", "spec", "field", "words"),
    [
        (LLAMA_8B, {"decode": {"parallelism": {"tensor": 3}}}, "spec.decode.parallelism.tensor", "8, 16 or 32"),
        (
            QWEN_7B,
            {"decode": {"parallelism": {"tensor": 7}}},
            "spec.decode.parallelism.tensor",
            "28 attention heads and 4",
        ),
        (
            LLAMA_8B,
            {"parameter": {"parallelism": {"pipeline": 2, "layerPartition": [20, 20]}}},
            "spec.parameter.parallelism.layerPartition",
            "adds up to 40 layers; the model has 32",
        ),
        (LLAMA_8B, {"decode": {"parallelism": {"expert": True}}}, "spec.decode.parallelism.expert", "not a mixture"),
        (
            LLAMA_8B,
            {"parameter": {"parallelism": {"tensor": 2}}},
            "spec.decode.parallelism.tensor",
            "fewer tensor-parallel ranks",
        ),
    ],
)
def test_what_does_not_go_with_the_model(
    document: Make, config: dict[str, Any], spec: dict[str, Any], field: str, words: str
) -> None:
    assert words in problems(document(model=model(config), **spec))[field]


def test_with_mla_decode_may_have_fewer_ranks(document: Make) -> None:
    fewer = {"parameter": {"parallelism": {"tensor": 4}}, "decode": {"parallelism": {"tensor": 2}}}
    assert problems(document(model=model(DEEPSEEK_V2_LITE), **fewer)) == {}
    assert problems(document(model=model(), **fewer)).keys() == {"spec.decode.parallelism.tensor"}
    uneven = {"parameter": {"parallelism": {"tensor": 4}}, "decode": {"parallelism": {"tensor": 3}}}
    assert "spec.decode.parallelism.tensor" in problems(document(model=model(DEEPSEEK_V2_LITE), **uneven))


def test_experts_may_be_spread_where_there_are_some(document: Make) -> None:
    assert problems(document(model=model(MIXTRAL), decode={"parallelism": {"expert": True}})) == {}


def test_a_length_beyond_the_models_is_refused_unless_overridden(document: Make) -> None:
    def fields(config: dict[str, Any], **spec: Any) -> set[str]:
        return set(problems(document(model=model(config, maxModelLength=40_000), **spec)))

    assert fields(QWEN_7B) == {"spec.model.maxModelLength"}
    assert fields(QWEN_7B | {"rope_scaling": {"type": "yarn", "factor": 4.0}}) == set()
    assert fields(QWEN_7B, engine={"env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}}) == set()
    assert fields(QWEN_7B, engine={"args": {"hf-overrides": {"max_position_embeddings": 65536}}}) == set()


@pytest.mark.parametrize(
    ("wanted", "stored", "refused"),
    [
        ("awq", {"quant_method": "awq"}, False),
        ("awq_marlin", {"quant_method": "awq"}, False),
        ("gptq", {"quant_method": "awq"}, True),
        ("fp8", {"quant_method": "gptq"}, True),
        ("fp8", None, False),
        ("bitsandbytes", None, False),
        ("compressed-tensors", None, True),
        ("gptq", None, False),
    ],
)
def test_quantization_goes_with_the_models_files(
    document: Make, wanted: str, stored: dict[str, Any] | None, refused: bool
) -> None:
    made = document(model=model(quantization=wanted))
    source = examined(document()).resource
    assert source is not None
    made["spec"]["model"]["source"] = document()["spec"]["model"]["source"]
    facts = {"source": source.spec.model.source.identity(), "config": LLAMA_8B | {"quantization_config": stored or {}}}
    assert ("spec.model.quantization" in problems(made, {"facts": facts})) is refused


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num_hidden_layers": "many"}, "num_hidden_layers"),
        (LLAMA_8B | {"num_hidden_layers": 10**9}, "less than or equal to 512"),
        (MIXTRAL | {"num_local_experts": 2**30}, "no model has so many"),
        (LLAMA_8B | {"num_key_value_heads": 0}, "positive integer"),
        (LLAMA_8B | {"layer_types": ["full_attention"], "sliding_window": 10}, "1 entries for 32 layers"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused_and_not_computed_with(
    document: Make, config: dict[str, Any], words: str
) -> None:
    assert words in problems(document(model=model(config)))["spec.model.architecture.config"]


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        (
            {"decode": {"args": {"attention-backend": "FLASHINFER"}}},
            "spec.decode.args.attention-backend",
            "'FLASHINFER' for D and not set for P",
        ),
        (
            {"engine": {"env": {"HF_ENDPOINT": "a"}}, "parameter": {"env": {"HF_ENDPOINT": "b"}}},
            "spec.decode.env.HF_ENDPOINT",
            "'a' for D and 'b' for P",
        ),
        (
            {
                "decode": {
                    "podTemplate": {
                        "spec": {
                            "containers": [{"name": "vllm", "env": [{"name": "VLLM_KV_CACHE_LAYOUT", "value": "x"}]}]
                        }
                    }
                }
            },
            "spec.decode.env.VLLM_KV_CACHE_LAYOUT",
            "not set for P",
        ),
        (
            {"engine": {"enableChunkedPrefill": False}, "decode": {"maxNumBatchedTokens": 100}},
            "spec.decode.maxNumBatchedTokens",
            "less than spec.model.maxModelLength (8192)",
        ),
    ],
)
def test_roles_that_would_not_understand_each_other_or_not_start(
    document: Make, spec: dict[str, Any], field: str, words: str
) -> None:
    assert words in problems(document(model=model(maxModelLength=8192), **spec))[field]


def test_roles_may_differ_where_it_does_no_harm(document: Make) -> None:
    assert problems(document(decode={"args": {"max-logprobs": 5}, "env": {"NCCL_DEBUG": "INFO"}})) == {}


def test_adapters_need_unique_names_and_cpu_slots(document: Make) -> None:
    adapters = [{"name": name, "path": "/a"} for name in ("sql", "sql", "llama")]
    lora = {"adapters": adapters, "maxActive": 4}
    found = problems(document(model=model(lora=lora), engine={"args": {"max-cpu-loras": 2}}))
    assert "unique name" in found["spec.model.lora.adapters"]
    assert "name of the model" in found["spec.model.lora.adapters[2].name"]
    assert "at least 4" in found["spec.engine.args.max-cpu-loras"]


ADAPTER = {"path": "owner/sql", "rank": 64, "modules": ["q_proj", "model.layers.0.self_attn.v_proj"], "base": ""}


def with_adapter(document: Make, max_rank: int = 16, **facts: Any) -> Examination:
    """A resource with two adapters, of the second of which this is known."""
    source = {"huggingFace": {"repository": "meta-llama/Llama-3.1-8B"}}
    adapters = [{"name": "other", "path": "/models/other"}, {"name": "sql", "path": "owner/sql"}]
    lora = {"adapters": adapters, "maxRank": max_rank}
    made = document(model={"source": source, "lora": lora}, parameter=H200, transfer=TCP)
    identity = ModelSource.model_validate(source).identity()
    known = {"source": identity, "config": LLAMA_8B | {"model_type": "llama"}, "adapters": [ADAPTER | facts]}
    return examined(made, {"facts": known})


def test_the_real_rank_of_an_adapter_counts_where_it_is_known(document: Make) -> None:
    (problem,) = with_adapter(document).problems
    assert problem.field == "spec.model.lora.adapters[1]"
    assert problem.message == "Adapter sql has rank 64, but spec.model.lora.maxRank is 16. Set maxRank: 64."
    assert with_adapter(document, max_rank=64).problems == ()
    assert "Set maxRank: 128." in str(with_adapter(document, rank=65).problems)
    assert "maximum rank is 512" in str(with_adapter(document, rank=1024).problems)
    assert with_adapter(document, path="owner/another").problems == (), "what is not known is no problem"


def test_adapters_of_other_models_and_kinds_are_found(document: Make) -> None:
    found = with_adapter(document, rank=8, modules=["c_attn"], base="openai/gpt2").problems
    assert "targets c_attn, but models of type llama do not have" in str(found)
    assert "(openai/gpt2)" in str(found)
    assert "use_dora, which vLLM does not support" in str(
        with_adapter(document, rank=8, unsupported=["use_dora"]).problems
    )


def test_an_adapter_trained_on_another_model_is_worth_a_warning(document: Make) -> None:
    (warning,) = with_adapter(document, rank=8, base="Qwen/Qwen2.5-7B").warnings
    assert "base model of adapter sql is Qwen/Qwen2.5-7B, but the model is meta-llama/Llama-3.1-8B" in warning.message
    for right in ("meta-llama/Llama-3.1-8B", "unsloth/llama-3.1-8b-instruct", "/data/base", ""):
        assert with_adapter(document, rank=8, base=right).warnings == ()


def test_code_from_elsewhere_is_worth_a_warning(document: Make) -> None:
    hub = {"huggingFace": {"repository": "a/b"}}
    (warning,) = examined(
        document(model={"source": hub, "trustRemoteCode": True}, parameter=H200, transfer=TCP)
    ).warnings
    assert warning.field == "spec.model.trustRemoteCode"
    assert "Pin the revision" in warning.message
    pinned = {"huggingFace": {"repository": "a/b", "revision": "0" * 40}}
    (warning,) = examined(
        document(model={"source": pinned, "trustRemoteCode": True}, parameter=H200, transfer=TCP)
    ).warnings
    assert "Pin" not in warning.message


@pytest.mark.parametrize(
    ("image", "fields"),
    [
        ("docker.io/vllm/vllm-openai:v0.32.0", {"spec.engine.image"}),
        ("vllm/vllm-openai:v0.23.0", {"spec.engine.image"}),
        ("example.com/vllm-cpu:0.32.0", set()),
        ("docker.io/vllm/vllm-openai-cpu:v0.32.0", set()),
    ],
)
def test_an_image_for_gpus_is_worth_a_warning_on_cpu(document: Make, image: str, fields: set[str]) -> None:
    cpu = {"accelerator": {"type": "CPU"}}
    found = examined(document(parameter=cpu, decode=cpu, engine={"image": image}))
    assert {warning.field for warning in found.warnings} == fields
    on_gpus = examined(document(parameter=H200, decode=H200, engine={"image": image}))
    assert "spec.engine.image" not in {warning.field for warning in on_gpus.warnings}


def test_a_secret_in_the_environment_gets_one_advice(document: Make) -> None:
    found = examined(document(engine={"env": {"HF_TOKEN": "hf_a", "OPENAI_API_KEY": "b"}}))
    assert [problem.field for problem in found.problems] == ["spec.engine.env"]
    assert "spec.engine.env.OPENAI_API_KEY" in {warning.field for warning in found.warnings}
    assert "spec.engine.env.HF_TOKEN" not in {warning.field for warning in found.warnings}


def test_the_same_document_gives_the_same_words(document: Make) -> None:
    made = document(model=model(LLAMA_8B), decode={"accelerator": {"products": ["NVIDIA-L4"]}})
    assert examined(made) == examined(made)


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_all_that_is_wrong_is_named_and_nothing_else(document: Make, wrong: Wrong) -> None:
    made = {**document(), "spec": wrong.spec}
    made["metadata"] = {"name": wrong.name or "llama"}
    assert tuple(problem.field for problem in examine(made, RenderSettings()).problems) == wrong.fields


def test_a_pod_claims_no_more_devices_than_a_claim_can_have(document: Make) -> None:
    devices = {"deviceClassName": "gpu.nvidia.com"}
    role = {"accelerator": {"devices": devices, "memory": "80Gi"}, "parallelism": {"tensor": 8}}
    made = {
        count: {"parameter": role, "decode": role, "transfer": {"hostLocal": {"decode": count}}} for count in (3, 4)
    }
    assert problems(document(**made[3])) == {}
    assert "would claim 40 devices" in problems(document(**made[4]))["spec.transfer.hostLocal"]


def test_p_and_d_of_a_pod_claim_the_same_devices(document: Make) -> None:
    claims = {
        role: {
            "accelerator": {"devices": {"deviceClassName": "gpu.nvidia.com", "selectors": [selector]}, "memory": "80Gi"}
        }
        for role, selector in (("parameter", "true"), ("decode", "1 > 0"))
    }
    shared: dict[str, Any] = {"transfer": {"hostLocal": {}}}
    assert "have one claim" in problems(document(**claims, **shared))["spec.decode.accelerator.devices"]
    assert problems(document(parameter=claims["decode"], decode=claims["decode"], **shared)) == {}
    assert problems(document(**claims)) == {}
