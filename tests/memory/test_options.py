"""Options of vLLM that change how much memory a role takes."""

import json

import pytest

from pdinference.memory import fits
from pdinference.memory.figures import GIB
from pdinference.memory.options import options_of
from tests.memory.configs import DEEPSEEK_V3, LLAMA_8B, Config
from tests.memory.plans import known, plan
from tests.memory.test_logged_starts import STARTS

OF_NAME = {start.name: start.config for start in STARTS}
QWEN35 = OF_NAME["qwen3.5-4b-44gib-0.22"]
H100 = {"products": ["NVIDIA-H100-80GB-HBM3"]}


@pytest.mark.parametrize(
    "args",
    [
        {"enable-eplb": True, "eplb-config": {"num_redundant_experts": 32}},
        {"enable-eplb": True, "eplb-config": json.dumps({"num_redundant_experts": 32})},
    ],
)
def test_redundant_experts_are_spread_over_the_ranks(args: Config) -> None:
    parallelism = {"tensor": 1, "data": 8, "expert": True}
    without = plan(DEEPSEEK_V3, parallelism=parallelism).stage.weights.value
    having = plan(DEEPSEEK_V3, parallelism=parallelism, args=args).stage.weights
    assert (known(having.value) - known(without)) / GIB == pytest.approx(58 * 4 * 3 * 7168 * 2048 / GIB, rel=0.05)
    assert "32 redundant experts" in having.note


def test_redundant_experts_without_eplb_change_nothing() -> None:
    parallelism = {"data": 8, "expert": True}
    args = {"eplb-config": {"num_redundant_experts": 32}}
    changed = plan(DEEPSEEK_V3, parallelism=parallelism, args=args)
    assert changed.stage.weights == plan(DEEPSEEK_V3, parallelism=parallelism).stage.weights


@pytest.mark.parametrize("args", [{"language-model-only": True}, {"limit-mm-per-prompt": {"image": 0, "video": 0}},
                                  {"limit-mm-per-prompt": '{"image": 0}'}])  # fmt: skip
def test_a_model_that_takes_no_images_has_no_tower(args: Config) -> None:
    engine = {"maxNumSeqs": 64}
    whole, text = plan(QWEN35, engine=engine), plan(QWEN35, engine=engine, args=args)
    assert known(whole.stage.weights.value) - known(text.stage.weights.value) > 0.5 * GIB
    assert known(whole.stage.activations.value) > known(text.stage.activations.value)


@pytest.mark.parametrize("args", [{"limit-mm-per-prompt": {"image": 1}}, {"limit-mm-per-prompt": {"video": 0}}])
def test_a_model_that_takes_images_has_its_tower(args: Config) -> None:
    assert plan(QWEN35, args=args).stage.weights == plan(QWEN35).stage.weights


def test_positions_with_sections_take_four_tables() -> None:
    """0.12 GiB in the logs of Qwen3.5-4B and Qwen3.8-27B."""
    assert "128 MiB of it positions" in plan(QWEN35).stage.weights.note


def test_ten_million_positions_take_gigabytes_on_each_rank() -> None:
    long = plan(LLAMA_8B | {"max_position_embeddings": 10 * 2**20})
    added = known(long.stage.weights.value) - known(plan(LLAMA_8B).stage.weights.value)
    assert added == (10 * 2**20 - 131072) * 128 * 2


@pytest.mark.parametrize(
    ("requests", "args", "graphs"),
    [
        (256, {}, (51, 35)),
        (128, {}, (35, 19)),
        (1024, {}, (51, 51)),
        (8, {}, (5, 4)),
        (256, {"max-cudagraph-capture-size": 64}, (11, 11)),
        (256, {"compilation-config": {"cudagraph_capture_sizes": [1, 2, 4]}}, (3, 3)),
        (256, {"compilation-config": '{"cudagraph_mode": "NONE"}'}, (0, 0)),
    ],
)
def test_graphs_are_those_that_vllm_captures(requests: int, args: Config, graphs: tuple[int, int]) -> None:
    """The first two are from logs: `PIECEWISE=51 (largest=512), FULL=35 (largest=256)` and `PIECEWISE=35, FULL=19`."""
    engine = {"enforceEager": False, "maxNumSeqs": requests, "maxNumBatchedTokens": 8192}
    assert plan(LLAMA_8B, engine=engine, args=args).settings.graphs == graphs


