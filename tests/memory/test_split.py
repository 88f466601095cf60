"""Possible parallel sizes of a model, and messages for sizes that vLLM rejects."""

import pytest

from pdinference.api.names import Role
from pdinference.memory import model_facts, split_problems, tensor_sizes
from tests.memory import configs
from tests.memory.configs import Config
from tests.memory.plans import spec


def heads(number: int, kv: int) -> Config:
    return configs.LLAMA_8B | {"num_attention_heads": number, "num_key_value_heads": kv, "head_dim": 128}


def messages(config: Config, *, tensor: int = 1, pipeline: int = 1) -> list[str]:
    p, d = {"tensor": tensor, "pipeline": pipeline}, {"tensor": tensor}
    found = split_problems(spec(parameter={"parallelism": p}, parallelism=d), Role.PARAMETER, model_facts(config))
    return [problem.message for problem in found]


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        (heads(8, 8), [1, 2, 4, 8]),
        (heads(8, 2), [1, 2, 4, 8]),
        (heads(12, 4), [1, 2, 4, 12]),  # 3 and 6 ranks cannot have equally many of 4 KV heads
        (heads(128, 128), [1, 2, 4, 8, 16, 32, 64]),  # the resource takes no more
        (heads(63 * 65, 63 * 65), [1, 3, 5, 7, 9, 13, 15, 21, 35, 39, 45, 63]),
        (configs.DEEPSEEK_V2_LITE | {"num_attention_heads": 12, "num_key_value_heads": 4}, [1, 2, 3, 4, 6, 12]),
    ],
)
def test_tensor_sizes_divide_heads_and_kv_heads(config: Config, sizes: list[int]) -> None:
    assert tensor_sizes(model_facts(config)) == sizes


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (heads(67, 67), "67 attention heads evenly. Use 1."),
        (heads(2, 2), "2 attention heads evenly. Use 1 or 2."),
        (heads(4, 4), "4 attention heads evenly. Use 1, 2 or 4."),
        (heads(4, 2), "4 attention heads and 2 KV heads evenly. Use 1, 2 or 4."),
        (
            configs.DEEPSEEK_V2_LITE | {"num_attention_heads": 4, "num_key_value_heads": 2},
            "4 attention heads evenly. Use 1, 2 or 4.",
        ),
    ],
)
def test_a_refusal_lists_the_sizes_that_fit(config: Config, words: str) -> None:
    assert messages(config, tensor=3) == [f"3 does not split the model's {words}"]


def test_a_stage_has_one_layer_at_least() -> None:
    small = configs.LLAMA_8B | {"num_hidden_layers": 4}
    assert not messages(small, pipeline=4)
    assert messages(small, pipeline=5) == ["5 stages for 4 layers; use fewer."]
