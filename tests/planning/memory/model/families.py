"""Families of models without a class in the pinned transformers."""

NOT_IN_TRANSFORMERS = {
    "aquila", "baichuan", "chatglm", "deepseek", "exaone", "internlm", "internlm2", "internlm3", "kimi_k2", "mimo",
    "minicpm", "orion", "qwen", "solar", "xverse", "Yi",
}  # fmt: skip
"""Their classes come with the checkpoints, or are those of another type under a new name."""