def test_more_requests_take_more_graphs() -> None:
    config = OF_NAME["qwen3-30b-a3b-h100-0.26"]
    few, many = (
        known(plan(config, engine={"enforceEager": False, "maxNumSeqs": n}).stage.overhead.value) for n in (16, 256)
    )
    assert many > few


def test_gpt_oss_120b_does_not_fit_one_h100_with_the_defaults() -> None:
    config = OF_NAME["gpt-oss-20b-h100-0.26"] | {
        "num_hidden_layers": 36, "num_local_experts": 128, "layer_types": ["sliding_attention", "full_attention"] * 18,
    }  # fmt: skip
    engine = {"enforceEager": False}
    made = plan(config, model={"maxModelLength": 131072}, engine=engine, accelerator=H100)
    assert not fits(made)
    assert fits(plan(config, model={"maxModelLength": 16384}, engine=engine | {"maxNumSeqs": 64}, accelerator=H100))


def test_the_lower_end_decides_whether_a_model_fits() -> None:
    def planned(length: int) -> Config:
        return {"model": {"maxModelLength": length}, "accelerator": {"products": ["NVIDIA-L4"]}}

    made = plan(LLAMA_8B, **planned(8192))
    assert known(made.fewest_tokens.value) < known(made.tokens.value) < known(made.most_tokens.value)
    between = int((known(made.fewest_tokens.value) + known(made.tokens.value)) / 2)
    assert fits(plan(LLAMA_8B, **planned(int(known(made.fewest_tokens.value)) - 64)))
    assert not fits(plan(LLAMA_8B, **planned(between)))


def test_a_layer_that_proposes_tokens_takes_weights_and_tokens() -> None:
    """Logged with MTP on Qwen3.6-27B: 0.8 GiB of weights, and 11 % of the tokens."""
    config = OF_NAME["qwen3.8-27b-a100-0.28"]
    common: Config = {"model": {"maxModelLength": 32768}, "engine": {"maxNumSeqs": 64}}
    args = {"speculative-config": {"method": "mtp", "num_speculative_tokens": 1}}
    without, having = plan(config, **common), plan(config, **common, args=args)
    added = known(having.stage.weights.value) - known(without.stage.weights.value)
    assert added / GIB == pytest.approx(0.8, abs=0.05)
    assert -0.15 < known(having.tokens.value) / known(without.tokens.value) - 1 < -0.02


def test_each_layer_that_proposes_tokens_is_counted() -> None:
    args = {"speculative-config": {"method": "deepseek_mtp", "num_speculative_tokens": 1}}
    none = plan(DEEPSEEK_V3)
    one, two = (plan(DEEPSEEK_V3 | {"num_nextn_predict_layers": layers}, args=args) for layers in (1, 2))
    weights = [known(made.stage.weights.value) for made in (none, one, two)]
    assert weights[2] - weights[1] == pytest.approx(weights[1] - weights[0], rel=0.01)
    assert known(two.stage.kv_bytes_per_token.value) == 63 * 576 * 2


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ({"method": "ngram", "prompt_lookup_max": 4}, "ngram"),
        ({"model": "[ngram]"}, "ngram"),
        ({"method": "qwen3_next_mtp"}, "mtp"),
        ({"method": "mtp"}, "mtp"),
        ({"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}, "eagle3"),
        ({"model": "yuhuili/EAGLE-LLaMA3-Instruct-8B"}, "eagle"),
        ({"model": "z-lab/Qwen3-8B-DFlash-b16"}, "dflash"),
        ({"model": "meta-llama/Llama-3.2-1B"}, "draft_model"),
        ({"method": "medusa", "model": "/models/heads"}, "medusa"),
        ('{"model": "/models/draft"}', "draft_model"),
        ({}, ""),
        ("ngram", ""),
    ],
)
def test_the_method_is_the_one_that_vllm_takes(config: object, method: str) -> None:
    assert options_of({"speculative-config": config}).speculative == method
