"""Drafts of speculative decoding compared with the classes of the pinned vLLM, and what a plan makes of them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from pdinference.api.names import Role
from pdinference.memory import Inputs, RolePlan, kv, model_facts, plan_role
from pdinference.memory.model.drafts import draft_of
from pdinference.memory.weights.drafts import draft_tensors
from tests.memory.configs import DEEPSEEK_V3, LLAMA_1B, LLAMA_8B, Config
from tests.memory.model.families import MEMBERS
from tests.memory.model.test_vllm_classes import HAS
from tests.memory.model.vllm_classes import Kept, drafted, kept_with_draft, one_process
from tests.memory.plans import H200, known, plan, spec
from tests.memory.sizes import elements
from tests.memory.small import small_config

GIB = 2**30
LLAMA: Config = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 64,
    "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
    "max_position_embeddings": 256, "hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "torch_dtype": "bfloat16",
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_SMALL = LLAMA | {"num_hidden_layers": 1, "intermediate_size": 80}
_NARROW = _SMALL | {"hidden_size": 32}
_QWEN3 = {"model_type": "qwen3", "head_dim": 16, "layer_types": ["full_attention"] * 2, "num_hidden_layers": 2}
DRAFTS: dict[str, tuple[str, Config, tuple[str, ...]]] = {
    "a model": ("draft_model", _NARROW | {"num_hidden_layers": 2, "num_attention_heads": 4}, ()),
    "eagle": ("eagle", _SMALL, ("embed_tokens", "lm_head")),
    "eagle, two layers": ("eagle", _SMALL | {"num_hidden_layers": 2}, ("embed_tokens", "lm_head")),
    "eagle3": ("eagle3", _SMALL | {"architectures": ["LlamaForCausalLMEagle3"]}, ("embed_tokens",)),
    "eagle3, fewer words": (
        "eagle3",
        _SMALL | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 64, "num_hidden_layers": 2},
        ("embed_tokens",),
    ),
    "eagle3, other layers": (
        "eagle3",
        _SMALL
        | {"architectures": ["LlamaForCausalLMEagle3"], "norm_before_fc": True, "fc_norm": True}
        | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3]}},
        ("embed_tokens",),
    ),
    "eagle3, speculators": (
        "eagle3",
        {
            "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": 64,
            "model_type": "speculators", "transformer_layer_config": _SMALL, "torch_dtype": "bfloat16",
        },
        ("embed_tokens",),
    ),
    "dflash": (
        "dflash",
        _SMALL | _QWEN3
        | {"architectures": ["DFlashDraftModel"], "dflash_config": {"target_layer_ids": [0, 1, 2]}},
        ("embed_tokens", "lm_head"),
    ),
    "medusa": (
        "medusa",
        {"model_type": "medusa", "medusa_num_heads": 3, "medusa_num_layers": 2, "hidden_size": 64, "vocab_size": 128},
        (),
    ),
}  # fmt: skip
"""The method, config.json, and what the draft shares with its model."""
_CLASSES = {
    "falcon_h1": "FalconH1ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
}
_SHARED_BY_MTP = ("embed_tokens", "lm_head", "shared_head.head")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_process(tmp_path_factory.mktemp("process")):
        yield


_GONE = ("medusa",)
"""Methods that vLLM 0.33 no longer has."""


@pytest.mark.vllm
@pytest.mark.usefixtures("process")
@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("name", DRAFTS)
def test_a_rank_holds_what_vllms_class_of_a_draft_allocates(name: str, tensor: int, tmp_path: Path) -> None:
    method, config, shared = DRAFTS[name]
    try:
        made = drafted(tmp_path, LLAMA, config, method, tensor=tensor)
    except ValidationError:
        assert method in _GONE
        return
    own = {each: size for each, size in made.parameters.items() if not any(part in each for part in shared)}
    facts = model_facts(LLAMA)
    draft = draft_of(method, config, facts, 1)
    assert not draft.uncounted
    settings = replace(plan(LLAMA).settings, tensor=tensor, draft=draft, dtype_bytes=8, kv_bytes=1)
    counted = sum(tensor.size for tensor in draft_tensors(draft, settings)) // 8
    assert (counted, sum(kv.proposing_token_bytes(facts, settings))) == (sum(own.values()), made.kv_elements)


MTP: dict[str, Config] = {
    "deepseek_v3": {"architectures": ["DeepseekV3ForCausalLM"], "topk_method": "noaux_tc"},
    "ernie4_5_moe": {"architectures": ["Ernie4_5_MoeForCausalLM"]},
    "glm4_moe": {"architectures": ["Glm4MoeForCausalLM"], "head_dim": 16, "attention_bias": True},
    "mimo_v2_flash": {},
    "qwen3_next": {"architectures": ["Qwen3NextForCausalLM"], **MEMBERS["qwen3_next"]},
}
"""Types whose files have layers of MTP, and members of a small one."""


@pytest.mark.vllm
@pytest.mark.usefixtures("process")
@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("model_type", MTP)
def test_a_rank_holds_what_vllms_class_of_mtp_allocates(model_type: str, tensor: int, tmp_path: Path) -> None:
    like = HAS[model_type] if model_type in HAS else small_config(model_type, {}).to_dict()
    config = like | MTP[model_type] | {"num_nextn_predict_layers": 1}
    made = drafted(tmp_path, config, None, "mtp", tensor=tensor)
    own = {name: size for name, size in made.parameters.items() if not any(part in name for part in _SHARED_BY_MTP)}
    facts = model_facts(config)
    settings = replace(plan(config).settings, tensor=tensor, kv_bytes=1)
    without, having = (elements(facts, replace(settings, mtp_layers=layers), 0) for layers in (0, 1))
    counted = having - without, sum(kv.proposing_token_bytes(facts, replace(settings, mtp_layers=1)))
    assert counted == (sum(own.values()), made.kv_elements)


_WIDE = _SMALL | {"architectures": ["LlamaForCausalLMEagle3"], "num_key_value_heads": 4, "num_hidden_layers": 2}


@pytest.mark.vllm
@pytest.mark.usefixtures("process")
@pytest.mark.parametrize("model_type", ["llama", "gpt_oss", "gemma3_text", "falcon_h1"])
def test_the_kv_cache_of_a_model_and_its_draft_is_divided_as_in_vllm(model_type: str, tmp_path: Path) -> None:
    of_type = small_config(model_type, MEMBERS.get(model_type, {})).to_dict()
    config = LLAMA if model_type == "llama" else of_type | {"architectures": [_CLASSES[model_type]]}
    made = plan(
        config, model={"maxModelLength": 256}, engine={"maxNumBatchedTokens": 2048}, accelerator={"type": "CPU"}
    )
    draft = draft_of("eagle3", _WIDE, made.facts, 1)
    settings = replace(made.settings, draft=draft, speculated=1)
    groups = kv.groups_of(made.facts, settings)
    counted = Kept(
        kv.block_bytes(made.facts, settings, 0),
        kv.blocks_per_request(groups, settings, 256),
        sorted(len(group.layers) for group in groups),
    )
    assert kept_with_draft(tmp_path, config, _WIDE, "eagle3") == counted


EAGLE3: Config = {
    "model_type": "llama", "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "draft_vocab_size": 32000, "max_position_embeddings": 2048, "torch_dtype": "float16",
}  # fmt: skip
"""The published draft of Llama 3.1 8B."""


def planned(draft: Config | None, method: str, config: Config = LLAMA_8B, **changes: Config) -> RolePlan:
    args = {"speculative-config": {"method": method, "model": "some/draft", "num_speculative_tokens": 3}}
    stated = spec(engine={"args": args}, **changes)
    role = Role.PARAMETER if "parameter" in changes else Role.DECODE
    return plan_role(Inputs(stated, model_facts(config), draft=draft), role)


def test_an_eagle3_draft_takes_its_weights_and_a_layer_of_kv_cache() -> None:
    without, having = plan(LLAMA_8B), planned(EAGLE3, "eagle3")
    added = known(having.stage.weights.value) - known(without.stage.weights.value)
    layer = 2 * 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336
    assert added / GIB == pytest.approx(2 * (layer + 3 * 4096 * 4096 + 32000 * 4096) / GIB, abs=0.04)
    assert "the draft (eagle3)" in having.stage.weights.note
    assert having.stage.kv_bytes_per_token.value == 33 * 4096
    assert known(having.tokens.value) < known(without.tokens.value) * 32 / 33


def test_a_draft_is_on_the_last_stage_which_has_no_embedding_of_the_model() -> None:
    accelerator = {"accelerator": {"products": H200}, "parallelism": {"pipeline": 2}}
    without = plan_role(Inputs(spec(parameter=accelerator), model_facts(LLAMA_8B)), Role.PARAMETER)
    first, last = planned(EAGLE3, "eagle3", parameter=accelerator).stages
    assert first.weights == without.stages[0].weights
    embedding = 128256 * 4096 * 2
    assert known(last.weights.value) - known(without.stages[1].weights.value) > embedding
    assert last.kv_bytes_per_token.value == known(first.kv_bytes_per_token.value) + 4096


def test_a_whole_model_as_a_draft_shares_nothing() -> None:
    alone, without, having = plan(LLAMA_1B), plan(LLAMA_8B), planned(LLAMA_1B, "draft_model")
    added = known(having.stage.weights.value) - known(without.stage.weights.value)
    assert added == pytest.approx(known(alone.stage.weights.value), rel=0.001)
    assert known(having.stage.kv_bytes_per_token.value) == 131072 + known(alone.stage.kv_bytes_per_token.value)


def test_heads_of_medusa_have_no_kv_cache() -> None:
    without, having = plan(LLAMA_8B), planned({"model_type": "medusa", "num_heads": 4}, "draft_model")
    assert having.stage.kv_bytes_per_token == without.stage.kv_bytes_per_token
    added = known(having.stage.weights.value) - known(without.stage.weights.value)
    assert added == pytest.approx(2 * 3 * (4096 * 4096 + 128256 * 4096), rel=0.01)


@pytest.mark.parametrize(
    ("method", "config", "why"),
    [
        ("eagle3", None, "config.json is not known"),
        ("eagle3", {"hidden_size": 64}, "no usable num_hidden_layers"),
        ("eagle3", EAGLE3 | {"draft_vocab_size": "many"}, "draft_vocab_size"),
        ("eagle3", EAGLE3 | {"eagle_config": [1], "model_type": ["llama"]}, "model_type"),
        ("draft_model", EAGLE3 | {"model_type": "unheard_of"}, "'unheard_of'"),
        ("draft_model", EAGLE3 | {"model_type": []}, "model_type"),
        ("medusa", {"num_heads": 1000}, "num_heads"),
        ("draft_model", EAGLE3 | {"num_hidden_layers": 500}, "500 layers"),
        ("eagle3", EAGLE3 | {"quantization_config": {"quant_method": "unheard_of"}}, "quantisation"),
        ("dspark", EAGLE3, "not known here"),
        ("mtp", EAGLE3, "not known here"),
    ],
)
def test_a_draft_that_cannot_be_counted_says_why(method: str, config: Config | None, why: str) -> None:
    made = planned(config, method)
    assert made.settings.draft is not None
    assert why in made.settings.draft.uncounted
    without = plan(LLAMA_8B)
    assert (made.stage.weights, made.tokens) == (without.stage.weights, without.tokens)


def test_layers_in_the_files_of_the_model_are_no_draft() -> None:
    args = {"speculative-config": {"method": "mtp", "model": "/models/any"}}
    settings = plan(DEEPSEEK_V3, args=args).settings
    assert (settings.draft, settings.mtp_layers) == (None, 1)


def test_the_spec_may_have_the_config_of_the_draft() -> None:
    args = {"speculative-config": {"method": "eagle3", "model": "some/draft"}}
    architecture = {"config": LLAMA_8B, "draftConfig": EAGLE3}
    made = plan(LLAMA_8B, model={"maxModelLength": 8192, "architecture": architecture}, engine={"args": args})
    assert made.stage.weights == planned(EAGLE3, "eagle3").stage.weights
