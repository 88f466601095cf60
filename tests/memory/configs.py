"""Published config.json files, reduced to the fields that affect memory."""

from typing import Any

Config = dict[str, Any]


def _llama(**changes: Any) -> Config:
    return {"model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": 128256, **changes}


LLAMA_8B = _llama(
    num_hidden_layers=32, hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8,
    max_position_embeddings=131072, tie_word_embeddings=False,
)  # fmt: skip
LLAMA_70B = _llama(
    num_hidden_layers=80, hidden_size=8192, intermediate_size=28672, num_attention_heads=64, num_key_value_heads=8,
    max_position_embeddings=131072, tie_word_embeddings=False,
)  # fmt: skip
LLAMA_2_70B = LLAMA_70B | {"vocab_size": 32000, "max_position_embeddings": 4096, "torch_dtype": "float16"}
LLAMA_1B = _llama(
    num_hidden_layers=16, hidden_size=2048, intermediate_size=8192, num_attention_heads=32, num_key_value_heads=8,
    head_dim=64, max_position_embeddings=131072, tie_word_embeddings=True,
)  # fmt: skip
QWEN_7B: Config = {
    "model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "intermediate_size": 18944,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768,
    "sliding_window": 131072, "use_sliding_window": False, "max_window_layers": 28, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN_14B = QWEN_7B | {
    "num_hidden_layers": 48, "hidden_size": 5120, "intermediate_size": 13824, "num_attention_heads": 40,
    "num_key_value_heads": 8, "max_window_layers": 70,
}  # fmt: skip
QWEN_14B_AWQ = QWEN_14B | {
    "torch_dtype": "float16",
    "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm",
                            "modules_to_not_convert": None},
}  # fmt: skip
QWEN3_30B_A3B: Config = {
    "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "intermediate_size": 6144,
    "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
    "max_position_embeddings": 40960, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "sliding_window": None,
}  # fmt: skip
MISTRAL_7B: Config = {
    "model_type": "mistral", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "sliding_window": 4096,
    "max_position_embeddings": 32768, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
MIXTRAL: Config = MISTRAL_7B | {
    "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None,
}  # fmt: skip
DEEPSEEK_V2_LITE: Config = {
    "model_type": "deepseek_v2", "num_hidden_layers": 27, "hidden_size": 2048, "intermediate_size": 10944,
    "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_attention_heads": 16, "num_key_value_heads": 16,
    "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "vocab_size": 102400, "max_position_embeddings": 163840, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
DEEPSEEK_V3: Config = DEEPSEEK_V2_LITE | {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "first_k_dense_replace": 3, "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536,
    "vocab_size": 129280, "topk_method": "noaux_tc", "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
}  # fmt: skip
GEMMA2_9B: Config = {
    "model_type": "gemma2", "num_hidden_layers": 42, "hidden_size": 3584, "intermediate_size": 14336,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "vocab_size": 256000, "sliding_window": 4096,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
GEMMA3_1B: Config = {
    "model_type": "gemma3_text", "num_hidden_layers": 26, "hidden_size": 1152, "intermediate_size": 6912,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144, "sliding_window": 512,
    "sliding_window_pattern": 6, "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
}  # fmt: skip
BAICHUAN_7B: Config = {
    "model_type": "baichuan", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008,
    "num_attention_heads": 32, "vocab_size": 64000, "max_position_embeddings": 4096, "tie_word_embeddings": False,
    "torch_dtype": "float16",
}  # fmt: skip
BAICHUAN_13B: Config = {
    "model_type": "baichuan", "num_hidden_layers": 40, "hidden_size": 5120, "intermediate_size": 13696,
    "num_attention_heads": 40, "vocab_size": 64000, "model_max_length": 4096, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip
BAICHUAN2_7B: Config = BAICHUAN_7B | {
    "vocab_size": 125696, "model_max_length": 4096, "z_loss_weight": 0, "torch_dtype": "bfloat16",
}  # fmt: skip
CHATGLM3_6B: Config = {
    "model_type": "chatglm", "num_layers": 28, "hidden_size": 4096, "ffn_hidden_size": 13696, "kv_channels": 128,
    "num_attention_heads": 32, "multi_query_attention": True, "multi_query_group_num": 2, "padded_vocab_size": 65024,
    "seq_length": 8192, "add_bias_linear": False, "add_qkv_bias": True, "post_layer_norm": True, "rmsnorm": True,
    "original_rope": True, "quantization_bit": 0, "tie_word_embeddings": False, "torch_dtype": "float16",
}  # fmt: skip
GLM4_9B: Config = CHATGLM3_6B | {
    "num_layers": 40, "padded_vocab_size": 151552, "vocab_size": 151552, "seq_length": 131072,
    "torch_dtype": "bfloat16",
}  # fmt: skip
CHATGLM_6B: Config = {
    "model_type": "chatglm", "num_layers": 28, "hidden_size": 4096, "inner_hidden_size": 16384,
    "num_attention_heads": 32, "vocab_size": 130528, "max_sequence_length": 2048, "position_encoding_2d": True,
    "quantization_bit": 0, "torch_dtype": "float16",
}  # fmt: skip
QWEN_V1_7B: Config = {
    "model_type": "qwen", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 22016, "kv_channels": 128,
    "num_attention_heads": 32, "vocab_size": 151936, "max_position_embeddings": 32768, "seq_length": 8192,
    "no_bias": True, "tie_word_embeddings": False, "bf16": False, "fp16": False,
}  # fmt: skip
INTERNLM_7B: Config = {
    "model_type": "internlm", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008, "bias": True,
    "num_attention_heads": 32, "vocab_size": 103168, "max_position_embeddings": 2048, "tie_word_embeddings": False,
    "torch_dtype": "float16",
}  # fmt: skip
YI_34B: Config = {
    "model_type": "Yi", "num_hidden_layers": 60, "hidden_size": 7168, "intermediate_size": 20480,
    "num_attention_heads": 56, "num_key_value_heads": 8, "vocab_size": 64000, "max_position_embeddings": 4096,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
FALCON_7B: Config = {
    "model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544, "num_attention_heads": 71, "num_kv_heads": 71,
    "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False, "bias": False, "alibi": False,
    "vocab_size": 65024, "torch_dtype": "bfloat16",
}  # fmt: skip
FALCON_40B: Config = FALCON_7B | {
    "num_hidden_layers": 60, "hidden_size": 8192, "num_attention_heads": 128, "num_kv_heads": 8,
    "new_decoder_architecture": True,
}  # fmt: skip
BLOOM: Config = {
    "model_type": "bloom", "n_layer": 70, "n_embed": 14336, "num_attention_heads": 112, "vocab_size": 250880,
    "n_inner": None, "seq_length": 2048, "torch_dtype": "bfloat16",
}  # fmt: skip
GPTJ_6B: Config = {
    "model_type": "gptj", "n_layer": 28, "n_embd": 4096, "n_head": 16, "n_inner": None, "vocab_size": 50400,
    "n_positions": 2048, "rotary_dim": 64, "tie_word_embeddings": False,
}  # fmt: skip
