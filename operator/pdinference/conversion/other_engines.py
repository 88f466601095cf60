"""Inference servers that are not vLLM, by their programs and images, so that a message can name them.

Tests: tests/conversion/test_field_points.py
"""

import re
from collections.abc import Sequence

_WORDS = {
    "SGLang": r"sglang(\.launch_server|_router.*)?|dynamo\.sglang.*|sglang\..*",
    "TensorRT-LLM": r"trtllm-serve|dynamo\.trtllm.*|tensorrt_llm.*",
    "Text Generation Inference": r"text-generation-launcher",
    "llama.cpp": r"llama-server|llama_cpp\.server",
    "Ollama": r"ollama",
    "LMDeploy": r"lmdeploy.*",
    "Triton": r"tritonserver",
    "KServe's Hugging Face server": r"huggingfaceserver.*",
    "a simulator of vLLM": r"llm-d-inference-sim|dynamo\.mocker",
}
_IMAGES = {
    "SGLang": r"sglang",
    "TensorRT-LLM": r"tensorrt-?llm|trtllm|tensorrtllm",
    "Text Generation Inference": r"text-generation-inference",
    "Text Embeddings Inference": r"text-embeddings-inference",
    "llama.cpp": r"llama\.?cpp",
    "Ollama": r"/?ollama",
    "LMDeploy": r"lmdeploy",
    "Triton": r"tritonserver",
    "KServe's Hugging Face server": r"huggingfaceserver",
    "a simulator of vLLM": r"llm-d-inference-sim|vllm-sim|vllm-mock",
    "a router": r"vllm-router|lmstack-router|llm-d-(router|inference-scheduler)|routing-sidecar",
}


def engine_of_words(words: Sequence[str]) -> str | None:
    """The inference server that a command starts, other than vLLM."""
    names = [word.rpartition("/")[2] for word in words]
    return next((engine for engine, form in _WORDS.items() for name in names if re.fullmatch(form, name)), None)


def engine_of_image(image: str | None) -> str | None:
    """The inference server of an image, other than vLLM, by its name."""
    name = (image or "").partition("@")[0].lower()
    return next((engine for engine, form in _IMAGES.items() if re.search(form, name)), None)
