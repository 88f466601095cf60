"""The KV cache compared with logs of vLLM 0.32.0 on CPU (benchmarks/memory_plan.py repeats the run)."""

import pytest

from tests.planning.memory.configs import Config
from tests.planning.memory.plans import plan

_TINY: Config = {
    "vocab_size": 512, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 8192,
}  # fmt: skip
_LATENT: Config = {
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "tokens", "concurrency"),
    [
        ({"model_type": "llama"}, 262_144, 128.0),
        ({"model_type": "llama", "num_key_value_heads": 2}, 524_288, 256.0),
        ({"model_type": "qwen2", "num_key_value_heads": 1, "num_hidden_layers": 7}, 599_168, 292.56),
        (
            {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 2},
            524_288,
            256.0,
        ),
        ({"model_type": "deepseek_v2", **_LATENT}, 232_960, 113.75),
        ({"model_type": "deepseek_v3", "q_lora_rank": 192, **_LATENT}, 232_960, 113.75),
        ({"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 512}, 932_067, 455.11),
        ({"model_type": "gemma2", "num_key_value_heads": 2, "sliding_window": 512}, 671_088, 327.68),
        (
            {"model_type": "gemma3_text", "num_key_value_heads": 1, "num_hidden_layers": 14, "sliding_window": 256},
            578_524,
            282.48,
        ),
    ],
)
def test_tokens_and_concurrency_are_those_of_vllm(changes: Config, tokens: int, concurrency: float) -> None:
    made = plan(
        {**_TINY, **changes},
        model={"maxModelLength": 2048},
        engine={"maxNumBatchedTokens": 512, "maxNumSeqs": 8, "env": {"VLLM_CPU_KVCACHE_SPACE": "1"}},
        accelerator={"type": "CPU"},
    )
    assert made.tokens.value == tokens
    assert made.concurrency.value == concurrency
